"""The measured cost of a checkpoint, from the subtasks through the manifest to the catalog."""

from pathlib import Path

import pyarrow as pa
import pytest

from statelib.flows.checkpoint.steps import begin, register
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import SnapshotMeasure
from statelib.model.ids import CheckpointId, PipelineName
from statelib.savepoints.opened import open_checkpoint
from tests.support.worlds import checkpoint_of, day, new_deployment, publish_here

CARTS = """\
name: carts
source: {path: "{data}/{start}-{end}", columns: {user: string, shop: long, item: string, at: instant}}
key: [user, shop]
max_parallelism: 8
states:
  last: {kind: value, fields: {item: {agg: last, of: item, by: item}}, ttl: 2d}
  per_item: {kind: map, user_key: item, value: {agg: count}, ttl: 36h, update: on_read_and_write}
  hourly: {kind: reducing, value: {agg: count}, window: {time: at, tumbling: 1h, retain: 10d}}
backend: BACKEND
parallelism: 2
checkpoint: {strategy: STRATEGY, inline_threshold_bytes: 0}
"""
WAYS = [("heap", "full"), ("heap", "changelog"), ("rocksdb", "incremental"), ("rocksdb", "canonical")]


@pytest.fixture(params=WAYS, ids="-".join)
def deployment(tmp_path: Path, request: pytest.FixtureRequest) -> Deployment:
    backend, strategy = request.param
    (tmp_path / "pipelines").mkdir()
    text = CARTS.replace("BACKEND", backend).replace("STRATEGY", strategy)
    (tmp_path / "pipelines" / "carts.yaml").write_text(text)
    return new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")


def events(number: int, users: range) -> pa.Table:
    """Return two events of each user in each of two shops, at noon and just before midnight of a day."""
    rows = [(f"u{n}", shop, f"item-{n % 3}", hour) for n in users for shop in (1, 2) for hour in (12, 23)]
    moments = [day(number).start_ms + hour * 3_600_000 for *_, hour in rows]
    return pa.table(
        {
            "user": [row[0] for row in rows],
            "shop": pa.array([row[1] for row in rows], pa.int64()),
            "item": [row[2] for row in rows],
            "at": pa.array(moments, pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
        }
    )


def measured(deployment: Deployment, number: CheckpointId) -> SnapshotMeasure:
    """Return the measure in the catalog. Assert that the manifest has the same."""
    record = deployment.catalog().get(PipelineName("carts"), number)
    manifest = open_checkpoint(record.directory).manifest
    assert manifest is not None
    assert record.measured == manifest.measured
    return manifest.measured


def test_keys_that_events_wrote_are_counted_once_each(deployment: Deployment) -> None:
    first = measured(deployment, checkpoint_of(deployment, "carts", 1, events(1, range(10))))
    assert first.keys_changed == 20, "two shops of ten users, whatever the number of states and events"
    second = measured(deployment, checkpoint_of(deployment, "carts", 2, events(2, range(8, 12))))
    assert second.keys_changed == 8, "what expires meanwhile is not written by an event"
    third = measured(deployment, checkpoint_of(deployment, "carts", 3, events(3, range(0))))
    assert third.keys_changed == 0
    for each in (first, second):
        assert each.upload_ms is not None
        assert 0 <= each.upload_ms <= each.async_ms
        assert each.uploaded_bytes


def test_a_savepoint_changes_no_keys(deployment: Deployment) -> None:
    checkpoint_of(deployment, "carts", 1, events(1, range(10)))
    pipeline = deployment.pipeline("carts")
    saved = begin_savepoint(
        deployment, pipeline, format="canonical", target=None, note="", owner="test", key="k"
    ).checkpoint_id
    publish_here(deployment, pipeline, saved)
    register(deployment, pipeline, saved)
    assert measured(deployment, saved).keys_changed == 0


def test_a_checkpoint_that_is_pending_has_no_measure(deployment: Deployment) -> None:
    begun = begin(deployment, deployment.pipeline("carts"), day(1), "test")
    assert deployment.catalog().get(PipelineName("carts"), begun.checkpoint_id).measured is None
