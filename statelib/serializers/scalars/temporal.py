"""Dates and times of java.time: LocalDate, LocalTime, LocalDateTime, Instant.

Arrow holds times of day and points in time as nanoseconds in 64 bits (the years 1677 to 2262).
Flink's null, a date or time that cannot exist, reads as an Arrow null.

Source: flink-formats.md sections 6.2 and 1.2.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.errors import UnsupportedError
from statelib.model.types import DATE, DATETIME, INSTANT, JAVA_SCALARS, TIME, Scalar
from statelib.serializers.columns.arrow import number_array, numbers, scalar_column, with_nulls
from statelib.serializers.columns.codec import Cursor, Hashes
from statelib.serializers.columns.cursors import big_endian, read_unsigned, refuse, require
from statelib.serializers.columns.java_hashes import Words, field_hash, fold_long, nulls_to_zero, signed
from statelib.wire.ragged import Bytes, Ragged, from_fixed

Longs = npt.NDArray[np.int64]

Parsed = tuple[Longs, npt.NDArray[np.bool_]]
"""Ticks, and which rows are Flink's null."""

_SECOND = 1_000_000_000
_DAY = 86_400 * _SECOND
_NULL_YEAR, _NULL_HOUR, _NULL_SECONDS = -(2**31), -128, -(2**63)


@dataclass(frozen=True)
class TemporalCodec:
    """A fixed-width type whose Arrow column holds integers ("ticks": days or nanoseconds).

    ``to_bytes`` gives a uint8 matrix (rows, width); ``parse`` reads at cursors within bounds."""

    type: Scalar
    arrow_type: pa.DataType
    width: int
    to_bytes: Callable[[Longs], Bytes]
    parse: Callable[[Bytes, Cursor], Parsed]
    hash_of: Callable[[Longs], Words]

    @property
    def reported_length(self) -> int:
        return self.width

    def encode(self, values: pa.Array) -> Ragged:
        return from_fixed(self.to_bytes(self._ticks(values)))

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        end = self.skip(data, cursor, limit)
        ticks, null = self.parse(data, cursor)
        values = number_array(ticks[~null].astype(self._slot), self.arrow_type)
        return with_nulls(values, ~null), end

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:  # noqa: ARG002
        require(cursor, self.width, limit, self.type)
        return cursor + self.width

    def java_hash(self, values: pa.Array) -> Hashes:
        return signed(nulls_to_zero(lambda v: signed(self.hash_of(self._ticks(v))), values))

    def deep_hash(self, values: pa.Array) -> Hashes:
        return field_hash(values, self.java_hash(values))

    @property
    def _slot(self) -> str:
        return f"i{self.arrow_type.bit_width // 8}"

    def _ticks(self, values: pa.Array) -> Longs:
        return numbers(scalar_column(values, self.arrow_type, self.type), self._slot).astype(np.int64)


def _civil(days: Longs) -> tuple[Longs, Longs, Longs]:
    """Year, month and day of days since 1970-01-01 in the proleptic calendar."""
    date = days.astype("M8[D]")
    month = date.astype("M8[M]")
    months = month.astype(np.int64)
    return months // 12 + 1970, months % 12 + 1, (date - month.astype("M8[D]")).astype(np.int64) + 1


def _date_bytes(days: Longs) -> Bytes:
    year, month, day = _civil(days)
    return np.hstack([big_endian(year.astype("i4")), big_endian(month.astype("i1")), big_endian(day.astype("i1"))])


def _parse_date(data: Bytes, cursor: Cursor) -> Parsed:
    year, month, day = (
        read_unsigned(data, cursor + at, width, f"i{width}").astype(np.int64) for at, width in ((0, 4), (4, 1), (5, 1))
    )
    null = year == _NULL_YEAR
    refuse(~null & ((month < 1) | (month > 12)), month, DATE, "a month of 1 to 12", "bad-date")
    months = np.where(null, 0, (year - 1970) * 12 + month - 1)
    first = months.astype("M8[M]").astype("M8[D]").astype(np.int64)
    length = (months + 1).astype("M8[M]").astype("M8[D]").astype(np.int64) - first
    refuse(~null & ((day < 1) | (day > length)), day, DATE, "a day of the month", "bad-date")
    days = np.where(null, 0, first + day - 1)
    _check_range(days.astype(np.int32) != days, DATE)
    return days, null


def _date_hash(days: Longs) -> Words:
    year, month, day = _civil(days)
    return np.asarray(((year & 0xFFFFF800) ^ ((year << 11) + (month << 6) + day)).astype(np.uint32))


