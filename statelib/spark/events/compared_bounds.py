"""The check that a condition compares the bounds of the interval with times, and with those of the same zone."""

import re
from collections.abc import Iterator
from datetime import tzinfo

from pyspark.sql import DataFrame

from statelib.definition.parts.zones import clock_offset, zone_of
from statelib.definition.pipeline import Pipeline
from statelib.definition.source.parts import SourcePart
from statelib.errors import InvalidRequestError
from statelib.spark.events.source_types import LOCAL

_HALF_A_YEAR_MS = 182 * 86_400_000
_BOUND = r"\s*(?:<=>|<=|>=|<>|!=|=|<|>|\bbetween\b)\s*(?:timestamp\w*\s*)?['\"]\{(?:start|end)\}"
"""The rest of a comparison with a bound as it is. A format, such as the date of a bound, may be meant as it is
written."""
_COMPARED = re.compile(r"(?<![\w.`])([\w.`]+)" + _BOUND, re.I)
_COMPARED_BY_DATABASE = re.compile(r"\b(\w+)[\"`\]]?" + _BOUND, re.I)


def check_compared_bounds(pipeline: Pipeline, part: SourcePart, frame: DataFrame) -> None:
    """Raise InvalidRequestError (``bad-expression``) if the condition of a source, or the query of a database, compares
    a bound with a text, or with a time without a zone although the zone of the source is not that of the schedule.

    Spark compares texts letter by letter, so that ``2026-01-01T00:00`` is after every ``2026-01-01 hh:mm``. Of times
    without a zone it compares the clocks, and ignores the offset of the bound; so do databases. ``frame``: the rows of
    the source, for which Spark has understood the condition."""
    zone = part.source.time_zone
    same = zone is None or _have_equal_clocks(zone_of(zone), pipeline.zone, part.interval.start_ms)
    for field, column, type_, as_instant in _compared_columns(part, frame):
        compared = f"{part.field}.{field}: {column}"
        if type_ == "string":
            raise InvalidRequestError(
                f"pipeline {pipeline.name}: {compared} is a text, which is compared with {{start}} and {{end}} letter "
                "by letter, and not as a time",
                kind="bad-expression",
                hint=f"compare the time, as in CAST({column} AS TIMESTAMP) >= '{{start}}', or write the bound as the "
                "texts are, as in '{start:%Y-%m-%dT%H:%M:%S}'",
            )
        if type_ == LOCAL and not same:
            raise InvalidRequestError(
                f"pipeline {pipeline.name}: {compared} is a time without a zone, but {{start}} and {{end}} are times "
                f"of the schedule, in {pipeline.zone}: events would be applied by another interval, or by none",
                kind="bad-expression",
                hint=f"compare the instant, as in {as_instant.format(column, zone)} >= '{{start}}'",
            )


def _compared_columns(part: SourcePart, frame: DataFrame) -> Iterator[tuple[str, str, str, str]]:
    """Yield a field of the source, a column that it compares with a bound, the type of the column in ``frame``, and the
    template of its instant. A query may compare columns that it does not return; they are left out."""
    types = {field.name.lower(): field.dataType.simpleString() for field in frame.schema.fields}
    for column in _COMPARED.findall(part.source.where or ""):
        first, *nested = (name.strip("`").lower() for name in column.split("."))
        if first in types:
            type_ = frame.selectExpr(column).schema[0].dataType.simpleString() if nested else types[first]
            yield "where", column, type_, "to_utc_timestamp({}, '{}')"
    for name, text in part.source.options.items():
        for column in _COMPARED_BY_DATABASE.findall(text):
            if column.lower() in types:
                yield f"options.{name}", column, types[column.lower()], "{} AT TIME ZONE '{}'"


def _have_equal_clocks(one: tzinfo, other: tzinfo, moment_ms: int) -> bool:
    """Return whether two zones have equal clocks at a moment, and half a year later."""
    return all(clock_offset(one, at) == clock_offset(other, at) for at in (moment_ms, moment_ms + _HALF_A_YEAR_MS))
