"""The paths that hold the events of a data interval. Every way to start a run uses this module.

The source has one path per interval of the schedule. A data interval may be longer than
that (``--whole``, or a run that was triggered by hand): then it consists of several intervals of the schedule, and the
paths of all of them are read. An interval that does not consist of intervals of the schedule is refused, unless the
path names it exactly.
"""

from dataclasses import dataclass

from statelib.definition.declared import DeclaredPipeline
from statelib.definition.source.intervals import cut
from statelib.definition.source_templates import names_exactly
from statelib.errors import InvalidRequestError
from statelib.model.checkpoint import DataInterval
from statelib.model.moments import moment_of


@dataclass(frozen=True)
class SourcePart:
    """One interval, and the path of its events."""

    interval: DataInterval
    path: str


def source_parts(pipeline: DeclaredPipeline, data: str, interval: DataInterval) -> tuple[SourcePart, ...]:
    """Return the parts of a data interval, oldest first. ``data``: the value of ``{data}`` in the path.

    Raises InvalidRequestError: ``interval-not-of-schedule`` if the schedule and path do not determine the paths of the
    interval's events; ``source-not-bounded`` if two of its parts have the same path."""
    source, schedule = pipeline.source, pipeline.schedule
    intervals = cut(schedule.cron, interval) if schedule else None
    if intervals is None:
        if not _names_alone(pipeline, interval):
            raise _not_of_schedule(pipeline, interval)
        intervals = (interval,)
    parts = tuple(SourcePart(each, source.location(data, each)) for each in intervals)
    _check_distinct(pipeline, parts)
    return parts


def _names_alone(pipeline: DeclaredPipeline, interval: DataInterval) -> bool:
    """Return whether the path alone identifies this interval. With a schedule, the path must contain both bounds: a
    directory of a weekly schedule is named by its Monday, but has the events of the week, not of that day."""
    path = pipeline.source.path
    both = "{start" in path and "{end" in path
    return names_exactly(path, interval) and (both or pipeline.schedule is None)


def _check_distinct(pipeline: DeclaredPipeline, parts: tuple[SourcePart, ...]) -> None:
    seen: dict[str, DataInterval] = {}
    for part in parts:
        other = seen.setdefault(part.path, part.interval)
        if other is not part.interval:
            raise InvalidRequestError(
                f"pipeline {pipeline.name}: {part.path} is the path of two intervals, {range_text(other)} and "
                f"{range_text(part.interval)}: its events would be applied twice",
                kind="source-not-bounded",
                hint="write more of {start} or {end} in source.path",
            )


def _not_of_schedule(pipeline: DeclaredPipeline, interval: DataInterval) -> InvalidRequestError:
    schedule = pipeline.schedule
    why = (
        f"it does not consist of intervals of the schedule {schedule.cron!r}"
        if schedule
        else "the pipeline has no schedule, and the path alone does not name it"
    )
    hint = (
        "give it the start of one interval of the schedule and the end of one"
        if schedule
        else "give the pipeline a schedule, let the interval be the one unit of time that the path names, "
        "or name both {start} and {end} in source.path"
    )
    return InvalidRequestError(
        f"pipeline {pipeline.name}: data interval {range_text(interval)}: source.path {pipeline.source.path!r} "
        f"does not determine where its events are: {why}",
        kind="interval-not-of-schedule",
        hint=hint,
    )


def range_text(interval: DataInterval) -> str:
    """Return an interval as text, in UTC. Fractions of a second appear only if they are not zero."""
    return f"[{moment_of(interval.start_ms).isoformat()}, {moment_of(interval.end_ms).isoformat()})"
