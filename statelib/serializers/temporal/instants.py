"""Instant: seconds since 1970-01-01 UTC and nanoseconds of the second.

Source: docs/spec/formats.md#scalars, #hash-codes-of-keys.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from statelib.model.types import INSTANT
from statelib.serializers.aspects.json_values import NULL, Json
from statelib.serializers.aspects.plain_hashing import folded, plain_scalar
from statelib.serializers.aspects.snapshot_payloads import plain_class, plain_snapshot
from statelib.serializers.aspects.type_support import scalar_support
from statelib.serializers.columns.codec import Cursor
from statelib.serializers.columns.cursors import big_endian, read_unsigned, refuse
from statelib.serializers.columns.java_hashes import Words, fold_long
from statelib.serializers.temporal.codec import SECOND_NS, Longs, Parsed, TemporalCodec, nanoseconds
from statelib.wire.ragged import Bytes
from statelib.wire.reader import Reader

_NULL_SECONDS, _NULL_NANOS = -(2**63), -(2**31)


def _instant_bytes(nanos: Longs) -> Bytes:
    return np.hstack([big_endian(nanos // SECOND_NS), big_endian((nanos % SECOND_NS).astype("i4"))])


def _parse_instant(data: Bytes, cursor: Cursor) -> Parsed:
    seconds = read_unsigned(data, cursor, 8, "i8").astype(np.int64)
    nanos = read_unsigned(data, cursor + 8, 4, "i4").astype(np.int64)
    null = seconds == _NULL_SECONDS
    refuse(~null & ((nanos < 0) | (nanos >= SECOND_NS)), nanos, INSTANT, "nanoseconds below 10**9", "bad-instant")
    return nanoseconds(np.where(null, 0, seconds), np.where(null, 0, nanos), 1, INSTANT), null


def _instant_hash(nanos: Longs) -> Words:
    return fold_long(nanos // SECOND_NS) + (nanos % SECOND_NS * 51).astype(np.uint32)


def _read_json(reader: Reader) -> Json:
    seconds, nano = reader.i64(), reader.i32()
    null = (seconds, nano) == (_NULL_SECONDS, _NULL_NANOS)
    return NULL if null else {"type": "instant", "sec": seconds, "nano": nano}


def _plain_instant(value: Any) -> int:
    seconds, nanos = divmod(int(value.value), 10**9)
    return folded(seconds) + 51 * nanos


INSTANTS = scalar_support(
    TemporalCodec(INSTANT, pa.timestamp("ns", "UTC"), 12, _instant_bytes, _parse_instant, _instant_hash),
    _read_json,
    plain_snapshot(INSTANT, plain_class("InstantSerializer")),
    plain_scalar(_plain_instant),
)
