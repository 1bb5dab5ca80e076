"""Booleans: one byte, 1 or 0.

Source: docs/spec/formats.md#scalars, #hash-codes-of-keys.
"""

from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa

from statelib.model.types import BOOLEAN, Scalar
from statelib.serializers.aspects.json_values import Json
from statelib.serializers.aspects.plain_hashing import plain_scalar
from statelib.serializers.aspects.snapshot_payloads import plain_class, plain_snapshot
from statelib.serializers.aspects.type_support import scalar_support
from statelib.serializers.columns.arrow import numbers, scalar_column
from statelib.serializers.columns.codec import Cursor, Hashes
from statelib.serializers.columns.cursors import require
from statelib.serializers.columns.java_hashes import field_hash, nulls_to_zero, signed
from statelib.wire.ragged import Bytes, Ragged, from_fixed
from statelib.wire.reader import Reader

_BOOL = pa.bool_()
_TRUE_HASH, _FALSE_HASH = 1231, 1237


@dataclass(frozen=True)
class BooleanCodec:
    """The codec of booleans. As in Java, any byte but 0 reads as true."""

    type: Scalar = BOOLEAN
    arrow_type: pa.DataType = _BOOL
    width: int = 1
    reported_length: int = 1

    def encode(self, values: pa.Array) -> Ragged:
        return from_fixed(self._bytes(values).reshape(-1, 1))

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        end = self.skip(data, cursor, limit)
        return pa.array(data[cursor] != 0), end

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:  # noqa: ARG002
        require(cursor, 1, limit, self.type)
        return cursor + 1

    def java_hash(self, values: pa.Array) -> Hashes:
        return signed(nulls_to_zero(self._hash, values))

    def deep_hash(self, values: pa.Array) -> Hashes:
        return field_hash(values, self.java_hash(values))

    def _hash(self, values: pa.Array) -> Hashes:
        return np.where(self._bytes(values) != 0, _TRUE_HASH, _FALSE_HASH).astype(np.int32)

    def _bytes(self, values: pa.Array) -> Bytes:
        return cast(Bytes, numbers(scalar_column(values, self.arrow_type, self.type).cast(pa.uint8()), "u1"))


def _read_json(reader: Reader) -> Json:
    return {"type": "boolean", "v": reader.bool()}


BOOLEANS = scalar_support(
    BooleanCodec(),
    _read_json,
    plain_snapshot(BOOLEAN, plain_class("BooleanSerializer")),
    plain_scalar(lambda value: 1231 if value.as_py() else 1237),
)
