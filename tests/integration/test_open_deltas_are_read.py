"""Whoever reads a checkpoint with open deltas sees what a run that reads its state would have written."""

import json

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import statelib.spark
from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from tests.integration.shop_cli import said
from tests.support.worlds import day, new_deployment, publish_here

FILE = """\
name: NAME
source: {path: "{data}/{start}-{end}", columns: {shop: string, item: string, amount: long}}
key: shop
states:
  total:
    kind: value
    fields: {n: {agg: count}, sum: {agg: sum, of: amount}, items: {agg: approx_distinct, of: item}}
  items: {kind: map, user_key: item, value: {agg: max, of: amount}}
backend: BACKEND
parallelism: 2
max_parallelism: 8
checkpoint: {strategy: changelog, blind: BLIND, materialize_after_checkpoints: 9}
"""
DAYS = (("abc", "xyz"), ("ade", "xxx"), ("afb", "zyx"))
BLIND, TWIN = "blind", "twin"


@pytest.fixture(scope="module", params=["heap", "rocksdb"])
def deployment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """A deployment with a pipeline whose third checkpoint has two deltas per subtask, and one that has applied the same
    events without deltas. A test may continue them."""
    root = tmp_path_factory.mktemp("world")
    (root / "pipelines").mkdir()
    for name in (BLIND, TWIN, "branch"):
        text = FILE.replace("NAME", name).replace("BACKEND", request.param)
        (root / "pipelines" / f"{name}.yaml").write_text(text.replace("BLIND", str(name != TWIN).lower()))
    deployment = new_deployment(root, root, root / "pipelines")
    for name in (BLIND, TWIN):
        for number, (shops, items) in enumerate(DAYS, 1):
            run(deployment, name, number, list(shops) * 4, list(items) * 4)
    manifest = deployment.open(deployment.catalog().get(PipelineName(BLIND), CheckpointId(3))).manifest
    assert manifest is not None
    assert len(manifest.deltas) >= 3
    return deployment


def run(deployment: Deployment, name: str, number: int, shops: list[str], items: list[str]) -> None:
    pipeline = deployment.pipeline(name)
    amounts = pa.array([10 * number] * len(shops), pa.int64())
    begun = begin(deployment, pipeline, day(number), "test")
    publish_here(deployment, pipeline, begun.checkpoint_id, pa.table({"shop": shops, "item": items, "amount": amounts}))
    check(deployment, pipeline, begun.checkpoint_id)
    register(deployment, pipeline, begun.checkpoint_id)


def exported(deployment: Deployment, snapshot: str) -> list[str]:
    """Return a line per entry, without the name of the operator, which is that of the pipeline."""
    return [line.partition(",")[2] for line in said(deployment, "export", snapshot).splitlines()]


def test_an_export_has_the_merged_entries(deployment: Deployment) -> None:
    lines = exported(deployment, f"{BLIND}/3")
    assert len(lines) > 10
    assert lines == exported(deployment, f"{TWIN}/3")


def test_both_are_equal_when_they_are_compared(deployment: Deployment) -> None:
    said(deployment, "checkpoints", "diff", f"{BLIND}/3", f"{TWIN}/3", "--exit-code")


def test_the_differences_of_two_checkpoints_are_the_same(deployment: Deployment) -> None:
    first, second = (
        json.loads(said(deployment, "checkpoints", "diff", f"{name}/1", f"{name}/3", "--limit", 50, "--json"))["states"]
        for name in (BLIND, TWIN)
    )
    for state in (*first, *second):
        del state["key_groups_read"], state["key_groups_skipped"]
    assert first == second
    assert [(state["added"], state["changed"], state["removed"]) for state in first] == [(3, 2, 0), (5, 1, 0)]


def test_a_query_reads_the_merged_entries(deployment: Deployment) -> None:
    words = "SELECT shop, n, sum FROM total ORDER BY ALL"
    first, second = (said(deployment, "query", f"{name}/3", words, "--json") for name in (BLIND, TWIN))
    assert first == second
    assert '"a"' in first


def test_a_fork_has_the_merged_entries(deployment: Deployment) -> None:
    said(deployment, "pipelines", "fork", f"{BLIND}/3", "branch")
    assert exported(deployment, "branch") == exported(deployment, f"{TWIN}/3")
    for name in ("branch", TWIN):
        run(deployment, name, 4, ["a", "g"], ["x", "x"])
    assert exported(deployment, "branch") == exported(deployment, TWIN)


def test_a_data_frame_has_the_merged_entries(deployment: Deployment, spark: SparkSession) -> None:
    statelib.spark.register(spark)
    directories = [deployment.catalog().get(PipelineName(name), CheckpointId(3)).directory for name in (BLIND, TWIN)]
    for state in ("total", "items"):
        reader = spark.read.format("statelib").option("state", state)
        first, second = (sorted(map(str, reader.load(directory).collect())) for directory in directories)
        assert first == second
        assert first
