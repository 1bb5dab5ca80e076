"""The data intervals that a run applies: those of a requested range, or the one after the last applied interval."""

from collections.abc import Callable, Sequence

from statelib.catalog.commit.admission import discarded
from statelib.definition.parts.model import Schedule
from statelib.definition.pipeline import Pipeline
from statelib.definition.source.intervals import first_intervals, intervals
from statelib.definition.source.parts import range_text
from statelib.errors import InvalidRequestError, RetryableError
from statelib.flows.lifecycle.renaming import former_head
from statelib.flows.wiring import Deployment, now_ms
from statelib.model.checkpoint import NOTHING_APPLIED, DataInterval, SourcePosition
from statelib.model.moments import epoch_ms
from statelib.model.record import CheckpointState


def next_intervals(
    deployment: Deployment, pipeline: Pipeline, start_ms: int | None, end_ms: int | None, *, whole: bool = False
) -> list[DataInterval]:
    """Return the intervals of the schedule from ``start_ms`` to ``end_ms``. ``whole``: return the range as one
    interval.

    Without a start, they begin at the end of the last applied interval, and there are none if the state has all that
    end by ``end_ms``; if there is no state, they begin at the first moment of the schedule from its start on. Without
    an end, only the first one is returned. None begins after the schedule's end. Raises InvalidRequestError:
    ``no-schedule`` and ``no-start`` if a bound must be given, ``bad-interval``, ``bad-cron``."""
    applied = applied_position(deployment, pipeline).interval if start_ms is None else None
    start = first_start(pipeline, applied) if start_ms is None else start_ms
    if start is None:
        raise InvalidRequestError(
            f"pipeline {pipeline.name} has no state and no schedule: the start of its first interval is unknown",
            kind="no-start",
            hint="give it with --start, such as --start 2026-01-01",
        )
    if end_ms is not None and end_ms <= start:
        if applied is not None:
            return []
        at = "its schedule begins later" if start_ms is None else "it must be after --start"
        raise InvalidRequestError(f"--end: no interval of {pipeline.name} ends by then: {at}", kind="bad-interval")
    if whole or pipeline.cron_schedule is None:
        if end_ms is None:
            raise InvalidRequestError(
                f"pipeline {pipeline.name}: the end of the interval is unknown",
                kind="no-schedule",
                hint="give it with --end, or give the pipeline file a cron schedule",
            )
        return [DataInterval(start, end_ms)]
    schedule = pipeline.cron_schedule
    scheduled = [each for each in intervals(schedule, start, end_ms) if not _is_ended(schedule, each)]
    if not scheduled and applied is None:
        raise InvalidRequestError(
            f"no interval of the schedule {schedule.text!r} fits into that range"
            + (f", and none begins after schedule.end, {schedule.end.isoformat()}" if schedule.end else ""),
            kind="bad-interval",
        )
    return scheduled


def check_over(
    pipeline: Pipeline, chosen: Sequence[DataInterval], *, assume_ready: bool, clock: Callable[[], int] = now_ms
) -> None:
    """Raise RetryableError (``interval-not-over``) unless :func:`is_over`. ``assume_ready``: the caller has said that
    the events are complete."""
    now = clock()
    if assume_ready or is_over(pipeline, chosen, lambda: now):
        return
    first = next(interval for interval in chosen if interval.end_ms > now)
    raise RetryableError(
        f"pipeline {pipeline.name}: the interval {range_text(first)} is not over: its later events would never be "
        "applied",
        kind="interval-not-over",
        hint="run it when it is over, or, if you know that its events are complete, with statelib run --assume-ready",
    )


def is_over(pipeline: Pipeline, chosen: Sequence[DataInterval], clock: Callable[[], int] = now_ms) -> bool:
    """Return whether no interval ends in the future, so that no later event of theirs is lost. Those of incremental
    sources never are: the next run reads all commits that this one has not read."""
    reads_later = all(source.incremental for source in pipeline.inputs.values())
    return reads_later or not chosen or chosen[-1].end_ms <= clock()


def applied_position(deployment: Deployment, pipeline: Pipeline) -> SourcePosition:
    """Return the position of the pipeline's head, or of that of a former name from which the next run continues;
    :data:`NOTHING_APPLIED` if there is no state. Raises InvalidRequestError (``state-discarded``)."""
    catalog = deployment.catalog()
    head = former_head(deployment, pipeline) or catalog.head(pipeline.name)
    if head.head is None:
        return NOTHING_APPLIED
    record = catalog.get(head.pipeline, head.head)
    if record.state is not CheckpointState.COMPLETED:
        raise discarded(head)
    return deployment.open(record).position() or NOTHING_APPLIED


def end_of_state(deployment: Deployment, pipeline: Pipeline) -> int | None:
    """Return the end of the last applied interval; without state, the start of the schedule, if there is one."""
    return first_start(pipeline, applied_position(deployment, pipeline).interval)


def first_start(pipeline: Pipeline, applied: DataInterval | None) -> int | None:
    """Return the start of the interval after the ``applied`` one; if there is none, the start of the schedule."""
    if applied is not None:
        return applied.end_ms
    if pipeline.cron_schedule is not None:
        return first_intervals(pipeline.cron_schedule, epoch_ms(pipeline.cron_schedule.start), 1)[0].start_ms
    return epoch_ms(pipeline.schedule.start) if pipeline.schedule else None


def _is_ended(schedule: Schedule, interval: DataInterval) -> bool:
    """Return whether an interval begins after the schedule's end."""
    return schedule.end is not None and interval.start_ms > epoch_ms(schedule.end)
