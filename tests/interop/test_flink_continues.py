"""History in batches, the rest as a stream: a Flink job starts from the state that statelib computed."""

from datetime import datetime
from pathlib import Path

import polars as pl

from demo.prepare import raw_flights
from statelib.definition.columns import event_schema
from statelib.flows.checkpoint.steps import register
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.model.ids import CheckpointId
from statelib.savepoints.lines import export_lines
from statelib.savepoints.opened import open_checkpoint
from tests.interop.flink_kit import Case, Flink
from tests.interop.seen_lines import comparable, operator_to_see
from tests.support.worlds import checkpoint_of, day, new_deployment, publish_here

HISTORY, ALL = range(1, 5), range(1, 9)
"""Numbers of days of January 2013: those that statelib applies before the savepoint, and all."""


def test_a_flink_job_continues_from_a_savepoint_with_the_same_result_as_batches(tmp_path: Path, flink_1: Flink) -> None:
    flights = raw_flights().filter(pl.col("tailnum").is_not_null())
    deployment = new_deployment(tmp_path, tmp_path)
    pipeline = deployment.pipeline("aircraft_activity")

    def apply(number: int) -> CheckpointId:
        part = of_day(flights, number)
        events = part.select(event_schema(pipeline).names).to_arrow().cast(event_schema(pipeline))
        return checkpoint_of(deployment, "aircraft_activity", number, events)

    for number in HISTORY:
        apply(number)
    begun = begin_savepoint(deployment, pipeline, format="canonical", target=None, note="", owner="test", key="k")
    publish_here(deployment, pipeline, begun.checkpoint_id)
    saved = open_checkpoint(register(deployment, pipeline, begun.checkpoint_id).directory)
    last = [apply(number) for number in ALL[len(HISTORY) :]][-1]
    batches = open_checkpoint(deployment.catalog().get(pipeline.name, last).directory)

    rest = pl.concat([of_day(flights, number) for number in ALL[len(HISTORY) :]])
    (coming := tmp_path / "flights.jsonl").write_text(
        rest.with_columns(pl.col("time_hour").dt.epoch("us")).write_ndjson()
    )
    operator = operator_to_see(pipeline.name, saved.schema())
    directory = Path(saved.directory.removeprefix("file://"))
    cases = [Case(directory, (operator,), backend, 2, 128) for backend in ("hashmap", "rocksdb")]
    expected = comparable(export_lines(batches, None, str(tmp_path)))
    assert expected != comparable(export_lines(saved, None, str(tmp_path)))
    for restored in flink_1.restore(cases, coming):
        assert restored.error == ""
        assert comparable(restored.lines) == expected


def of_day(flights: pl.DataFrame, number: int) -> pl.DataFrame:
    start, end = (datetime.fromtimestamp(ms / 1000).astimezone() for ms in (day(number).start_ms, day(number).end_ms))
    return flights.filter(pl.col("time_hour").is_between(start, end, closed="left"))
