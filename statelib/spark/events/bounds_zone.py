"""The check that a condition compares the bounds of the interval with times of the same zone."""

import re
from collections.abc import Iterator
from datetime import tzinfo

from pyspark.sql import DataFrame

from statelib.definition.parts.zones import clock_offset, zone_of
from statelib.definition.pipeline import Pipeline
from statelib.definition.source.parts import SourcePart
from statelib.errors import InvalidRequestError
from statelib.spark.events.source_types import LOCAL, quoted

_HALF_A_YEAR_MS = 182 * 86_400_000
_BOUND = r"\s*(?:<=>|<=|>=|<>|!=|=|<|>|\bbetween\b)\s*(?:timestamp\w*\s*)?['\"]\{(?:start|end)\}"
"""The rest of a comparison with a bound as it is. A format, such as the date of a bound, may be meant as it is
written."""
_COMPARED = re.compile(r"(?<![\w.`])([\w.`]+)" + _BOUND, re.I)
_COMPARED_BY_DATABASE = re.compile(r"\b(\w+)[\"`\]]?" + _BOUND, re.I)


def check_zone_of_bounds(pipeline: Pipeline, part: SourcePart, frame: DataFrame) -> None:
    """Raise InvalidRequestError (``bad-expression``) if the condition of a source, or the query of a database, compares
    a time without a zone with a bound, and the zone of the source is not that of the schedule. Spark compares the
    clocks, and ignores the offset of the bound; so do databases. ``frame``: the rows of the source, for which Spark has
    understood the condition."""
    zone = part.source.time_zone
    if zone is None or _have_equal_clocks(zone_of(zone), pipeline.zone, part.interval.start_ms):
        return
    for field, column, of_frame, instant in _compared_columns(part, frame):
        (compared,) = frame.selectExpr(of_frame).schema.fields
        if compared.dataType.simpleString() == LOCAL:
            raise InvalidRequestError(
                f"pipeline {pipeline.name}: {part.field}.{field}: {column} is a time without a zone, but {{start}} and "
                f"{{end}} are times of the schedule, in {pipeline.zone}: events would be applied by another interval, "
                "or by none",
                kind="bad-expression",
                hint=f"compare the instant, as in {instant.format(column, zone)} >= '{{start}}'",
            )


def _compared_columns(part: SourcePart, frame: DataFrame) -> Iterator[tuple[str, str, str, str]]:
    """Yield a field of the source, a column that it compares with a bound, the column as SQL on ``frame``, and the
    template of its instant. A query may compare columns that it does not return; they are left out."""
    names = {name.lower(): name for name in frame.columns}
    for column in _COMPARED.findall(part.source.where or ""):
        if column.split(".")[0].strip("`").lower() in names:
            yield "where", column, column, "to_utc_timestamp({}, '{}')"
    for name, text in part.source.options.items():
        for column in _COMPARED_BY_DATABASE.findall(text):
            if column.lower() in names:
                yield f"options.{name}", column, quoted(names[column.lower()]), "{} AT TIME ZONE '{}'"


def _have_equal_clocks(one: tzinfo, other: tzinfo, moment_ms: int) -> bool:
    """Return whether two zones have equal clocks at a moment, and half a year later."""
    return all(clock_offset(one, at) == clock_offset(other, at) for at in (moment_ms, moment_ms + _HALF_A_YEAR_MS))
