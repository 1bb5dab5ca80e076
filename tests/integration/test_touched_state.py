"""A pipeline whose runs read only the entries that their events touch: when they do, and what damage is found."""

import logging
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from statelib.errors import CorruptStateError, NotFoundError
from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import CheckpointManifest
from statelib.model.ids import CheckpointId, PipelineName
from statelib.restore import costs
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.recorded_changes import changes_name
from statelib.spark.snapshot.driver import run_snapshot
from tests.support.worlds import day, new_deployment, publish_here

FILE = """\
name: sales
source: {path: "{data}/{start}-{end}", columns: {shop: long, amount: long}}
key: shop
states:
  total: {kind: value, fields: {n: {agg: count}, sum: {agg: sum, of: amount}}}
backend: rocksdb
parallelism: 2
max_parallelism: 8
publish: {feed: {state: total, target: "{data}/feed", format: parquet, mode: changes}}
checkpoint: {strategy: changelog, inline_threshold_bytes: 0}
"""
SHOPS = 40_000


def deployment_in(root: Path, settings: str = "", file: str = FILE) -> Deployment:
    (root / "pipelines").mkdir()
    (root / "pipelines" / "sales.yaml").write_text(file.replace("bytes: 0}", f"bytes: 0{settings}}}"))
    return new_deployment(root, root, root / "pipelines")


def run(deployment: Deployment, number: int, *shops: int) -> CheckpointManifest:
    """Apply the sales of a day, one per shop; let the gate check the checkpoint, and return its manifest."""
    pipeline = deployment.pipeline("sales")
    chosen = np.array(shops or range(SHOPS), np.int64)
    events = pa.table({"shop": pa.array(chosen), "amount": pa.array(chosen * number)})
    begun = begin(deployment, pipeline, day(number), "test")
    publish_here(deployment, pipeline, begun.checkpoint_id, events)
    check(deployment, pipeline, begun.checkpoint_id)
    register(deployment, pipeline, begun.checkpoint_id)
    manifest = opened(deployment, number).manifest
    assert manifest is not None
    return manifest


def opened(deployment: Deployment, number: int) -> Checkpoint:
    return deployment.open(deployment.catalog().get(PipelineName("sales"), CheckpointId(number)))


def bytes_read(manifest: CheckpointManifest) -> int:
    return sum(restore.size_bytes for restore in manifest.restores if restore)


def test_a_run_reads_single_entries_of_a_large_state_for_few_events(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "REQUEST_BYTES", 10_000)
    deployment = deployment_in(tmp_path)
    assert run(deployment, 1).entries == SHOPS
    with caplog.at_level(logging.INFO, "statelib"):
        few = run(deployment, 2, 5, 6, 7, SHOPS)
    assert set(few.restored_from) == {"touched"}
    assert (few.entries, few.total_keys, few.keys_changed) == (SHOPS + 1, SHOPS + 1, 4)
    assert "only the entries that events touch are read" in caplog.text
    stored = sum(file.size_bytes for file in few.files)
    assert 0 < bytes_read(few) < stored / 3
    with caplog.at_level(logging.INFO, "statelib"):
        many = run(deployment, 3, *range(2_000))
    assert "touched" not in many.restored_from
    assert "reading 1007 touched keys one by one would cost as much as reading" in caplog.text
    values = {row["key"]: row["value"] for row in opened(deployment, 3).to_arrow("total").to_pylist()}
    assert (values[7], values[5_000], values[SHOPS]) == (
        {"n": 3, "sum": 7 + 14 + 21}, {"n": 1, "sum": 5_000}, {"n": 1, "sum": 2 * SHOPS},
    )  # fmt: skip


def test_a_small_state_is_read_as_a_whole(tmp_path: Path) -> None:
    deployment = deployment_in(tmp_path)
    run(deployment, 1, *range(100))
    assert "touched" not in run(deployment, 2, 1).restored_from


