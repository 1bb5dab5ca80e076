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
from statelib.savepoints.verification import verify
from statelib.spark.snapshot.driver import run_snapshot
from statelib.spark.snapshot.rehearsal import rehearse
from tests.support.worlds import day, new_deployment

ROUTE = ["origin", "dest", "carrier"]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Deployment:
    return new_deployment(tmp_path_factory.mktemp("world"), data)


def run_day(spark: SparkSession, here: Deployment, name: str, number: int) -> CheckpointId:
    pipeline = here.pipeline(name)
    begun = begin(here, pipeline, day(number), "test")
    assert not begun.already_completed
    assert run_snapshot(spark, here, pipeline, begun.checkpoint_id) is not None
    report = check(here, pipeline, begun.checkpoint_id)
    record = register(here, pipeline, begun.checkpoint_id, report.report_uri)
    assert record.state is CheckpointState.COMPLETED
    return begun.checkpoint_id


def opened(here: Deployment, name: str, number: int) -> Checkpoint:
    directory = here.catalog().get(PipelineName(name), CheckpointId(number)).directory
    return open_checkpoint(directory, storage_root=here.storage_root)


def before(flights: pl.DataFrame, number: int) -> pl.DataFrame:
    return flights.filter(pl.col("time_hour") < datetime(2013, 1, number + 1, tzinfo=UTC))


def assert_aircraft(here: Deployment, flights: pl.DataFrame, number: int, until: int) -> None:
    found = aircraft_found(opened(here, "aircraft_activity", number))
    result = difference("aircraft", aircraft_expected(before(flights, until)), found, ["tailnum"])
    assert result.different == 0, result.examples
    assert result.keys > 500


def test_rocksdb_pipeline_through_savepoint_restore_and_replay(
    spark: SparkSession, here: Deployment, flights: pl.DataFrame
) -> None:
    """One story, because each step builds on the one before."""
    name = "aircraft_activity"
    pipeline = here.pipeline(name)
    first, second = run_day(spark, here, name, 1), run_day(spark, here, name, 2)
    assert_aircraft(here, flights, second, 2)
    assert all(isinstance(h, IncrementalRemoteKeyedStateHandle) for h in opened(here, name, second).handles())

    again = begin(here, pipeline, day(2), "clear and run again")
    assert (again.checkpoint_id, again.already_completed) == (second, True)

    saved = begin_savepoint(
        here, pipeline, format="canonical", target=None, note="n", owner="test", key="k"
    ).checkpoint_id
    run_snapshot(spark, here, pipeline, saved)
    check(here, pipeline, saved)
    register(here, pipeline, saved)
    assert here.catalog().head(PipelineName(name)).head == second
    canonical = opened(here, name, saved)
    assert all(isinstance(h, KeyGroupsSavepointStateHandle) for h in canonical.handles())
    assert canonical.manifest is not None
    native = opened(here, name, second).manifest
    assert native is not None
    for one, other in zip(canonical.manifest.statistics, native.statistics, strict=True):
        assert one.same_content(other), "the digest does not depend on the format"

    assert len(rehearse(spark, here, pipeline, str(first), 3)) == 3
    head = apply_restore(here, pipeline, plan_restore(here, pipeline, str(first), 3, ClaimMode.NO_CLAIM), "test")
    assert (head.head, head.parallelism, head.generation) == (first, 3, 1)
    replayed = run_day(spark, here, name, 2)
    assert replayed > saved
    assert len(opened(here, name, replayed).handles()) == 3
    assert_aircraft(here, flights, replayed, 2)

    plan = plan_restore(here, pipeline, canonical.directory, 1, ClaimMode.NO_CLAIM)
    assert plan.checkpoint_id == saved
    apply_restore(here, pipeline, plan, "test")
    third = run_day(spark, here, name, 3)
    assert_aircraft(here, flights, third, 3)
    assert not list(Path(here.work_directory).iterdir()), "tasks leave nothing in the scratch directory"


