"""Which data intervals a pipeline is to apply: those that are asked for, or the one after the last."""

from statelib.definition.pipeline import Pipeline
from statelib.definition.source.intervals import intervals
from statelib.errors import InvalidRequestError
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval
from statelib.model.ids import PipelineName
from statelib.model.moments import epoch_ms
from statelib.savepoints.opened import open_checkpoint


def next_intervals(
    deployment: Deployment, pipeline: Pipeline, start_ms: int | None, end_ms: int | None, *, whole: bool = False
) -> list[DataInterval]:
    """The intervals of the schedule from ``start_ms`` to ``end_ms``; ``whole``: those two as one interval.

    Without a start, from where the state has come to, or from the schedule's start if there is no state. Without an
    end, the first one only. Raises InvalidRequestError: ``no-schedule`` and ``no-start`` where a bound has to be said,
    ``bad-interval``, ``bad-cron``."""
    start = _start(deployment, pipeline) if start_ms is None else start_ms
    if start is None:
        raise InvalidRequestError(
            f"pipeline {pipeline.name} has no state and no schedule: nothing says where its first interval begins",
            kind="no-start",
            hint="say it with --start, such as --start 2026-01-01",
        )
    if end_ms is not None and end_ms <= start:
        at = "the state has come to that time" if start_ms is None else "it must be after --start"
        raise InvalidRequestError(f"--end: no interval of {pipeline.name} ends by then: {at}", kind="bad-interval")
    if whole or pipeline.schedule is None:
        if end_ms is None:
            raise InvalidRequestError(
                f"pipeline {pipeline.name}: nothing says where the interval ends",
                kind="no-schedule",
                hint="say it with --end, or give the pipeline file a schedule",
            )
        return [DataInterval(start, end_ms)]
    found = list(intervals(pipeline.schedule.cron, start, end_ms))
    if not found:
        raise InvalidRequestError(
            f"no interval of the schedule {pipeline.schedule.cron!r} fits into that range", kind="bad-interval"
        )
    return found


def _start(deployment: Deployment, pipeline: Pipeline) -> int | None:
    """Where the state has come to; else where the schedule begins."""
    catalog = deployment.catalog()
    head = catalog.head(PipelineName(pipeline.name)).head
    if head is not None:
        record = catalog.get(PipelineName(pipeline.name), head)
        position = open_checkpoint(record.directory, own=True, storage_root=deployment.storage_root).position()
        if position is not None and position.interval is not None:
            return position.interval.end_ms
    return epoch_ms(pipeline.schedule.start) if pipeline.schedule else None
