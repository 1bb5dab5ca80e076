"""The check that a condition compares the bounds of the interval with times, and as the moments that they are."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, time, tzinfo

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame

from statelib.definition.parts.zones import clock_offset, in_zone, zone_of
from statelib.definition.pipeline import Pipeline
from statelib.definition.source.comparisons import DAY, OPERATORS, TEMPLATE, plain_comparisons
from statelib.definition.source.intervals import first_intervals
from statelib.definition.source.parts import SourcePart
from statelib.definition.source.templates import at_interval
from statelib.errors import InvalidRequestError
from statelib.model.checkpoint import DataInterval
from statelib.model.moments import epoch_ms
from statelib.spark.events.source_types import INSTANT, LOCAL
from statelib.spark.session.either_kind import analysed

_HALF_A_YEAR_MS = 182 * 86_400_000
_BOUND = rf"\s*(?:{OPERATORS}|\bbetween\b)\s*(?:(date|timestamp\w*)\s*)?['\"]({TEMPLATE})['\"]"
"""The rest of a comparison with a text that consists of a bound."""
_COMPARED = re.compile(rf"(?<![\w.`])({DAY}?)([\w.`]+)" + _BOUND, re.I)
_OR = re.compile(r"\bor\b", re.I)
_COMPARED_BY_DATABASE = re.compile(r"\b(\w+)[\"`\]]?" + _BOUND, re.I)


@dataclass(frozen=True)
class _Comparison:
    """A column that a field of the source compares with a bound. ``type``: of the column, in Spark. ``literal``: the
    word before the text, such as ``timestamp``. ``bound``: the template of the text. ``as_instant``: how to write the
    column as an instant, a template for its name and zone. ``is_day``: whether the date of the column is compared."""

    field: str
    column: str
    type: str
    literal: str
    bound: str
    as_instant: str
    is_day: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the bound has no format, so that its text ends with the offset."""
        return self.bound in ("{start}", "{end}") and not self.is_day

    @property
    def is_instant(self) -> bool:
        """Whether Spark compares instants, because the condition has ``TIMESTAMP`` before the bound."""
        return self.field == "where" and self.literal.lower() in ("timestamp", "timestamp_ltz")


def check_compared_bounds(pipeline: Pipeline, part: SourcePart, frame: DataFrame) -> None:
    """Raise InvalidRequestError (``bad-expression``) if the condition of a source, or the query of a database, does not
    compare a bound of the interval as the moment that it is. ``frame``: the rows of the source, for which Spark has
    understood the condition.

    Spark compares texts letter by letter, so that ``2026-01-01T00:00`` is after every ``2026-01-01 hh:mm``. Times
    without a zone are compared as clocks, and the offset of the bound is ignored; so do databases. A bound without its
    offset is a time in UTC if it is compared with instants. A date that is compared with an instant is its midnight in
    UTC."""
    all_compared = list(_comparisons(part, frame))
    for compared in all_compared:
        problem = _problem(pipeline, part, compared) or _seam_problem(pipeline, part, compared, all_compared)
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
        clock = UTC if compared.is_instant else pipeline.zone
        if compared.is_plain and not _have_equal_clocks(zone_of(zone), clock, part.interval.start_ms):
            reason = (
                f"is a time without a zone, but {{start}} and {{end}} are times of the schedule, in {pipeline.zone}"
            )
            return f"{reason}: events would be applied by another interval, or by none", hint
        if _is_ahead(pipeline, part, compared, zone_of(zone)):
            return _too_early(bound, zone), hint
    if compared.type == INSTANT and compared.field == "where" and _is_ahead(pipeline, part, compared, UTC):
        hint = "write '{start}' and '{end}', which have their offsets"
        return _too_early(bound, "UTC"), f"{hint}: {column} >= '{{start}}' AND {column} < '{{end}}'"
    if compared.type == "date" and compared.is_instant and _is_after_midnight(pipeline, part, bound):
        reason = (
            f"is a date, whose midnight in UTC is compared with {compared.literal.upper()} '{bound}', which is later"
        )
        hint = f"compare the dates, as in {column} >= '{{start}}' AND {column} < '{{end}}'"
        return f"{reason}: a run would miss the rows of its first day, and read those of the next day too early", hint
    return None


def _seam_problem(
    pipeline: Pipeline, part: SourcePart, compared: _Comparison, others: Sequence[_Comparison]
) -> tuple[str, str] | None:
    """Return the reason and the hint of an error if a condition without OR does not begin, for a column, where it ended
    for the interval before; None if it does, or if a bound of the column is not a time."""
    type_, column, where = "date" if compared.is_day else compared.type, compared.column, part.source.where or ""
    if compared.field != "where" or type_ not in (INSTANT, LOCAL, "date") or _OR.search(where):
        return None
    bounds = [other.bound for other in others if (other.field, other.column) == ("where", column)]
    starts, ends = ([bound for bound in bounds if f"{{{name}" in bound] for name in ("start", "end"))
    for interval in _intervals(pipeline, part) if starts and ends else ():
        following = DataInterval(interval.end_ms, interval.end_ms)
        try:
            first = max(_compared_ms(type_, bound, following, pipeline.zone) for bound in starts)
            last = min(_compared_ms(type_, bound, interval, pipeline.zone) for bound in ends)
        except ValueError:
            return None
        if first != last:
            reason = (
                f"is compared with '{starts[0]}' and '{ends[0]}': an interval does not begin where the last one ended"
            )
            hint = f"write both bounds in one form, as in {column} >= '{{start}}' AND {column} < '{{end}}'"
            return f"{reason}, so that events would be applied by two intervals, or by none", hint
    return None


