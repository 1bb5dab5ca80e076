"""A trial of a pipeline: some events of its newest interval are read by Spark and applied to an empty state in memory.

It finds what a file alone does not show: a table, column or type that the source does not have, an expression that
Spark refuses, a function that fails. Nothing is written."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from statelib.definition.pipeline import Pipeline
from statelib.definition.problems import DefinitionError
from statelib.definition.source.intervals import intervals
from statelib.definition.source.parts import range_text
from statelib.definition.source.ticks import Ticks
from statelib.errors import InvalidRequestError, StatelibError
from statelib.flows.checkpoint.next_intervals import applied_position, is_over, next_intervals
from statelib.flows.wiring import Deployment
from statelib.functions.change_logs.changes import APPLIED, CHANGE, RETRACTED
from statelib.model.checkpoint import DataInterval
from statelib.model.task_error import TaskError, raising_task_errors
from statelib.storage.registry import new_attempt
from statelib.testing.local_run import LocalRun

MOST_EVENTS = 1000
"""The most events of each source that are read."""


@dataclass(frozen=True)
class TriedSource:
    """A source of a pipeline that was read. ``source``: its field in the file. ``events``: the number of its events
    that were applied."""

    pipeline: str
    source: str
    interval: str
    events: int


def try_pipeline(
    spark: Any, deployment: Deployment, pipeline: Pipeline, bounds: tuple[int | None, int | None]
) -> tuple[list[TriedSource], list[DefinitionError]]:
    """Try a pipeline with events of the first interval within ``bounds``, by default of its newest one that is over.
    Return (sources that were read and applied, an error for each other one)."""
    tried: list[TriedSource] = []
    faults: list[DefinitionError] = []
    try:
        interval = _interval(deployment, pipeline, bounds)
    except StatelibError as error:
        return [], [_fault(pipeline, error)]
    for field in pipeline.inputs:
        try:
            events = _events(spark, deployment, pipeline, interval, field)
            LocalRun(pipeline).apply(events, interval.end_ms)
        except StatelibError as error:
            faults.append(_fault(pipeline, error))
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            raised = TaskError.of(error, subtask=0)
            text = f"a function failed on events of {field}: {raised.type}: {raised.message}"
            faults.append(DefinitionError(pipeline.path, f"{pipeline.path}: {text}", kind="bad-function"))
        else:
            tried.append(TriedSource(pipeline.name, field, range_text(interval), len(events)))
    return tried, faults


def _interval(deployment: Deployment, pipeline: Pipeline, bounds: tuple[int | None, int | None]) -> DataInterval:
    """Return the first interval within ``bounds``. Without bounds: the next one of the pipeline, or the last one that
    it has applied if the next one is not over.

    Raises InvalidRequestError as :func:`next_intervals`."""
    chosen = next_intervals(deployment, pipeline, *bounds)
    if not chosen:
        until = "of the schedule" if bounds[1] is None else "that end by then"
        raise InvalidRequestError(
            f"the state has all intervals {until}", kind="bad-interval", hint="choose one of them with --start"
        )
    schedule, applied = pipeline.cron_schedule, applied_position(deployment, pipeline).interval
    if bounds == (None, None) and schedule is not None and applied is not None and not is_over(pipeline, chosen):
        start_ms = Ticks(schedule.cron, schedule.zone).last_before(applied.end_ms)
        return next(intervals(schedule, start_ms))
    return chosen[0]


def _events(spark: Any, deployment: Deployment, pipeline: Pipeline, interval: DataInterval, field: str) -> pa.Table:
    """Return some events of one source. Those that take earlier events back are applied instead, because the earlier
    ones need not be among them."""
    from statelib.spark.events.source import SourcePlaces, read_interval  # other commands start without Spark
    from statelib.spark.events.tables.incremental import table_reads
    from statelib.spark.session.job_failures import OF_SPARK, as_own

    others, token = [other for other in pipeline.inputs if other != field], new_attempt()
    applied, places = applied_position(deployment, pipeline), SourcePlaces.of(deployment)
    try:
        with raising_task_errors(token):
            reads = table_reads(pipeline, deployment.data, interval, applied, token, without=others)
            events = read_interval(spark, pipeline, places, interval, reads=reads, without=others)
            events = events.limit(MOST_EVENTS).toArrow()
    except OF_SPARK as error:
        raise as_own(error) or error from error
    if CHANGE not in events.column_names:
        return events
    applied = pc.if_else(pc.equal(events[CHANGE], RETRACTED), pa.scalar(APPLIED, pa.int8()), events[CHANGE])
    return events.set_column(events.column_names.index(CHANGE), CHANGE, applied)


def _fault(pipeline: Pipeline, error: StatelibError) -> DefinitionError:
    return DefinitionError(pipeline.path, f"{pipeline.path}: {error.message}", error.hint, error.kind)
