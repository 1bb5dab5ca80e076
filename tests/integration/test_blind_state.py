"""A pipeline whose runs do not read its state: what is taken of it, what the gate checks of it, and when it is read."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statelib.backends.keyed import KeyedStateBackend
from statelib.flows.checkpoint.snapshot_plan import plan_snapshot
from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import CheckpointManifest
from statelib.model.handles import ChangelogStateBackendHandleImpl, log_streams
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.state import KeyCounts
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.verification.snapshots import verify
from statelib.spark.snapshot.subtask import worker
from tests.support.worlds import day, new_deployment, publish_here

FILE = """\
name: sales
source: {path: "{data}/{start}-{end}", columns: {shop: string, item: string, amount: long}}
key: shop
states:
  total: {kind: value, fields: {n: {agg: count}, sum: {agg: sum, of: amount}}}
  items: {kind: map, user_key: item, value: {agg: max, of: amount}}
backend: BACKEND
parallelism: 2
max_parallelism: 8
checkpoint:
  {strategy: changelog, blind: true, materialize_after_checkpoints: 3, inline_threshold_bytes: 0, local_recovery: LOCAL}
"""


@pytest.fixture(params=[("heap", "false"), ("rocksdb", "false"), ("heap", "true"), ("rocksdb", "true")], ids="-".join)
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Deployment:
    backend, local = request.param
    return deployment_in(tmp_path, FILE.replace("BACKEND", backend).replace("LOCAL", local))


def deployment_in(root: Path, file: str) -> Deployment:
    (root / "pipelines").mkdir()
    (root / "pipelines" / "sales.yaml").write_text(file)
    return new_deployment(root, root, root / "pipelines")


def run(deployment: Deployment, number: int, *shops: str) -> CheckpointManifest:
    """Apply the sales of a day, one per shop; let the gate check the checkpoint, and return its manifest."""
    pipeline = deployment.pipeline("sales")
    events = pa.table(
        {
            "shop": pa.array(shops, pa.string()),
            "item": pa.array([f"i{number % 2}"] * len(shops), pa.string()),
            "amount": pa.array([10 * number] * len(shops), pa.int64()),
        }
    )
    begun = begin(deployment, pipeline, day(number), "test")
    publish_here(deployment, pipeline, begun.checkpoint_id, events)
    check(deployment, pipeline, begun.checkpoint_id)
    register(deployment, pipeline, begun.checkpoint_id)
    manifest = opened(deployment, number).manifest
    assert manifest is not None
    return manifest


def opened(deployment: Deployment, number: int) -> Checkpoint:
    return deployment.open(deployment.catalog().get(PipelineName("sales"), CheckpointId(number)))


def totals(checkpoint: Checkpoint) -> dict[str, tuple[int, int]]:
    return {row["key"]: (row["value"]["n"], row["value"]["sum"]) for row in checkpoint.to_arrow("total").to_pylist()}


def test_runs_add_deltas_until_the_state_is_written_as_a_whole(deployment: Deployment) -> None:
    first = run(deployment, 1, "a", "b", "c")
    assert (first.deltas, first.entries) == ((), 6)
    for number in (2, 3, 4):
        blind = run(deployment, number, "a", "d", "e")
        assert set(blind.restored_from) == {"blind"}
        assert (blind.entries, blind.total_keys) == (None, None)
        assert blind.keys_changed == 3
        assert totals(opened(deployment, number))["a"] == (number, sum(range(10, 10 * number + 1, 10)))
    folded = run(deployment, 5, "f")
    assert "blind" not in folded.restored_from
    assert (folded.deltas, folded.entries) == ((), 15)
    assert totals(opened(deployment, 5)) == {
        "a": (4, 100), "b": (1, 10), "c": (1, 10), "d": (3, 90), "e": (3, 90), "f": (1, 50),
    }  # fmt: skip
    assert {row["key"]: row["value"] for row in opened(deployment, 5).to_arrow("items").to_pylist()}["f"] == 50


def test_a_run_that_merges_deltas_does_not_count_all_keys(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(deployment, 1, "a", "b", "c")

    def refuse(_: KeyedStateBackend) -> KeyCounts:
        raise AssertionError("the number of keys follows from the deltas")

    monkeypatch.setattr(worker, "count_keys", refuse)
    for number in (2, 3, 4):
        below = run(deployment, number, "a", "d", "e").keys_below_deltas
        assert below is not None
        assert below.total == 3
    folded = run(deployment, 5, "a", "f")
    assert (folded.total_keys, folded.keys_below_deltas) == (6, None)
    assert {run(deployment, number, "g").total_keys for number in (6, 7, 8, 9)} == {None, 7}


def test_one_subtask_may_merge_its_deltas_while_the_other_adds_one(deployment: Deployment) -> None:
    run(deployment, 1, "a", "e")
    for number in (2, 3, 4):
        run(deployment, number, "a")
    mixed = run(deployment, 5, "a", "e")
    assert sorted(mixed.restored_from)[0] == "blind"
    assert len(set(mixed.restored_from)) == 2
    assert [delta.checkpoint_id for delta in mixed.deltas] == [5]
    assert (mixed.total_keys, mixed.keys_below_deltas and mixed.keys_below_deltas.total) == (None, 2)
    assert totals(opened(deployment, 5)) == {"a": (5, 150), "e": (2, 60)}


def test_the_log_names_the_subtasks_that_leave_their_state_unread(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    run(deployment, 1, "a", "e")
    for number in (2, 3, 4):
        run(deployment, number, "a")
    caplog.clear()
    with caplog.at_level("INFO", "statelib"):
        run(deployment, 5, "a", "e")
    assert caplog.messages[:2] == [
        "the state is read by subtask 0: its change log has 3 parts (materialize_after_checkpoints)",
        "the state is left unread by subtask 1 (blind): a delta is added to its change log",
    ]


def test_a_run_without_events_adds_no_delta(deployment: Deployment) -> None:
    run(deployment, 1, "a", "b", "c", "d")
    assert run(deployment, 2).deltas == ()
    before = run(deployment, 3, "a").deltas
    assert len(before) == 1, "one subtask has the key"
    after = run(deployment, 4).deltas
    assert [delta.checkpoint_id for delta in after] == [delta.checkpoint_id for delta in before] == [3]


def test_a_savepoint_has_the_merged_state(deployment: Deployment) -> None:
    run(deployment, 1, "a", "b")
    run(deployment, 2, "a", "c")
    pipeline = deployment.pipeline("sales")
    saved = begin_savepoint(deployment, pipeline, format="canonical", target=None, note="", owner="t", key="k")
    publish_here(deployment, pipeline, saved.checkpoint_id)
    check(deployment, pipeline, saved.checkpoint_id)
    register(deployment, pipeline, saved.checkpoint_id)
    savepoint = opened(deployment, 3)
    assert savepoint.manifest is not None
    assert (savepoint.manifest.deltas, savepoint.manifest.entries) == ((), 7)
    assert totals(savepoint) == {"a": (2, 30), "b": (1, 10), "c": (1, 20)}


def test_another_definition_has_the_state_read(tmp_path: Path) -> None:
    deployment = deployment_in(tmp_path, FILE.replace("BACKEND", "heap").replace("LOCAL", "false"))
    run(deployment, 1, "a", "b")
    run(deployment, 2, "a")
    file = tmp_path / "pipelines" / "sales.yaml"
    file.write_text(file.read_text().replace("{n: {agg: count}", "{most: {agg: max, of: amount}, n: {agg: count}"))
    read = run(deployment, 3, "a")
    assert read.deltas == ()
    rows = {row["key"]: row["value"] for row in opened(deployment, 3).to_arrow("total").to_pylist()}
    assert rows["a"] == {"most": 30, "n": 3, "sum": 60}
    assert rows["b"] == {"most": None, "n": 1, "sum": 10}


def test_the_state_is_read_if_the_log_is_large(tmp_path: Path) -> None:
    small = FILE.replace("blind: true", "blind: true, materialize_after_bytes: 1")
    deployment = deployment_in(tmp_path, small.replace("BACKEND", "heap").replace("LOCAL", "false"))
    run(deployment, 1, "a")
    assert run(deployment, 2, "a").deltas != ()
    assert run(deployment, 3, "a").deltas == ()


def test_a_repeated_subtask_writes_the_same_delta(deployment: Deployment) -> None:
    run(deployment, 1, "a", "b", "c")
    pipeline = deployment.pipeline("sales")
    begun = begin(deployment, pipeline, day(2), "test")
    plans = [plan_snapshot(deployment, pipeline, begun.checkpoint_id) for _ in range(2)]
    assert [plan.reasons_to_read for plan in plans if plan] == [("", "")] * 2


def delta_file(checkpoint: Checkpoint) -> Path:
    """Return the file of the last delta of the checkpoint."""
    handle = next(handle for handle in checkpoint.handles() if isinstance(handle, ChangelogStateBackendHandleImpl))
    stream: Any = log_streams(handle)[-1]
    return Path(stream.path.removeprefix("file://"))


def test_damage_to_a_delta_is_named(tmp_path: Path) -> None:
    deployment = deployment_in(tmp_path, FILE.replace("BACKEND", "heap").replace("LOCAL", "false"))
    run(deployment, 1, "a", "b", "c", "d")
    run(deployment, 2, "a", "b", "c", "d")
    assert verify(opened(deployment, 2)).problems == ()
    path = delta_file(opened(deployment, 2))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert path.name in verify(opened(deployment, 2)).problems[0]
