"""The check that a condition compares the bounds of the interval with times of the same zone."""

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
_COMPARED = re.compile(
    r"(?<![\w.`])([\w.`]+)\s*(?:<=>|<=|>=|<>|!=|=|<|>|\bbetween\b)\s*(?:timestamp\w*\s*)?['\"]\{(?:start|end)\}", re.I
)
"""A column that is compared with a bound as it is."""


def check_zone_of_bounds(pipeline: Pipeline, part: SourcePart, frame: DataFrame) -> None:
    """Raise InvalidRequestError (``bad-expression``) if the condition of a source compares a time without a zone with a
    bound, and the zone of the source is not that of the schedule. Spark compares the clocks, and ignores the offset of
    the bound. ``frame``: the rows of the source, for which Spark has
    understood the condition."""
    zone, condition = part.source.time_zone, part.source.where
    if zone is None or condition is None or _have_equal_clocks(zone_of(zone), pipeline.zone, part.interval.start_ms):
        return
    for column in _compared_columns(condition, frame):
        (field,) = frame.selectExpr(column).schema.fields
        if field.dataType.simpleString() == LOCAL:
            raise InvalidRequestError(
                f"pipeline {pipeline.name}: {part.field}.where: {column} is a time without a zone, but {{start}} and "
                f"{{end}} are times of the schedule, in {pipeline.zone}: events would be applied by another interval, "
                "or by none",
                kind="bad-expression",
                hint=f"compare the instant, as in to_utc_timestamp({column}, '{zone}') >= '{{start}}'",
            )


def _compared_columns(condition: str, frame: DataFrame) -> Iterator[str]:
    names = {name.lower() for name in frame.columns}
    for column in _COMPARED.findall(condition):
        if column.split(".")[0].strip("`").lower() in names:
            yield column


def _have_equal_clocks(one: tzinfo, other: tzinfo, moment_ms: int) -> bool:
    """Return whether two zones have equal clocks at a moment, and half a year later."""
    return all(clock_offset(one, at) == clock_offset(other, at) for at in (moment_ms, moment_ms + _HALF_A_YEAR_MS))
