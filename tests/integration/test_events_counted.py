"""The number of events of the source. It comes from the files that subtasks read by themselves, or is counted while
events are read. Spark counts them again only if that number cannot be right."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import EventCounts
from statelib.spark.session import either_kind
from statelib.spark.snapshot import driver
from tests.support.worlds import CHECKOUT, day, new_deployment

NAME = "route_delays"


def jobs(spark: SparkSession) -> int:
    """Return the number of Spark jobs that the session has run."""
    return int(spark._jsc.sc().statusStore().jobsList(None).size())


def counted(spark: SparkSession, deployment: Deployment) -> tuple[EventCounts, int]:
    """Take the first day's checkpoint, which passes the gate. Return the events of it and the number of Spark jobs."""
    pipeline, before = deployment.pipeline(NAME), jobs(spark)
    checkpoint_id = begin(deployment, pipeline, day(1), "test").checkpoint_id
    driver.run_snapshot(spark, deployment, pipeline, checkpoint_id)
    taken = jobs(spark) - before
    report = check(deployment, pipeline, checkpoint_id)
    assert report.passed
    register(deployment, pipeline, checkpoint_id, report.report_uri)
    manifest = resolve(deployment, f"{NAME}/{checkpoint_id}").manifest
    assert manifest is not None
    return manifest.events, taken


def moved_by_spark(root: Path, data: Path) -> Deployment:
    """Return a pipeline whose source path is a pattern, which subtasks do not read by themselves."""
    pipelines = root / "pipelines"
    pipelines.mkdir(parents=True)
    text = (CHECKOUT / "dags" / "pipelines" / f"{NAME}.yaml").read_text()
    (pipelines / f"{NAME}.yaml").write_text(text.replace("{start:%Y-%m-%d}", "{start:%Y-%m-%d}/[!_]*.parquet"))
    return new_deployment(root, data, pipelines)


def test_the_source_of_a_day_is_read_once(spark: SparkSession, tmp_path: Path, data: Path) -> None:
    unmoved, moved = new_deployment(tmp_path / "here", data), moved_by_spark(tmp_path / "moved", data)
    events, jobs_unmoved = counted(spark, unmoved)
    assert events.read == events.applied + events.null_key
    assert events.read == spark.read.parquet(f"{data}/flights/2013-01-01").count() > 500
    again, jobs_moved = counted(spark, moved)
    assert again == events
    assert 1 == jobs_unmoved < jobs_moved
    assert statistics(unmoved) == statistics(moved)


def statistics(deployment: Deployment) -> list[tuple[bytes, bytes]]:
    """Return counts and digests of the key groups of the first checkpoint."""
    manifest = resolve(deployment, f"{NAME}/1").manifest
    assert manifest is not None
    return [(each.entries.tobytes(), each.digests.tobytes()) for each in manifest.statistics]


def test_events_of_a_task_that_ran_twice_are_counted_once(
    spark: SparkSession, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, once = counted(spark, moved_by_spark(tmp_path / "once", data))
    observed = either_kind._observed_in_jvm
    monkeypatch.setattr(either_kind, "_observed_in_jvm", lambda run, name: (observed(run, name) or 0) + 1)
    events, more = counted(spark, moved_by_spark(tmp_path / "twice", data))
    assert events == expected
    assert more > once, "the source was asked"
