"""LocalDate: year, month and day. Columns hold days since 1970-01-01.

Source: docs/spec/formats.md#scalars, #hash-codes-of-keys.
"""

import numpy as np
import pyarrow as pa

from statelib.model.types import DATE
from statelib.serializers.aspects.json_values import NULL, Json
from statelib.serializers.aspects.plain_hashing import MASK, plain_scalar
from statelib.serializers.aspects.snapshot_payloads import plain_class, plain_snapshot
from statelib.serializers.aspects.type_support import scalar_support
from statelib.serializers.columns.codec import Cursor
from statelib.serializers.columns.cursors import big_endian, read_unsigned, refuse
from statelib.serializers.columns.java_hashes import Words
from statelib.serializers.temporal.codec import Longs, Parsed, TemporalCodec, check_range
from statelib.wire.ragged import Bytes
from statelib.wire.reader import Reader

DATE_BYTES = 6
_NULL_YEAR = -(2**31)
_ERA_DAYS, _ERA_YEARS = 146_097, 400
"""The length of the period after which the calendar repeats itself."""


def _civil(days: Longs) -> tuple[Longs, Longs, Longs]:
    """Return year, month and day of days since 1970-01-01 in the proleptic Gregorian calendar."""
    date = days.astype("M8[D]")
    month = date.astype("M8[M]")
    months = month.astype(np.int64)
    return months // 12 + 1970, months % 12 + 1, (date - month.astype("M8[D]")).astype(np.int64) + 1


def date_bytes(days: Longs) -> Bytes:
    """Return the bytes of dates, a matrix (rows, 6)."""
    year, month, day = _civil(days)
    return np.hstack([big_endian(year.astype("i4")), big_endian(month.astype("i1")), big_endian(day.astype("i1"))])


def parse_date(data: Bytes, cursor: Cursor) -> Parsed:
    """Read a date at each cursor. Raise CorruptStateError (``bad-date``), UnsupportedError (``time-out-of-range``)."""
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
    check_range(days.astype(np.int32) != days, DATE)
    return days, null


def date_hash(days: Longs) -> Words:
    """Return ``LocalDate.hashCode`` of each date."""
    year, month, day = _civil(days)
    return np.asarray(((year & 0xFFFFF800) ^ ((year << 11) + (month << 6) + day)).astype(np.uint32))


def read_date_text(reader: Reader) -> str | None:
    """Read a date and return its text, or None for Flink's null. Columns cannot hold all of these dates."""
    year, month, day = reader.i32(), reader.i8(), reader.i8()
    if year == _NULL_YEAR:
        return None
    return f"{_year_text(year)}-{month:02}-{day:02}"


def _year_text(year: int) -> str:
    """Return a year as java.time writes it: four digits, and a sign if four are not enough."""
    return f"{year:04}" if 0 <= year <= 9999 else f"{'-' if year < 0 else '+'}{abs(year):04}"


def date_text(days: int) -> str:
    """Return the text of the date that is ``days`` after 1970-01-01, in any year."""
    era, rest = divmod(days + 719_468, _ERA_DAYS)
    year = (rest - rest // 1460 + rest // 36_524 - rest // 146_096) // 365
    of_year = rest - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    day, month = of_year - (153 * shifted + 2) // 5 + 1, shifted + 3 if shifted < 10 else shifted - 9
    return f"{_year_text(year + era * _ERA_YEARS + (month <= 2))}-{month:02}-{day:02}"


def _read_json(reader: Reader) -> Json:
    text = read_date_text(reader)
    return NULL if text is None else {"type": "localdate", "v": text}


def plain_date(days: int) -> int:
    """Return ``LocalDate.hashCode`` of one date. The days of a year are counted from the first of March, so that leap
    days come last."""
    era, day = divmod(days + 719468, 146097)
    year = (day - day // 1460 + day // 36524 - day // 146096) // 365
    of_year = day - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    number = month + 3 if month < 10 else month - 9
    full = year + era * 400 + (number <= 2)
    return (full & 0xFFFFF800) ^ ((full << 11) + (number << 6) + of_year - (153 * month + 2) // 5 + 1) & MASK


DATES = scalar_support(
    TemporalCodec(DATE, pa.date32(), DATE_BYTES, date_bytes, parse_date, date_hash),
    _read_json,
    plain_snapshot(DATE, plain_class("LocalDateSerializer")),
    plain_scalar(lambda value: plain_date(value.value)),
)
