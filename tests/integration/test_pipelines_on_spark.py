"""The whole path without Airflow: begin, Spark, gate, commit; repeat, restore, rescale; against polars."""

from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession

from demo.compare import aircraft_expected, aircraft_found, difference, routes_expected, routes_found
from statelib.errors import CorruptStateError, InvalidRequestError, NotFoundError
from statelib.flows.checkpoint.snapshot_plan import plan_snapshot
from statelib.flows.checkpoint.steps import abort, begin, check, register
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.model.handles import IncrementalRemoteKeyedStateHandle, KeyGroupsSavepointStateHandle
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState, ClaimMode
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.savepoints.verification.snapshots import verify
from statelib.spark.snapshot.driver import run_snapshot
from statelib.spark.snapshot.rehearsal import rehearse
from tests.support.worlds import day, new_deployment

ROUTE = ["origin", "dest", "carrier"]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Deployment:
    return new_deployment(tmp_path_factory.mktemp("world"), data)


def run_day(spark: SparkSession, deployment: Deployment, name: str, number: int) -> CheckpointId:
    pipeline = deployment.pipeline(name)
    begun = begin(deployment, pipeline, day(number), "test")
    assert not begun.already_completed
    assert run_snapshot(spark, deployment, pipeline, begun.checkpoint_id) is not None
    report = check(deployment, pipeline, begun.checkpoint_id)
    record = register(deployment, pipeline, begun.checkpoint_id, report.report_uri)
    assert record.state is CheckpointState.COMPLETED
    return begun.checkpoint_id


def opened(deployment: Deployment, name: str, number: int) -> Checkpoint:
    directory = deployment.catalog().get(PipelineName(name), CheckpointId(number)).directory
    return open_checkpoint(directory, storage_root=deployment.storage_root)


def before(flights: pl.DataFrame, number: int) -> pl.DataFrame:
    return flights.filter(pl.col("time_hour") < datetime(2013, 1, number + 1, tzinfo=UTC))


def assert_aircraft(deployment: Deployment, flights: pl.DataFrame, number: int, until: int) -> None:
    outcome = aircraft_found(opened(deployment, "aircraft_activity", number))
    result = difference("aircraft", aircraft_expected(before(flights, until)), outcome, ["tailnum"])
    assert result.different == 0, result.examples
    assert result.entries > 500


def test_a_rocksdb_pipeline_goes_through_savepoint_restore_and_replay(
    spark: SparkSession, deployment: Deployment, flights: pl.DataFrame
) -> None:
    """This is one story, because each step builds on the one before."""
    name = "aircraft_activity"
    pipeline = deployment.pipeline(name)
    first, second = run_day(spark, deployment, name, 1), run_day(spark, deployment, name, 2)
    assert_aircraft(deployment, flights, second, 2)
    assert all(isinstance(h, IncrementalRemoteKeyedStateHandle) for h in opened(deployment, name, second).handles())

    again = begin(deployment, pipeline, day(2), "clear and run again")
    assert (again.checkpoint_id, again.already_completed) == (second, True)

    saved = begin_savepoint(
        deployment, pipeline, format="canonical", target=None, note="n", owner="test", key="k"
    ).checkpoint_id
    run_snapshot(spark, deployment, pipeline, saved)
    check(deployment, pipeline, saved)
    register(deployment, pipeline, saved)
    assert deployment.catalog().head(PipelineName(name)).head == second
    canonical = opened(deployment, name, saved)
    assert all(isinstance(h, KeyGroupsSavepointStateHandle) for h in canonical.handles())
    assert canonical.manifest is not None
    native = opened(deployment, name, second).manifest
    assert native is not None
    for one, other in zip(canonical.manifest.statistics, native.statistics, strict=True):
        assert one.same_content(other), "the digest does not depend on the format"

    assert len(rehearse(spark, deployment, pipeline, str(first), 3)) == 3
    head = apply_restore(
        deployment, pipeline, plan_restore(deployment, pipeline, str(first), 3, ClaimMode.NO_CLAIM), "test"
    )
    assert (head.head, head.parallelism, head.generation) == (first, 3, 1)
    replayed = run_day(spark, deployment, name, 2)
    assert replayed > saved
    assert len(opened(deployment, name, replayed).handles()) == 3
    assert_aircraft(deployment, flights, replayed, 2)

    plan = plan_restore(deployment, pipeline, canonical.directory, 1, ClaimMode.NO_CLAIM)
    assert plan.checkpoint_id == saved
    apply_restore(deployment, pipeline, plan, "test")
    third = run_day(spark, deployment, name, 3)
    assert_aircraft(deployment, flights, third, 3)
    assert not list(Path(deployment.work_directory).iterdir()), "tasks leave nothing in the scratch directory"


