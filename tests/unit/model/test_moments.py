"""Moments on both sides of 1970, to the millisecond."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from statelib.definition.source.intervals import moment
from statelib.errors import InvalidRequestError
from statelib.model.moments import epoch_ms, moment_of
from statelib.spark.dataframe.arrow_types import batches_of, spark_schema


@pytest.mark.parametrize(
    "ms", [-62_135_596_800_000, -1001, -1000, -999, -500, -1, 0, 1, 999, 1500, 253_402_300_799_999]
)
def test_a_time_is_converted_to_milliseconds_and_back(ms: int) -> None:
    moment_there = moment_of(ms)
    assert (epoch_ms(moment_there), moment_there.microsecond) == (ms, ms % 1000 * 1000)
    assert epoch_ms(moment_there + timedelta(microseconds=999)) == ms
    assert moment(moment_there.isoformat(), UTC) == ms


def test_a_fraction_of_a_second_before_1970_is_exact() -> None:
    half = datetime(1969, 12, 31, 23, 59, 59, 500_000, UTC)
    assert (epoch_ms(half), epoch_ms(half.astimezone(timezone(timedelta(hours=-3))))) == (-500, -500)
    assert moment("1969-12-31T23:59:59.500", UTC) == -500


@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31T23:00:00-12:00"])
def test_a_time_outside_of_the_calendar_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"within the years 1 to 9999, in UTC, found '{text}'"):
        moment(text, ZoneInfo("Europe/Berlin"))


def test_spark_gets_the_microsecond_of_a_time() -> None:
    instants = pa.array([-1, -1000, -1001, 0, 999, None], pa.int64()).cast(pa.timestamp("ns", "UTC"))
    lists = pa.ListArray.from_arrays([0, 2, 2, 6], instants, mask=pa.array([False, True, False]))
    rows = pa.StructArray.from_arrays([instants.cast(pa.timestamp("ns"))], ["t"])
    maps = pa.MapArray.from_arrays([0, 1, 5, 5], pa.array(list("abcde")), instants.slice(0, 5))
    expected = [-1, -1, -2, 0, 0, None]
    for column, read in (
        (instants, lambda microsecond: microsecond.cast(pa.int64()).to_pylist()),
        (rows, lambda microsecond: microsecond.field(0).cast(pa.int64()).to_pylist()),
        (lists, lambda microsecond: microsecond.values.cast(pa.int64()).to_pylist()),
        (maps, lambda microsecond: [*microsecond.items.cast(pa.int64()).to_pylist(), None]),
    ):
        table = pa.table({"c": column})
        (batch,) = batches_of(table, spark_schema(table.schema))
        microsecond = read(batch.column(0))
        assert microsecond == (expected if len(microsecond) == 6 else [-1, -1, 0, 0, None])
