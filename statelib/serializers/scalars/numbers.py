"""Numbers: byte, short, int, long, char, float and double, as big-endian bytes of fixed width.

Source: docs/spec/formats.md#scalars, #hash-codes-of-keys.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.model.types import BYTE, CHAR, DOUBLE, FLOAT, INT, LONG, SHORT, Scalar
from statelib.serializers.aspects.json_values import Json
from statelib.serializers.aspects.plain_hashing import PlainHash, folded, plain_scalar
from statelib.serializers.aspects.snapshot_payloads import plain_class, plain_snapshot
from statelib.serializers.aspects.type_support import TypeSupport, scalar_support
from statelib.serializers.columns.arrow import number_array, numbers, scalar_column
from statelib.serializers.columns.codec import Codec, Cursor, Hashes
from statelib.serializers.columns.cursors import fixed, read_unsigned, require
from statelib.serializers.columns.java_hashes import field_hash, fold_long, nulls_to_zero, signed
from statelib.serializers.scalars.float_text import java_text
from statelib.wire.ragged import Bytes, Ragged
from statelib.wire.reader import Reader

_CANONICAL_NAN = {"f4": 0x7FC00000, "f8": 0x7FF8000000000000}


@dataclass(frozen=True)
class NumberCodec:
    """The codec of a number. ``slot`` is numpy's name of it. A NaN keeps its bits."""

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


def _integer(codec: Codec, read: Callable[[Reader], int], hash_of: Callable[[int], int]) -> TypeSupport[Scalar]:
    name = str(codec.type)

    def read_json(reader: Reader) -> Json:
        return {"type": name, "v": read(reader)}

    return _support(codec, read_json, plain_scalar(lambda value: hash_of(value.as_py())))


def _float(codec: Codec, layout: str, plain_hash: PlainHash) -> TypeSupport[Scalar]:
    def read_json(reader: Reader) -> Json:
        return float_json(layout, bytes(reader.take(struct.calcsize(layout))))

    return _support(codec, read_json, plain_hash)


def _support(codec: Codec, read_json: Callable[[Reader], Json], plain_hash: PlainHash) -> TypeSupport[Scalar]:
    name = plain_class(f"{str(codec.type).capitalize()}Serializer")
    return scalar_support(codec, read_json, plain_snapshot(codec.type, name), plain_hash)


def float_json(layout: str, raw: bytes) -> Json:
    """Return the typed JSON of a float (``layout`` ``>f``) or double (``>d``), with its bits, because there are
    many NaN."""
    (value,) = struct.unpack(layout, raw)
    single = layout == ">f"
    return {"type": "float" if single else "double", "v": java_text(value, single=single), "bits": raw.hex()}


def _plain_float(value: Any) -> int:
    number = value.as_py()
    return 0x7FC00000 if number != number else int(struct.unpack(">I", struct.pack(">f", number))[0])  # noqa: PLR0124


def _plain_double(value: Any) -> int:
    number = value.as_py()
    bits = 0x7FF8000000000000 if number != number else struct.unpack(">Q", struct.pack(">d", number))[0]  # noqa: PLR0124
    return folded(int(bits))


LONG_CODEC = NumberCodec(LONG, pa.int64(), "i8")
NUMBERS = (
    _integer(NumberCodec(BYTE, pa.int8(), "i1"), Reader.i8, int),
    _integer(NumberCodec(SHORT, pa.int16(), "i2"), Reader.i16, int),
    _integer(NumberCodec(INT, pa.int32(), "i4"), Reader.i32, int),
    _integer(LONG_CODEC, Reader.i64, folded),
    _float(NumberCodec(FLOAT, pa.float32(), "f4"), ">f", plain_scalar(_plain_float)),
    _float(NumberCodec(DOUBLE, pa.float64(), "f8"), ">d", plain_scalar(_plain_double)),
    _integer(NumberCodec(CHAR, pa.uint16(), "u2"), Reader.u16, int),
)
