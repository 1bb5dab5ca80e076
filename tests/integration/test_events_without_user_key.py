"""Events without the user key of a map are counted in the checkpoint, however a run changes the state."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from statelib.flows.checkpoint.steps import check, register
from statelib.flows.mending.steps import begin_mend, plan_mend
from statelib.savepoints.opened import open_checkpoint
from tests.integration.shop_cli import said
from tests.support.worlds import checkpoint_of, day, new_deployment, publish_here

FILE = """\
name: sales
source: {path: "{data}/{start}-{end}", columns: {shop: string, item: string}}
key: shop
on_null_key: drop
states:
  total: {kind: value, value: {agg: count}}
  items: {kind: map, user_key: item, value: {agg: count}}
backend: heap
parallelism: 2
checkpoint: {strategy: changelog, CHECKPOINT}
"""
SENTENCE = "of this interval have no user key and are not in this map"


def sales(*rows: tuple[str, str | None]) -> pa.Table:
    shops, items = zip(*rows, strict=True)
    return pa.table({"shop": pa.array(shops, pa.string()), "item": pa.array(items, pa.string())})


@pytest.mark.parametrize("checkpoint", ["blind: false", "blind: true", "mendable: 7d"])
def test_events_without_a_user_key_are_counted_per_map(tmp_path: Path, checkpoint: str) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "sales.yaml").write_text(FILE.replace("CHECKPOINT", checkpoint))
    deployment = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    for number in (1, 2):  # the second run adds to a state
        checkpoint_of(deployment, "sales", number, sales(*((f"s{i}", None) for i in range(8)), ("a", "x")))
        assert json.loads(said(deployment, "inspect", "sales/head", "--json"))["events_without_user_key"] == {
            "items": 8
        }
        assert f"state items: 8 events {SENTENCE}" in said(deployment, "inspect", "sales/head", columns=200)
    checkpoint_of(deployment, "sales", 3, sales(("a", "x")))
    assert json.loads(said(deployment, "inspect", "sales/head", "--json"))["events_without_user_key"] == {}
    assert "no user key" not in said(deployment, "inspect", "sales/head")


def test_a_correction_counts_the_events_that_it_applies(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "sales.yaml").write_text(FILE.replace("CHECKPOINT", "mendable: 7d"))
    deployment = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    for number in (1, 2):
        checkpoint_of(deployment, "sales", number, sales(("a", None), ("a", None)))
    pipeline = deployment.pipeline("sales")
    begun = begin_mend(deployment, pipeline, plan_mend(deployment, pipeline, day(1)), "test").checkpoint_id
    publish_here(deployment, pipeline, begun, sales(("a", "x"), ("b", None), ("c", None), ("c", None)))
    record = register(deployment, pipeline, begun, check(deployment, pipeline, begun).report_uri)
    manifest = open_checkpoint(record.directory).manifest
    assert manifest is not None
    assert manifest.events.without_user_key == (("items", 3),)
