"""The check that a condition compares the bounds of the interval with times, and as the moments that they are."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from pyspark.sql import DataFrame

from statelib.definition.parts.zones import clock_offset, in_zone, zone_of
from statelib.definition.pipeline import Pipeline
from statelib.definition.source.intervals import first_intervals
from statelib.definition.source.parts import SourcePart
from statelib.definition.source.templates import at_interval
from statelib.errors import InvalidRequestError
from statelib.model.checkpoint import DataInterval
from statelib.model.moments import epoch_ms
from statelib.spark.events.source_types import INSTANT, LOCAL

_HALF_A_YEAR_MS = 182 * 86_400_000
_TEXT = r"['\"]([^'\"{}]*\{(?:start|end)(?::[^{}]*)?\}[^'\"{}]*)['\"]"
_BOUND = r"\s*(?:<=>|<=|>=|<>|!=|=|<|>|\bbetween\b)\s*(?:(?:date|timestamp\w*)\s*)?" + _TEXT
"""The rest of a comparison with a text that consists of a bound."""
_COMPARED = re.compile(r"(?<![\w.`])([\w.`]+)" + _BOUND, re.I)
_COMPARED_BY_DATABASE = re.compile(r"\b(\w+)[\"`\]]?" + _BOUND, re.I)


@dataclass(frozen=True)
class _Comparison:
    """A column that a field of the source compares with a bound. ``type``: of the column, in Spark. ``bound``: the
    template of the text. ``as_instant``: how to write the column as an instant, a template for its name and zone."""

    field: str
    column: str
    type: str
    bound: str
    as_instant: str

    @property
    def is_plain(self) -> bool:
        """Whether the bound has no format, so that its text ends with the offset."""
        return self.bound in ("{start}", "{end}")


def check_compared_bounds(pipeline: Pipeline, part: SourcePart, frame: DataFrame) -> None:
    """Raise InvalidRequestError (``bad-expression``) if the condition of a source, or the query of a database, does not
    compare a bound of the interval as the moment that it is. ``frame``: the rows of the source, for which Spark has
    understood the condition.

    Spark compares texts letter by letter, so that ``2026-01-01T00:00`` is after every ``2026-01-01 hh:mm``. Of times
    without a zone it compares the clocks, and ignores the offset of the bound; so do databases. A bound that is written
    without its offset is a time in UTC if it is compared with instants."""
    for compared in _comparisons(part, frame):
        problem = _problem(pipeline, part, compared)
        if problem is not None:
            reason, hint = problem
            column = f"{part.field}.{compared.field}: {compared.column}"
            raise InvalidRequestError(f"pipeline {pipeline.name}: {column} {reason}", kind="bad-expression", hint=hint)


def _problem(pipeline: Pipeline, part: SourcePart, compared: _Comparison) -> tuple[str, str] | None:
    """Return the reason and the hint of an error, or None."""
    column, bound, zone = compared.column, compared.bound, part.source.time_zone
    if compared.type == "string" and compared.is_plain:
        reason = "is a text, which is compared with {start} and {end} letter by letter, and not as a time"
        hint = f"compare the time, as in CAST({column} AS TIMESTAMP) >= '{{start}}', or write the bound as the texts "
        return reason, f"{hint}are, as in '{{start:%Y-%m-%dT%H:%M:%S}}'"
    if compared.type == LOCAL and zone is not None:
        hint = f"compare the instant, as in {compared.as_instant.format(column, zone)} >= '{{start}}'"
        if compared.is_plain and not _have_equal_clocks(zone_of(zone), pipeline.zone, part.interval.start_ms):
            reason = (
                f"is a time without a zone, but {{start}} and {{end}} are times of the schedule, in {pipeline.zone}"
            )
            return f"{reason}: events would be applied by another interval, or by none", hint
        if _is_ahead(pipeline, part, bound, zone_of(zone)):
            return _too_early(bound, zone), hint
    if compared.type == INSTANT and compared.field == "where" and _is_ahead(pipeline, part, bound, UTC):
        return _too_early(bound, "UTC"), "write '{start}' and '{end}', which have their offsets"
    return None


def _too_early(bound: str, zone: str) -> str:
    return (
        f"is compared with '{bound}', which is a time in {zone} here and later than the bound itself: a run would read "
        "events before all of them have come, and miss the others"
    )


def _comparisons(part: SourcePart, frame: DataFrame) -> Iterator[_Comparison]:
    """Yield the comparisons with bounds. A query may compare columns that it does not return; they are left out."""
    types = {field.name.lower(): field.dataType.simpleString() for field in frame.schema.fields}
    for column, bound in _COMPARED.findall(part.source.where or ""):
        first, *nested = (name.strip("`").lower() for name in column.split("."))
        if first in types:
            type_ = frame.selectExpr(column).schema[0].dataType.simpleString() if nested else types[first]
            yield _Comparison("where", column, type_, bound, "to_utc_timestamp({}, '{}')")
    for name, text in part.source.options.items():
        for column, bound in _COMPARED_BY_DATABASE.findall(text):
            if column.lower() in types:
                type_ = types[column.lower()]
                yield _Comparison(f"options.{name}", column, type_, bound, "{} AT TIME ZONE '{}'")


def _is_ahead(pipeline: Pipeline, part: SourcePart, bound: str, zone: tzinfo) -> bool:
    """Return whether the text of a bound, as a time in ``zone``, is later than the bound, now or half a year later. A
    text that is earlier is meant: a run in the morning may read the day before it."""
    schedule, later_ms = pipeline.cron_schedule, part.interval.start_ms + _HALF_A_YEAR_MS
    later = first_intervals(schedule, later_ms, 1) if schedule else []
    return any(_is_later(bound, interval, pipeline.zone, zone) for interval in (part.interval, *later))


def _is_later(bound: str, interval: DataInterval, zone: tzinfo, understood: tzinfo) -> bool:
    try:
        written = datetime.fromisoformat(at_interval(bound, "", interval, zone))
    except ValueError:
        return False
    return epoch_ms(in_zone(written, understood)) > (interval.start_ms if "{start" in bound else interval.end_ms)


def _have_equal_clocks(one: tzinfo, other: tzinfo, moment_ms: int) -> bool:
    """Return whether two zones have equal clocks at a moment, and half a year later."""
    return all(clock_offset(one, at) == clock_offset(other, at) for at in (moment_ms, moment_ms + _HALF_A_YEAR_MS))
