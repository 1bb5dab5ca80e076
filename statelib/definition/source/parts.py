"""Which paths hold the events of a data interval: the one place that decides it, for every way into a run.

A source is laid out by the schedule: each of its intervals has a path of its own. A data interval may be wider than
that (``--whole``, a run that was triggered by hand): then it consists of several intervals of the schedule, and each
of their paths is read. An interval that the schedule does not cut is refused, unless its path names it exactly.
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
    """One interval whose events lie under one path."""

    interval: DataInterval
    path: str


def source_parts(pipeline: DeclaredPipeline, data: str, interval: DataInterval) -> tuple[SourcePart, ...]:
    """Return the parts of a data interval, oldest first. ``data``: what ``{data}`` stands for.

    Raises InvalidRequestError: ``interval-not-of-schedule`` where the pipeline file does not say which paths hold the
    interval's events; ``source-not-bounded`` where two of its parts have the same path."""
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
    """Whether the path says by itself that it holds the events of this interval. Beside a schedule only both bounds
    do: a directory of a weekly schedule is named by its Monday, and is not that day's."""
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
        f"no intervals of the schedule {schedule.cron!r} make it up"
        if schedule
        else "the pipeline has no schedule, and the path alone does not name it"
    )
    hint = (
        "let it begin and end where intervals of the schedule do"
        if schedule
        else "give the pipeline a schedule, let the interval be the one unit of time that the path names, "
        "or name both {start} and {end} in source.path"
    )
    return InvalidRequestError(
        f"pipeline {pipeline.name}: data interval {range_text(interval)}: source.path {pipeline.source.path!r} "
        f"does not say where its events lie: {why}",
        kind="interval-not-of-schedule",
        hint=hint,
    )


def range_text(interval: DataInterval) -> str:
    """An interval in UTC, to the second; milliseconds where there are some."""
    return f"[{moment_of(interval.start_ms).isoformat()}, {moment_of(interval.end_ms).isoformat()})"
