"""Aircraft activity on Spark, with checkpoints that share files: the same state as polars, and less to write a day."""

import itertools
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession

from demo.compare import aircraft_expected, aircraft_found, destinations_expected, destinations_found, difference
from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.handles import ChangelogStateBackendHandleImpl, IncrementalRemoteKeyedStateHandle
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.verification.snapshots import verify
from statelib.spark.snapshot.driver import run_snapshot
from tests.integration.shop_cli import said
from tests.support.worlds import CHECKOUT, day, new_deployment

NAME = "aircraft_activity"


HANDLES = {"incremental": IncrementalRemoteKeyedStateHandle, "changelog": ChangelogStateBackendHandleImpl}


@pytest.fixture(params=HANDLES)
def strategy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def deployment(tmp_path: Path, data: Path, strategy: str) -> Deployment:
    text = (CHECKOUT / "dags" / "pipelines" / f"{NAME}.yaml").read_text()
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / f"{NAME}.yaml").write_text(text.replace("strategy: full", f"strategy: {strategy}"))
    return new_deployment(tmp_path, data, tmp_path / "pipelines")


def run_day(spark: SparkSession, deployment: Deployment, number: int) -> Checkpoint:
    """Run a day as the DAG does, gate included."""
    pipeline = deployment.pipeline(NAME)
    checkpoint_id = begin(deployment, pipeline, day(number), "test").checkpoint_id
    run_snapshot(spark, deployment, pipeline, checkpoint_id)
    register(deployment, pipeline, checkpoint_id, check(deployment, pipeline, checkpoint_id).report_uri)
    return resolve(deployment, f"{NAME}/{checkpoint_id}")


def shared(checkpoint: Checkpoint) -> set[str]:
    assert checkpoint.manifest is not None
    return {f.path for f in checkpoint.manifest.files if f"/{NAME}/shared/" in f.path}


def test_three_days_have_the_same_state_as_polars_and_upload_less(
    spark: SparkSession, deployment: Deployment, flights: pl.DataFrame, strategy: str
) -> None:
    days = [run_day(spark, deployment, number) for number in (1, 2, 3)]
    for number, checkpoint in enumerate(days, 1):
        assert all(isinstance(handle, HANDLES[strategy]) for handle in checkpoint.handles())
        seen = flights.filter(pl.col("time_hour") < datetime(2013, 1, number + 1, tzinfo=UTC))
        for result in (
            difference(NAME, aircraft_expected(seen), aircraft_found(checkpoint), ["tailnum"]),
            difference(NAME, destinations_expected(seen), destinations_found(checkpoint), ["tailnum", "dest"]),
        ):
            assert result.different == 0, result.examples
            assert result.entries > 500
        assert not verify(checkpoint, scratch=deployment.work_directory).problems

    for before, after in itertools.pairwise(days):
        assert shared(before) & shared(after), "files of the day before are used again"
        assert after.manifest is not None
        assert after.manifest.uploaded_bytes is not None
        assert 0 < after.manifest.uploaded_bytes < sum(f.size_bytes for f in after.manifest.files)

    output = said(deployment, "checkpoints", "show", f"{NAME}/2", columns=400)
    assert all(path in output for path in shared(days[1]))
    assert "written for this checkpoint" in output
    assert said(deployment, "verify", f"{NAME}/2").startswith("whole")
    assert said(deployment, "verify", f"{deployment.storage_root}/{NAME}/chk-3").startswith("whole")