def _compared_ms(type_: str, bound: str, interval: DataInterval, zone: tzinfo) -> int:
    """Return what Spark compares a column of a type with: an instant, a time without a zone, or the midnight of a date,
    in ms since the epoch. Raises ValueError if the text of the bound is not a time."""
    written = datetime.fromisoformat(at_interval(bound, "", interval, zone))
    if type_ == INSTANT:
        return epoch_ms(in_zone(written, UTC))
    return epoch_ms(datetime.combine(written.date(), time() if type_ == "date" else written.time(), UTC))


def _too_early(bound: str, zone: str) -> str:
    return (
        f"is compared with '{bound}', which is a time in {zone} here and later than the bound itself: a run would read "
        "events before all of them have come, and miss the others"
    )


def _comparisons(part: SourcePart, frame: DataFrame) -> Iterator[_Comparison]:
    """Yield the comparisons with bounds. A query may compare columns that it does not return; they are left out."""
    types = {field.name.lower(): field.dataType.simpleString() for field in frame.schema.fields}
    for day, column, literal, bound in _COMPARED.findall(plain_comparisons(part.source.where or "")):
        type_ = types.get(column.strip("`").lower()) or _type_in_spark(frame, column)
        is_day = day != "" and type_ in (INSTANT, LOCAL)
        if is_day and literal.lower().startswith("timestamp"):
            type_, is_day = "date", False
        if type_ and (is_day or not day or type_ == "date"):
            yield _Comparison("where", column, type_, literal, bound, "to_utc_timestamp({}, '{}')", is_day)
    for name, text in part.source.options.items():
        for column, literal, bound in _COMPARED_BY_DATABASE.findall(text):
            if column.lower() in types:
                type_ = types[column.lower()]
                yield _Comparison(f"options.{name}", column, type_, literal, bound, "{} AT TIME ZONE '{}'")


def _type_in_spark(frame: DataFrame, column: str) -> str:
    """Return the type of a field of a column, or of a column after the name of its table; '' if it is none."""
    try:
        return analysed(frame.selectExpr(column)).schema[0].dataType.simpleString()
    except (AnalysisException, ParseException):
        return ""


def _is_ahead(pipeline: Pipeline, part: SourcePart, compared: _Comparison, zone: tzinfo) -> bool:
    """Return whether the text of a bound, as a time in ``zone``, is later than the bound, now or half a year later. A
    text that is earlier is meant: a run in the morning may read the day before it. If dates are compared, the text is
    the midnight of its date."""
    return any(
        epoch_ms(in_zone(datetime.combine(written.date(), time()) if compared.is_day else written, zone))
        > (interval.start_ms if "{start" in compared.bound else interval.end_ms)
        for interval, written in _written(pipeline, part, compared.bound)
    )


def _is_after_midnight(pipeline: Pipeline, part: SourcePart, bound: str) -> bool:
    """Return whether the text of a bound, now or half a year later, is after the midnight in UTC of its own date."""
    return any(
        in_zone(written, UTC) > datetime.combine(written.date(), time(), UTC)
        for _, written in _written(pipeline, part, bound)
    )


def _written(pipeline: Pipeline, part: SourcePart, bound: str) -> Iterator[tuple[DataInterval, datetime]]:
    """Yield the interval, and the first one half a year later, each with the time that the text of a bound contains;
    it may have no offset. Nothing is yielded if the texts are not times."""
    for interval in _intervals(pipeline, part):
        with suppress(ValueError):
            yield interval, datetime.fromisoformat(at_interval(bound, "", interval, pipeline.zone))


def _intervals(pipeline: Pipeline, part: SourcePart) -> tuple[DataInterval, ...]:
    """Return the interval of a part, and the first one of the schedule half a year later."""
    schedule, later_ms = pipeline.cron_schedule, part.interval.start_ms + _HALF_A_YEAR_MS
    return part.interval, *(first_intervals(schedule, later_ms, 1) if schedule else [])


def _have_equal_clocks(one: tzinfo, other: tzinfo, moment_ms: int) -> bool:
    """Return whether two zones have equal clocks at a moment, and half a year later."""
    return all(clock_offset(one, at) == clock_offset(other, at) for at in (moment_ms, moment_ms + _HALF_A_YEAR_MS))
