"""java.util.Date, and Date, Time and Timestamp of java.sql: milliseconds since 1970-01-01, as a long.

A Timestamp also stores the nanoseconds of the second, which hold the milliseconds of the second again.

Source: docs/spec/formats.md#scalars, #hash-codes-of-keys.
"""

import numpy as np
import pyarrow as pa

from statelib.model.types import JAVA_SCALARS, Scalar
from statelib.serializers.aspects.json_values import NULL, Json
from statelib.serializers.aspects.plain_hashing import folded, plain_scalar
from statelib.serializers.aspects.snapshot_payloads import plain_class, plain_snapshot
from statelib.serializers.aspects.type_support import TypeSupport, scalar_support
from statelib.serializers.columns.codec import Cursor
from statelib.serializers.columns.cursors import big_endian, read_unsigned
from statelib.serializers.columns.java_hashes import Words, fold_long
from statelib.serializers.temporal.codec import SECOND_NS, Longs, Parsed, TemporalCodec, nanoseconds
from statelib.wire.ragged import Bytes
from statelib.wire.reader import Reader

_NULL_MILLIS = -(2**63)
_CLASSES = {"javadate": "Date", "sqldate": "SqlDate", "sqltime": "SqlTime"}
_SQL_TIMESTAMP = JAVA_SCALARS["sqltimestamp"]


def _parse_millis(data: Bytes, cursor: Cursor) -> Parsed:
    millis = read_unsigned(data, cursor, 8, "i8").astype(np.int64)
    return millis, millis == _NULL_MILLIS


def _timestamp_bytes(nanos: Longs) -> Bytes:
    return np.hstack([big_endian(nanos // 1_000_000), big_endian((nanos % SECOND_NS).astype("i4"))])


def _parse_timestamp(data: Bytes, cursor: Cursor) -> Parsed:
    millis, null = _parse_millis(data, cursor)
    nanos = read_unsigned(data, cursor + 8, 4, "i4").astype(np.int64)
    return nanoseconds(np.where(null, 0, millis // 1000), np.where(null, 0, nanos), 1, _SQL_TIMESTAMP), null


def _timestamp_hash(nanos: Longs) -> Words:
    return fold_long(nanos // 1_000_000)


def _read_timestamp(reader: Reader) -> Json:
    millis, nanos = reader.i64(), reader.i32()
    return NULL if millis == _NULL_MILLIS else {"type": "sqltimestamp", "v": millis, "nanos": nanos}


def _millis_support(name: str) -> TypeSupport[Scalar]:
    scalar = JAVA_SCALARS[name]

    def read_json(reader: Reader) -> Json:
        value = reader.i64()
        return NULL if value == _NULL_MILLIS else {"type": name, "v": value}

    return scalar_support(
        TemporalCodec(scalar, pa.timestamp("ms"), 8, big_endian, _parse_millis, fold_long),
        read_json,
        plain_snapshot(scalar, plain_class(f"{_CLASSES[name]}Serializer")),
        plain_scalar(lambda value: folded(value.value)),
    )


JAVA_DATES = (
    *map(_millis_support, _CLASSES),
    scalar_support(
        TemporalCodec(_SQL_TIMESTAMP, pa.timestamp("ns"), 12, _timestamp_bytes, _parse_timestamp, _timestamp_hash),
        _read_timestamp,
        plain_snapshot(_SQL_TIMESTAMP, plain_class("SqlTimestampSerializer")),
        plain_scalar(lambda value: folded(value.value // 1_000_000)),
    ),
)
