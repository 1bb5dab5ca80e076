"""A chain of three checkpoints on Spark with local recovery: the second and the third read nothing of the storage."""

from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession

from demo.compare import aircraft_expected, aircraft_found, difference
from statelib.flows.wiring import Deployment
from tests.integration.test_incremental_on_spark import run_day
from tests.support.worlds import CHECKOUT, new_deployment

NAME = "aircraft_activity"


@pytest.fixture
def deployment(tmp_path: Path, data: Path) -> Deployment:
    text = (CHECKOUT / "dags" / "pipelines" / f"{NAME}.yaml").read_text()
    settings = "local_recovery: true, strategy: incremental"
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / f"{NAME}.yaml").write_text(text.replace("strategy: full", settings))
    return new_deployment(tmp_path, data, tmp_path / "pipelines")


def test_after_the_first_day_nothing_is_read_from_the_storage(
    spark: SparkSession, deployment: Deployment, flights: pl.DataFrame
) -> None:
    days = [run_day(spark, deployment, number) for number in (1, 2, 3)]
    assert [d.manifest.restored_from for d in days if d.manifest] == [("empty",) * 2, ("local",) * 2, ("local",) * 2]
    seen = flights.filter(pl.col("time_hour") < pl.datetime(2013, 1, 4, time_zone="UTC"))
    result = difference(NAME, aircraft_expected(seen), aircraft_found(days[-1]), ["tailnum"])
    assert result.different == 0, result.examples
    assert result.entries > 500
    path = deployment.local_states(deployment.pipeline(NAME)).path
    assert sorted(p.name for p in path.iterdir()) == ["chk-2", "chk-3"]
