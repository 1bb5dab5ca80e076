"""A native savepoint of an incremental checkpoint that a Spark job takes: the storage copies the files."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from statelib.errors import CorruptStateError
from statelib.flows.checkpoint.steps import check, register
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.savepoints.opened import Checkpoint
from statelib.spark.snapshot.driver import run_snapshot
from statelib.storage.uris import local_path
from tests.integration.test_fork import days, opened, totals, write
from tests.support.worlds import new_deployment

NAME = "trunk"


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    return new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")


def taken(spark: SparkSession, deployment: Deployment, key: str) -> CheckpointId:
    pipeline = deployment.pipeline(NAME)
    begun = begin_savepoint(deployment, pipeline, format="native", target=None, note="", owner="t", key=key)
    run_snapshot(spark, deployment, pipeline, begun.checkpoint_id)
    return begun.checkpoint_id


def tables(snapshot: Checkpoint) -> dict[tuple[int, int | None], Path]:
    """Return the larger files of RocksDB by their checksums."""
    assert snapshot.manifest is not None
    directory = Path(local_path(snapshot.directory))
    paths = {(f.crc32c, f.xxh3): f.path for f in snapshot.manifest.files if f.size_bytes > 1000}
    return {key: Path(local_path(path)) if ":" in path else directory / path for key, path in paths.items()}


def test_files_are_copied_without_being_read(deployment: Deployment, spark: SparkSession) -> None:
    write(deployment, NAME, "rocksdb", "incremental")
    days(deployment, NAME, 1, 2)
    base = opened(deployment, NAME, 2)
    whole = taken(spark, deployment, "whole")
    assert check(deployment, deployment.pipeline(NAME), whole).passed
    register(deployment, deployment.pipeline(NAME), whole)
    snapshot = opened(deployment, NAME, whole)
    assert snapshot.manifest is not None
    assert snapshot.manifest.restored_from == ("copied", "copied")
    assert totals(deployment, NAME, whole) == {2}
    assert tables(snapshot).keys() == tables(base).keys() != set()

    # A job that read the files to upload them again would compare checksums, and fail here. The gate fails instead.
    key, damaged = next(iter(tables(base).items()))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    copy = taken(spark, deployment, "damaged")
    pending = deployment.catalog().get(PipelineName(NAME), copy)
    assert tables(deployment.open(pending))[key].read_bytes() == damaged.read_bytes()
    with pytest.raises(CorruptStateError, match="crc32c expected") as caught:
        check(deployment, deployment.pipeline(NAME), copy)
    assert caught.value.kind == "gate-failed"
