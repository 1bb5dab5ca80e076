"""BigInteger and BigDecimal: numbers of any size, which columns hold as text. Null is a value of theirs.

Both are handled value by value.

Source: docs/spec/formats.md#scalars, #hash-codes-of-keys.
"""

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from statelib.errors import InvalidRequestError
from statelib.model.types import BIGDECIMAL, BIGINT, Scalar
from statelib.serializers.aspects.json_values import NULL, Json
from statelib.serializers.aspects.plain_hashing import MASK, combined, plain_scalar
from statelib.serializers.aspects.snapshot_payloads import plain_class, plain_snapshot
from statelib.serializers.aspects.type_support import scalar_support
from statelib.serializers.columns.arrow import scalar_column
from statelib.serializers.columns.codec import Cursor, Hashes
from statelib.serializers.columns.cursors import read_unsigned, refuse, require
from statelib.serializers.columns.java_hashes import field_hash
from statelib.wire.json_text import integer_text
from statelib.wire.ragged import Bytes, Ragged, from_list, gather
from statelib.wire.reader import Reader

_STRING = pa.string()
CONSTANTS = {1: 0, 2: 1, 3: 10}
"""The numbers that Flink stores as a length alone, without digits, if they are the constants of ``BigInteger``. The
unscaled number of a ``BigDecimal`` is; other BigIntegers of these values usually are not."""
_LENGTHS = {number: length for length, number in CONSTANTS.items()}
_LENGTH_BYTES = 4
_INTEGER = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True)
class BigNumberCodec:
    """The codec of big numbers. ``scaled``: a BigDecimal, whose scale follows the unscaled number."""

    type: Scalar
    scaled: bool
    arrow_type: pa.DataType = _STRING
    width: int = -1
    reported_length: int = -1

    def encode(self, values: pa.Array) -> Ragged:
        texts = scalar_column(values, self.arrow_type, self.type).to_pylist()
        return from_list([self._bytes(*self._parsed(text)) for text in texts])

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        end = self.skip(data, cursor, limit)
        texts = [self._text(raw) for raw in gather(data, cursor, end - cursor).to_list()]
        return pa.array(texts, self.arrow_type), end

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        require(cursor, _LENGTH_BYTES, limit, self.type)
        length = read_unsigned(data, cursor, _LENGTH_BYTES, "i4").astype(np.int64)
        refuse(length < 0, length, self.type, "a length of 0 or more", "bad-length")
        magnitude = np.where(length > 3, length - 4, 0)
        scale = np.where((length > 0) & self.scaled, 4, 0)
        require(cursor + _LENGTH_BYTES, magnitude + scale, limit, self.type)
        return cursor + _LENGTH_BYTES + magnitude + scale

    def java_hash(self, values: pa.Array) -> Hashes:
        return np.array([self._hash(text) for text in values.to_pylist()], np.int64).astype(np.int32)

    def deep_hash(self, values: pa.Array) -> Hashes:
        return field_hash(values, self.java_hash(values))

    def _hash(self, text: str | None) -> int:
        if text is None:
            return 0
        unscaled, scale = self._parsed(text)
        words = abs(unscaled)
        total = 0
        for shift in range((words.bit_length() + 31) // 32 * 32 - 32, -1, -32):
            total = (31 * total + (words >> shift & 0xFFFFFFFF)) & 0xFFFFFFFF
        total = total if unscaled >= 0 else -total
        return _signed(31 * total + scale if self.scaled else total)

    def _parsed(self, text: str) -> tuple[int, int]:
        """Return the unscaled number and the scale of a text."""
        try:
            if not self.scaled:
                return int(Decimal(text)) if _INTEGER.fullmatch(text) else int(text), 0
            sign, digits, exponent = Decimal(text).as_tuple()
            unscaled = int(Decimal((0, digits, 0)))
            scale = -int(exponent)
            if not -(2**31) <= scale < 2**31:
                raise ValueError(f"a scale of {scale}")
            return -unscaled if sign else unscaled, scale
        except (ValueError, InvalidOperation) as error:
            raise InvalidRequestError(
                f"column of type {self.type}: expected a number, found {text[:100]!r}", kind="bad-value"
            ) from error

    def _bytes(self, unscaled: int, scale: int) -> bytes:
        magnitude = unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)
        number = (len(magnitude) + 4).to_bytes(4, "big") + magnitude
        if not self.scaled:
            return number
        length = _LENGTHS.get(unscaled)
        return (number if length is None else length.to_bytes(4, "big")) + scale.to_bytes(4, "big", signed=True)

    def _text(self, raw: bytes) -> str | None:
        length = int.from_bytes(raw[:_LENGTH_BYTES], "big")
        if length == 0:
            return None
        rest = raw[_LENGTH_BYTES:]
        unscaled = CONSTANTS.get(length, int.from_bytes(rest[: max(length - 4, 0)], "big", signed=True))
        if not self.scaled:
            return integer_text(unscaled)
        scale = int.from_bytes(rest[-4:], "big", signed=True)
        digits = tuple(map(int, integer_text(abs(unscaled))))
        return str(Decimal((int(unscaled < 0), digits, -scale)))


def _signed(word: int) -> int:
    return (word + 2**31) % 2**32 - 2**31


def _read_integer(reader: Reader) -> int | None:
    length = reader.i32()
    if length == 0:
        return None
    if length in CONSTANTS:
        return CONSTANTS[length]
    return int.from_bytes(reader.take(length - 4), "big", signed=True)


def _read_bigint(reader: Reader) -> Json:
    value = _read_integer(reader)
    return NULL if value is None else {"type": "bigint", "v": integer_text(value)}


def read_bigdecimal(reader: Reader) -> Json:
    """Read a BigDecimal as typed JSON."""
    value = _read_integer(reader)
    return NULL if value is None else decimal_json(value, reader.i32())


def decimal_json(unscaled: int, scale: int) -> Json:
    """Return the typed JSON of a decimal number."""
    return {"type": "bigdecimal", "unscaled": integer_text(unscaled), "scale": scale}


def _plain_integer(number: int) -> int:
    magnitude = abs(number)
    words = [magnitude >> shift & MASK for shift in range(0, max(magnitude.bit_length(), 1), 32)]
    return combined(reversed(words), 0) * (-1 if number < 0 else 1) & MASK


def _plain_decimal(value: Any) -> int:
    sign, digits, exponent = Decimal(value.as_py()).as_tuple()
    unscaled = int("".join(map(str, digits)) or "0") * (-1 if sign else 1)
    return 31 * _plain_integer(unscaled) - int(exponent) & MASK


PLAIN_DECIMAL = plain_scalar(_plain_decimal)
"""The plain hash of BigDecimals."""

BIG_NUMBERS = (
    scalar_support(
        BigNumberCodec(BIGINT, scaled=False),
        _read_bigint,
        plain_snapshot(BIGINT, plain_class("BigIntSerializer")),
        plain_scalar(lambda value: _plain_integer(int(value.as_py()))),
    ),
    scalar_support(
        BigNumberCodec(BIGDECIMAL, scaled=True),
        read_bigdecimal,
        plain_snapshot(BIGDECIMAL, plain_class("BigDecSerializer")),
        PLAIN_DECIMAL,
    ),
)