def _time_bytes(nanos: Longs) -> Bytes:
    seconds = nanos // _SECOND
    clock = [big_endian(part.astype("i1")) for part in (seconds // 3600, seconds // 60 % 60, seconds % 60)]
    return np.hstack([*clock, big_endian((nanos % _SECOND).astype("i4"))])


def _parse_time(data: Bytes, cursor: Cursor) -> Parsed:
    parts = ((0, 1, 24), (1, 1, 60), (2, 1, 60), (3, 4, _SECOND))
    read = [read_unsigned(data, cursor + at, width, f"i{width}").astype(np.int64) for at, width, _ in parts]
    null = read[0] == _NULL_HOUR
    for values, (_, _, end) in zip(read, parts, strict=True):
        refuse(~null & ((values < 0) | (values >= end)), values, TIME, f"a part of 0 to {end - 1}", "bad-time")
    hour, minute, second, nano = read
    return np.where(null, 0, ((hour * 60 + minute) * 60 + second) * _SECOND + nano), null


def _datetime_bytes(nanos: Longs) -> Bytes:
    return np.hstack([_date_bytes(nanos // _DAY), _time_bytes(nanos % _DAY)])


def _parse_datetime(data: Bytes, cursor: Cursor) -> Parsed:
    days, null_date = _parse_date(data, cursor)
    nanos, null_time = _parse_time(data, cursor + 6)
    return _nanoseconds(days, nanos, 86_400, DATETIME), null_date | null_time


def _datetime_hash(nanos: Longs) -> Words:
    return _date_hash(nanos // _DAY) ^ fold_long(nanos % _DAY)


def _instant_bytes(nanos: Longs) -> Bytes:
    return np.hstack([big_endian(nanos // _SECOND), big_endian((nanos % _SECOND).astype("i4"))])


def _parse_instant(data: Bytes, cursor: Cursor) -> Parsed:
    seconds = read_unsigned(data, cursor, 8, "i8").astype(np.int64)
    nanos = read_unsigned(data, cursor + 8, 4, "i4").astype(np.int64)
    null = seconds == _NULL_SECONDS
    refuse(~null & ((nanos < 0) | (nanos >= _SECOND)), nanos, INSTANT, "nanoseconds below 10**9", "bad-instant")
    return _nanoseconds(np.where(null, 0, seconds), np.where(null, 0, nanos), 1, INSTANT), null


def _instant_hash(nanos: Longs) -> Words:
    return fold_long(nanos // _SECOND) + (nanos % _SECOND * 51).astype(np.uint32)


def _nanoseconds(units: Longs, nanos: Longs, unit_s: int, what: Scalar) -> Longs:
    """``units`` of ``unit_s`` seconds plus nanoseconds, refused where 64 bits do not hold the sum."""
    size = unit_s * _SECOND
    ticks = units * size + nanos
    _check_range((ticks // size != units) | (ticks % size != nanos), what)
    return ticks


def _check_range(outside: npt.NDArray[np.bool_], what: Scalar) -> None:
    if outside.any():
        raise UnsupportedError(
            f"{what} in row {int(np.argmax(outside))}: outside the years that Arrow's columns can hold",
            kind="time-out-of-range",
        )


def _parse_millis(data: Bytes, cursor: Cursor) -> Parsed:
    millis = read_unsigned(data, cursor, 8, "i8").astype(np.int64)
    return millis, millis == _NULL_SECONDS


def _sql_timestamp_bytes(nanos: Longs) -> Bytes:
    """Milliseconds, and the nanoseconds of the second, which hold the milliseconds again."""
    return np.hstack([big_endian(nanos // 1_000_000), big_endian((nanos % _SECOND).astype("i4"))])


def _parse_sql_timestamp(data: Bytes, cursor: Cursor) -> Parsed:
    millis, null = _parse_millis(data, cursor)
    nanos = read_unsigned(data, cursor + 8, 4, "i4").astype(np.int64)
    return _nanoseconds(np.where(null, 0, millis // 1000), np.where(null, 0, nanos), 1, _SQL_TIMESTAMP), null


def _sql_timestamp_hash(nanos: Longs) -> Words:
    return fold_long(nanos // 1_000_000)


_SQL_TIMESTAMP = JAVA_SCALARS["sqltimestamp"]
JAVA_TEMPORALS = (
    *(
        TemporalCodec(JAVA_SCALARS[name], pa.timestamp("ms"), 8, big_endian, _parse_millis, fold_long)
        for name in ("javadate", "sqldate", "sqltime")
    ),
    TemporalCodec(
        _SQL_TIMESTAMP, pa.timestamp("ns"), 12, _sql_timestamp_bytes, _parse_sql_timestamp, _sql_timestamp_hash
    ),
)

TEMPORALS = (
    TemporalCodec(DATE, pa.date32(), 6, _date_bytes, _parse_date, _date_hash),
    TemporalCodec(TIME, pa.time64("ns"), 7, _time_bytes, _parse_time, fold_long),
    TemporalCodec(DATETIME, pa.timestamp("ns"), 13, _datetime_bytes, _parse_datetime, _datetime_hash),
    TemporalCodec(INSTANT, pa.timestamp("ns", "UTC"), 12, _instant_bytes, _parse_instant, _instant_hash),
)
