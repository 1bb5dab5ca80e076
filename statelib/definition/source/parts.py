"""The places that hold the events of a data interval. Every way to start a run uses this module.

The source has one place per interval of the schedule: a path, a table or a query. A source that is read by the commits
of its table has one place for all intervals. A data interval may be longer than
that (``--whole``, or a run that was triggered by hand): then it consists of several intervals of the schedule, and the
places of all of them are read. An interval that does not consist of intervals of the schedule is refused, unless the
templates of the source name it exactly. Without a schedule by time, it may also consist of several units of time that
they name, such as the days that several updates of an asset named.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo

from statelib.definition.declared import DeclaredPipeline
from statelib.definition.parts.source import Source
from statelib.definition.source.intervals import cut
from statelib.definition.source.templates import at_interval, names_exactly, units_of
from statelib.errors import InvalidRequestError
from statelib.model.checkpoint import DataInterval
from statelib.model.moments import moment_of


@dataclass(frozen=True)
class SourcePart:
    """One interval of one source, and where its events are: the texts of the source's templates for this interval.
    ``field``: the source's field in the pipeline file, ``source`` or ``sources.<name>``."""

    source: Source
    field: str
    interval: DataInterval
    path: str | None
    table: str | None
    where: str | None
    options: tuple[tuple[str, str], ...]

    @property
    def texts(self) -> tuple[object, ...]:
        """The texts of all templates. Two parts with equal texts read the same events."""
        return self.path, self.table, self.where, self.options

    @property
    def name(self) -> str:
        """The name of one of several sources, '' of the only source."""
        return self.field.partition(".")[2]

    @property
    def place(self) -> str:
        """The path, or the name of the table or format, as messages show it, after the name of one of several
        sources."""
        place = self.path or (f"table {self.table}" if self.table else f"format {self.source.file_format}")
        return f"{self.name} ({place})" if self.name else place


def source_part(source: Source, field: str, data: str, interval: DataInterval, zone: tzinfo) -> SourcePart:
    """Return where the events of one interval of the schedule are. ``field``: the source's field in the pipeline file.
    ``data``: the value of ``{data}``; ``zone``: the time zone of the schedule."""
    texts = {key: at_interval(text, data, interval, zone) for key, text in source.templates.items()}
    named = {name: texts.get((name,)) for name in ("path", "table", "where")}
    options = tuple((name, texts["options", name]) for name in source.options)
    return SourcePart(source, field, interval, **named, options=options)


def source_parts(pipeline: DeclaredPipeline, data: str, interval: DataInterval) -> tuple[SourcePart, ...]:
    """Return the parts of a data interval, oldest first, and those of one interval in the order of the sources.
    ``data``: the value of ``{data}``.

    Raises InvalidRequestError: ``interval-not-of-schedule`` if schedule and source do not determine the places of the
    interval's events; ``source-not-bounded`` if two of its parts have the same place."""
    schedule = pipeline.cron_schedule
    scheduled = cut(schedule, interval) if schedule else None
    dated = {field: source for field, source in pipeline.inputs.items() if not source.incremental}
    parts = [
        source_part(source, field, data, each, pipeline.zone)
        for field, source in dated.items()
        for each in scheduled or _named_intervals(pipeline, field, source, interval)
    ]
    parts.sort(key=lambda part: part.interval.start_ms)
    _check_distinct(pipeline, parts)
    followed = {field: source for field, source in pipeline.inputs.items() if source.incremental}
    return *parts, *(source_part(source, field, data, interval, pipeline.zone) for field, source in followed.items())


def _named_intervals(
    pipeline: DeclaredPipeline, field: str, source: Source, interval: DataInterval
) -> tuple[DataInterval, ...]:
    """Return the intervals that the source's templates alone identify: this one, or the units of time of which it
    consists. Raises InvalidRequestError (``interval-not-of-schedule``) if there are none."""
    if _names_alone(pipeline, source, interval):
        return (interval,)
    texts = " ".join(source.templates.values())
    units = () if pipeline.cron_schedule else units_of(texts, interval, pipeline.zone)
    if not units:
        raise _not_of_schedule(pipeline, field, source, interval)
    return units


def _names_alone(pipeline: DeclaredPipeline, source: Source, interval: DataInterval) -> bool:
    """Return whether the templates alone identify this interval. With a schedule, they must contain both bounds: a
    directory of a weekly schedule is named by its Monday, but has the events of the week, not of that day."""
    texts = " ".join(source.templates.values())
    both = "{start" in texts and "{end" in texts
    return names_exactly(texts, interval, pipeline.zone) and (both or pipeline.cron_schedule is None)


def _check_distinct(pipeline: DeclaredPipeline, parts: Sequence[SourcePart]) -> None:
    seen: dict[object, SourcePart] = {}
    for part in parts:
        other = seen.setdefault((part.field, part.texts), part)
        if other is not part:
            what = "path" if part.path is not None and part.where is None else "source"
            raise InvalidRequestError(
                f"pipeline {pipeline.name}: {part.place} is the {what} of two intervals, "
                f"{range_text(other.interval)} and {range_text(part.interval)}: its events would be applied twice",
                kind="source-not-bounded",
                hint="write more of {start} or {end} in its path, or a condition with both in its where",
            )


def _not_of_schedule(
    pipeline: DeclaredPipeline, field: str, source: Source, interval: DataInterval
) -> InvalidRequestError:
    schedule = pipeline.cron_schedule
    why = (
        f"it does not consist of intervals of the schedule {schedule.text!r}"
        if schedule
        else "the pipeline has no cron schedule, and the source alone does not name it"
    )
    hint = (
        "give it the start of one interval of the schedule and the end of one"
        if schedule
        else "give the pipeline a cron schedule, let the interval consist of the units of time that the source names, "
        f"or name both {{start}} and {{end}} in {field}.path or {field}.where"
    )
    templates = (f"{field}.{'.'.join(key)} {text!r}" for key, text in source.templates.items())
    return InvalidRequestError(
        f"pipeline {pipeline.name}: data interval {range_text(interval)}: {' with '.join(templates)} "
        f"does not determine where its events are: {why}",
        kind="interval-not-of-schedule",
        hint=hint,
    )


def range_text(interval: DataInterval) -> str:
    """Return an interval as text, in UTC. Fractions of a second appear only if they are not zero."""
    return f"[{moment_of(interval.start_ms).isoformat()}, {moment_of(interval.end_ms).isoformat()})"
