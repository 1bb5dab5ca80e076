"""LocalDateTime: a date and a time of day. Columns hold nanoseconds since 1970-01-01.

Source: docs/spec/formats.md#scalars, #hash-codes-of-keys.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from statelib.model.types import DATETIME
from statelib.serializers.aspects.json_values import NULL, Json
from statelib.serializers.aspects.plain_hashing import folded, plain_scalar
from statelib.serializers.aspects.snapshot_payloads import plain_class, plain_snapshot
from statelib.serializers.aspects.type_support import scalar_support
from statelib.serializers.columns.codec import Cursor
from statelib.serializers.columns.java_hashes import Words, fold_long
from statelib.serializers.temporal.codec import DAY_NS, Longs, Parsed, TemporalCodec, nanoseconds
from statelib.serializers.temporal.dates import (
    DATE_BYTES,
    date_bytes,
    date_hash,
    date_text,
    parse_date,
    plain_date,
    read_date_text,
)
from statelib.serializers.temporal.times import TIME_BYTES, parse_time, read_nano_of_day, time_bytes
from statelib.wire.ragged import Bytes
from statelib.wire.reader import Reader

_DAY_S = 86_400
_DAY_MS = 86_400_000


def _datetime_bytes(nanos: Longs) -> Bytes:
    return np.hstack([date_bytes(nanos // DAY_NS), time_bytes(nanos % DAY_NS)])


def _parse_datetime(data: Bytes, cursor: Cursor) -> Parsed:
    days, null_date = parse_date(data, cursor)
    nanos, null_time = parse_time(data, cursor + DATE_BYTES)
    return nanoseconds(days, nanos, _DAY_S, DATETIME), null_date | null_time


def _datetime_hash(nanos: Longs) -> Words:
    return date_hash(nanos // DAY_NS) ^ fold_long(nanos % DAY_NS)


def _read_json(reader: Reader) -> Json:
    text, nanos = read_date_text(reader), read_nano_of_day(reader)
    return NULL if text is None or nanos is None else _json(text, nanos)


def datetime_json(millis: int, nano_of_milli: int) -> Json:
    """Return the typed JSON of milliseconds since 1970-01-01 and nanoseconds of the millisecond."""
    days, rest = divmod(millis, _DAY_MS)
    return _json(date_text(days), rest * 1_000_000 + nano_of_milli)


def _json(date: str, nano_of_day: int) -> Json:
    return {"type": "localdatetime", "date": date, "nanoOfDay": nano_of_day}


def _plain_datetime(value: Any) -> int:
    days, nanos = divmod(int(value.value), 86_400 * 10**9)
    return plain_date(days) ^ folded(nanos)


DATETIMES = scalar_support(
    TemporalCodec(
        DATETIME, pa.timestamp("ns"), DATE_BYTES + TIME_BYTES, _datetime_bytes, _parse_datetime, _datetime_hash
    ),
    _read_json,
    plain_snapshot(DATETIME, plain_class("LocalDateTimeSerializer")),
    plain_scalar(_plain_datetime),
)