def test_a_heap_pipeline_is_rescaled(spark: SparkSession, deployment: Deployment, flights: pl.DataFrame) -> None:
    name = "route_delays"
    pipeline = deployment.pipeline(name)
    first = run_day(spark, deployment, name, 1)
    for parallelism, number in ((3, 2), (1, 3)):
        plan = plan_restore(deployment, pipeline, str(first), parallelism, ClaimMode.NO_CLAIM)
        apply_restore(deployment, pipeline, plan, "test")
        first = run_day(spark, deployment, name, number)
        snapshot = opened(deployment, name, first)
        assert len(snapshot.handles()) == parallelism
        result = difference("routes", routes_expected(before(flights, number)), routes_found(snapshot), ROUTE)
        assert result.different == 0, result.examples
        assert not verify(snapshot).problems


def test_a_pipeline_with_a_user_function_keeps_state_across_intervals(
    spark: SparkSession, deployment: Deployment
) -> None:
    ids = [run_day(spark, deployment, "carrier_streaks", number) for number in (1, 2)]
    flights = [
        sum(
            opened(deployment, "carrier_streaks", i)
            .to_arrow("streaks")["value"]
            .combine_chunks()
            .field("flights")
            .to_pylist()
        )
        for i in ids
    ]
    assert flights[1] > flights[0] > 0


def test_the_gate_names_a_lost_file_and_the_next_run_recovers(
    spark: SparkSession, tmp_path: Path, data: Path, flights: pl.DataFrame
) -> None:
    deployment = new_deployment(tmp_path, data)
    name = "aircraft_activity"
    pipeline = deployment.pipeline(name)
    run_day(spark, deployment, name, 1)
    broken = begin(deployment, pipeline, day(2), "test").checkpoint_id
    run_snapshot(spark, deployment, pipeline, broken)
    manifest = opened(deployment, name, broken).manifest
    assert manifest is not None
    # The file is shared with no other checkpoint.
    victim = next(f for f in reversed(manifest.files) if "/" not in f.path)
    (tmp_path / "state" / name / f"chk-{broken}" / victim.path).unlink()
    with pytest.raises(CorruptStateError) as caught:
        check(deployment, pipeline, broken)
    assert caught.value.kind == "gate-failed"
    assert victim.path in caught.value.message
    assert str(victim.key_group_range) in caught.value.message
    assert abort(deployment, name, broken, "gate failed").state is CheckpointState.ABORTED
    assert_aircraft(deployment, flights, run_day(spark, deployment, name, 2), 2)


def test_a_second_attempt_after_a_dead_driver_completes_the_same_checkpoint(
    spark: SparkSession, tmp_path: Path, data: Path, flights: pl.DataFrame
) -> None:
    deployment = new_deployment(tmp_path, data)
    pipeline = deployment.pipeline("aircraft_activity")
    begun = begin(deployment, pipeline, day(1), "test").checkpoint_id
    assert plan_snapshot(deployment, pipeline, begun) is not None  # The driver dies here.
    assert run_snapshot(spark, deployment, pipeline, begun) is not None
    assert run_snapshot(spark, deployment, pipeline, begun) is None, "published already: nothing to do"
    register(deployment, pipeline, begun)
    assert_aircraft(deployment, flights, begun, 1)


def test_out_of_order_and_missing_intervals_are_refused(spark: SparkSession, tmp_path: Path, data: Path) -> None:
    deployment = new_deployment(tmp_path, data)
    pipeline = deployment.pipeline("carrier_streaks")
    run_day(spark, deployment, "carrier_streaks", 2)
    for number, kind in ((1, "interval-out-of-order"), (4, "interval-gap")):
        with pytest.raises(InvalidRequestError) as caught:
            begin(deployment, pipeline, day(number), "test")
        assert caught.value.kind == kind


def test_a_missing_source_and_missing_columns_are_named(spark: SparkSession, tmp_path: Path, data: Path) -> None:
    deployment = new_deployment(tmp_path, data)
    pipeline = deployment.pipeline("route_delays")
    begun = begin(deployment, pipeline, day(25), "test").checkpoint_id
    with pytest.raises(NotFoundError, match="2013-01-25"):
        run_snapshot(spark, deployment, pipeline, begun)
    short = tmp_path / "short" / "flights" / "2013-01-26"
    short.mkdir(parents=True)
    pl.DataFrame({"origin": ["JFK"]}).write_parquet(short / "x.parquet")
    elsewhere = new_deployment(tmp_path, tmp_path / "short")
    begun = begin(elsewhere, pipeline, day(26), "test").checkpoint_id
    with pytest.raises(InvalidRequestError, match="dest, carrier") as caught:
        run_snapshot(spark, elsewhere, pipeline, begun)
    assert caught.value.kind == "missing-column"
