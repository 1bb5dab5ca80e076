"""Numbers, booleans and void: fixed width, no length in front.

Source: flink-formats.md sections 6.2 and 1.2.
"""

from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.model.types import BOOLEAN, BYTE, CHAR, DOUBLE, FLOAT, GLOBAL_WINDOW, INT, LONG, SHORT, VOID, Scalar
from statelib.serializers.columns.arrow import bad_type, number_array, numbers, scalar_column
from statelib.serializers.columns.codec import Codec, Cursor, Hashes
from statelib.serializers.columns.cursors import fixed, read_unsigned, refuse, require
from statelib.serializers.columns.java_hashes import field_hash, fold_long, no_key_hash, nulls_to_zero, signed
from statelib.wire.ragged import Bytes, Ragged, from_fixed

_BOOL, _NULL = pa.bool_(), pa.null()
_CANONICAL_NAN = {"f4": 0x7FC00000, "f8": 0x7FF8000000000000}


@dataclass(frozen=True)
class NumberCodec:
    """``slot`` is numpy's name of the number. Floats keep the bits of a NaN."""

    type: Scalar
    arrow_type: pa.DataType
    slot: str

    @property
    def width(self) -> int:
        return int(self.slot[1])

    @property
    def reported_length(self) -> int:
        return self.width

    def encode(self, values: pa.Array) -> Ragged:
        return fixed(numbers(scalar_column(values, self.arrow_type, self.type), f"u{self.width}"))

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        end = self.skip(data, cursor, limit)
        return number_array(read_unsigned(data, cursor, self.width), self.arrow_type), end

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:  # noqa: ARG002
        require(cursor, self.width, limit, self.type)
        return cursor + self.width

    def java_hash(self, values: pa.Array) -> Hashes:
        return signed(nulls_to_zero(self._hash, values))

    def deep_hash(self, values: pa.Array) -> Hashes:
        return field_hash(values, self.java_hash(values))

    def _hash(self, values: pa.Array) -> Hashes:
        slots = numbers(scalar_column(values, self.arrow_type, self.type), self.slot)
        if self.slot in _CANONICAL_NAN:
            nan = np.isnan(cast(npt.NDArray[np.floating], slots))
            slots = slots.view(f"u{self.width}").copy()
            slots[nan] = _CANONICAL_NAN[self.slot]
        if self.width == 8:
            return signed(fold_long(slots))
        return slots.view(np.int32) if self.width == 4 else slots.astype(np.int32)


@dataclass(frozen=True)
class BooleanCodec:
    """One byte, 1 or 0; as in Java, any byte but 0 reads as true."""

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
        return signed(nulls_to_zero(lambda v: np.where(self._bytes(v) != 0, 1231, 1237).astype(np.int32), values))

    def deep_hash(self, values: pa.Array) -> Hashes:
        return field_hash(values, self.java_hash(values))

    def _bytes(self, values: pa.Array) -> Bytes:
        return cast(Bytes, numbers(scalar_column(values, self.arrow_type, self.type).cast(pa.uint8()), "u1"))


@dataclass(frozen=True)
class VoidCodec:
    """One byte 00 and no information: the namespace of plain state, ``java.lang.Void``, and the global window."""

    type: Scalar = VOID
    arrow_type: pa.DataType = _NULL
    width: int = 1
    reported_length: int = 0

    def encode(self, values: pa.Array) -> Ragged:
        if values.null_count != len(values):
            raise bad_type(values.type, self.arrow_type, self.type)
        return from_fixed(np.zeros((len(values), 1), np.uint8))

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        end = self.skip(data, cursor, limit)
        return pa.nulls(len(cursor)), end

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        require(cursor, 1, limit, self.type)
        refuse(data[cursor] != 0, data[cursor], self.type, "byte 0", "bad-void")
        return cursor + 1

    def java_hash(self, values: pa.Array) -> Hashes:  # noqa: ARG002
        raise no_key_hash(self.type)

    def deep_hash(self, values: pa.Array) -> Hashes:
        """As a field of a Row it is always null."""
        return np.zeros(len(values), np.int32)


GLOBAL_WINDOWS = VoidCodec(GLOBAL_WINDOW, reported_length=1)
LONG_CODEC = NumberCodec(LONG, pa.int64(), "i8")
NUMBERS: tuple[Codec, ...] = (
    NumberCodec(CHAR, pa.uint16(), "u2"),
    NumberCodec(BYTE, pa.int8(), "i1"),
    NumberCodec(SHORT, pa.int16(), "i2"),
    NumberCodec(INT, pa.int32(), "i4"),
    LONG_CODEC,
    NumberCodec(FLOAT, pa.float32(), "f4"),
    NumberCodec(DOUBLE, pa.float64(), "f8"),
)