@pytest.mark.parametrize("settings", [", reads: whole", ", local_recovery: true"])
def test_settings_have_the_state_read_as_a_whole(tmp_path: Path, settings: str) -> None:
    deployment = deployment_in(tmp_path, settings)
    run(deployment, 1)
    assert "touched" not in run(deployment, 2, 1).restored_from


def test_the_state_is_read_as_a_whole_when_the_log_has_reached_its_limit(tmp_path: Path) -> None:
    deployment = deployment_in(tmp_path, ", materialize_after_checkpoints: 2, reads: touched")
    origins = [set(run(deployment, 1).restored_from)]
    origins += [set(run(deployment, number, 1, 2, 3, 4, 5).restored_from) for number in range(2, 7)]
    assert origins == [{"empty"}, {"touched"}, {"touched"}, {"remote"}, {"touched"}, {"touched"}]


def test_a_published_table_gets_the_changes_of_runs_that_read_touched_entries(tmp_path: Path) -> None:
    deployment = deployment_in(tmp_path, ", reads: touched")
    run(deployment, 1)
    manifest = run(deployment, 2, 3, SHOPS)
    assert set(manifest.restored_from) == {"touched"}
    assert {part.name for part in manifest.side_data} == {changes_name("total")}


def test_a_damaged_block_ends_the_run_and_names_its_file(tmp_path: Path) -> None:
    deployment = deployment_in(tmp_path, ", reads: touched")
    run(deployment, 1)
    tables = sorted((tmp_path / "state").rglob("shared/*"), key=lambda path: path.stat().st_size)[-2:]
    for table in tables:
        data = bytearray(table.read_bytes())
        data[: len(data) // 2] = bytes(byte ^ 1 for byte in data[: len(data) // 2])
        table.write_bytes(data)
    pipeline = deployment.pipeline("sales")
    begun = begin(deployment, pipeline, day(2), "test")
    events = pa.table({"shop": pa.array(range(100), pa.int64()), "amount": pa.array(range(100), pa.int64())})
    with pytest.raises(CorruptStateError, match=r"RocksDB's table .*checksum does not match"):
        publish_here(deployment, pipeline, begun.checkpoint_id, events)


def test_a_lost_file_ends_the_run(tmp_path: Path) -> None:
    deployment = deployment_in(tmp_path, ", reads: touched")
    run(deployment, 1)
    for table in sorted((tmp_path / "state").rglob("shared/*"), key=lambda path: path.stat().st_size)[-2:]:
        table.unlink()
    pipeline = deployment.pipeline("sales")
    begun = begin(deployment, pipeline, day(2), "test")
    with pytest.raises(NotFoundError, match="No such file"):
        publish_here(deployment, pipeline, begun.checkpoint_id, pa.table({"shop": [1], "amount": [1]}))


def test_a_spark_job_reads_touched_entries(tmp_path: Path, spark: SparkSession) -> None:
    source = 'source: {format: parquet, path: "{data}/{start:%Y-%m-%d}"'
    deployment = deployment_in(
        tmp_path, ", reads: touched", FILE.replace('source: {path: "{data}/{start}-{end}"', source)
    )
    run(deployment, 1)
    pipeline = deployment.pipeline("sales")
    begun = begin(deployment, pipeline, day(2), "test")
    (tmp_path / "2013-01-02").mkdir()
    pq.write_table(pa.table({"shop": [3, 4, SHOPS], "amount": [30, 40, 50]}), tmp_path / "2013-01-02" / "part.parquet")
    assert run_snapshot(spark, deployment, pipeline, begun.checkpoint_id) is not None
    assert check(deployment, pipeline, begun.checkpoint_id).passed
    register(deployment, pipeline, begun.checkpoint_id)
    manifest = opened(deployment, 2).manifest
    assert manifest is not None
    assert set(manifest.restored_from) == {"touched"}
    assert (manifest.entries, manifest.total_keys) == (SHOPS + 1, SHOPS + 1)
    values = {row["key"]: row["value"] for row in opened(deployment, 2).to_arrow("total").to_pylist()}
    assert [values[shop] for shop in (3, SHOPS)] == [{"n": 2, "sum": 33}, {"n": 1, "sum": 50}]