def test_heap_pipeline_rescales(spark: SparkSession, here: Deployment, flights: pl.DataFrame) -> None:
    name = "route_delays"
    pipeline = here.pipeline(name)
    first = run_day(spark, here, name, 1)
    for parallelism, number in ((3, 2), (1, 3)):
        plan = plan_restore(here, pipeline, str(first), parallelism, ClaimMode.NO_CLAIM)
        apply_restore(here, pipeline, plan, "test")
        first = run_day(spark, here, name, number)
        found = opened(here, name, first)
        assert len(found.handles()) == parallelism
        result = difference("routes", routes_expected(before(flights, number)), routes_found(found), ROUTE)
        assert result.different == 0, result.examples
        assert not verify(found).problems


def test_user_function_pipeline_keeps_state_across_intervals(spark: SparkSession, here: Deployment) -> None:
    ids = [run_day(spark, here, "carrier_streaks", number) for number in (1, 2)]
    flights = [
        sum(
            opened(here, "carrier_streaks", i)
            .to_arrow("streaks")["value"]
            .combine_chunks()
            .field("flights")
            .to_pylist()
        )
        for i in ids
    ]
    assert flights[1] > flights[0] > 0


def test_lost_file_is_named_by_the_gate_and_the_next_run_recovers(
    spark: SparkSession, tmp_path: Path, data: Path, flights: pl.DataFrame
) -> None:
    here = new_deployment(tmp_path, data)
    name = "aircraft_activity"
    pipeline = here.pipeline(name)
    run_day(spark, here, name, 1)
    broken = begin(here, pipeline, day(2), "test").checkpoint_id
    run_snapshot(spark, here, pipeline, broken)
    manifest = opened(here, name, broken).manifest
    assert manifest is not None
    victim = next(f for f in reversed(manifest.files) if "/" not in f.path)  # its own, shared with no other
    (tmp_path / "state" / name / f"chk-{broken}" / victim.path).unlink()
    with pytest.raises(CorruptStateError) as caught:
        check(here, pipeline, broken)
    assert caught.value.kind == "gate-failed"
    assert victim.path in caught.value.message
    assert str(victim.key_group_range) in caught.value.message
    assert abort(here, name, broken, "gate failed").state is CheckpointState.ABORTED
    assert_aircraft(here, flights, run_day(spark, here, name, 2), 2)


def test_second_attempt_after_a_dead_driver_completes_the_same_checkpoint(
    spark: SparkSession, tmp_path: Path, data: Path, flights: pl.DataFrame
) -> None:
    here = new_deployment(tmp_path, data)
    pipeline = here.pipeline("aircraft_activity")
    begun = begin(here, pipeline, day(1), "test").checkpoint_id
    assert plan_snapshot(here, pipeline, begun) is not None  # the driver dies here
    assert run_snapshot(spark, here, pipeline, begun) is not None
    assert run_snapshot(spark, here, pipeline, begun) is None, "published already: nothing to do"
    register(here, pipeline, begun)
    assert_aircraft(here, flights, begun, 1)


def test_out_of_order_and_missing_intervals_are_refused(spark: SparkSession, tmp_path: Path, data: Path) -> None:
    here = new_deployment(tmp_path, data)
    pipeline = here.pipeline("carrier_streaks")
    run_day(spark, here, "carrier_streaks", 2)
    for number, kind in ((1, "interval-out-of-order"), (4, "interval-gap")):
        with pytest.raises(InvalidRequestError) as caught:
            begin(here, pipeline, day(number), "test")
        assert caught.value.kind == kind


def test_missing_source_and_missing_column_are_named(spark: SparkSession, tmp_path: Path, data: Path) -> None:
    here = new_deployment(tmp_path, data)
    pipeline = here.pipeline("route_delays")
    begun = begin(here, pipeline, day(25), "test").checkpoint_id
    with pytest.raises(NotFoundError, match="2013-01-25"):
        run_snapshot(spark, here, pipeline, begun)
    short = tmp_path / "short" / "flights" / "2013-01-26"
    short.mkdir(parents=True)
    pl.DataFrame({"origin": ["JFK"]}).write_parquet(short / "x.parquet")
    elsewhere = new_deployment(tmp_path, tmp_path / "short")
    begun = begin(elsewhere, pipeline, day(26), "test").checkpoint_id
    with pytest.raises(InvalidRequestError, match="dest, carrier") as caught:
        run_snapshot(spark, elsewhere, pipeline, begun)
    assert caught.value.kind == "missing-column"
