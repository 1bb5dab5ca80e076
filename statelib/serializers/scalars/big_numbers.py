"""BigInteger and BigDecimal: any size, hence text in columns, one value at a time; ``null`` is a value of theirs.

Source: flink-formats.md sections 6.2 and 1.2.
"""

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import numpy as np
import pyarrow as pa

from statelib.errors import InvalidRequestError
from statelib.model.types import Scalar
from statelib.serializers.columns.arrow import scalar_column
from statelib.serializers.columns.codec import Cursor, Hashes
from statelib.serializers.columns.cursors import read_unsigned, refuse, require
from statelib.serializers.columns.java_hashes import field_hash
from statelib.wire.json_text import integer_text
from statelib.wire.ragged import Bytes, Ragged, from_list, gather

_STRING = pa.string()
_CONSTANTS = {1: 0, 2: 1, 3: 10}
"""Lengths that stand for a BigInteger of its own."""
_HEAD = 4
_INTEGER = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True)
class BigNumberCodec:
    """``scaled``: a BigDecimal, whose scale follows the unscaled number."""

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
        require(cursor, _HEAD, limit, self.type)
        size = read_unsigned(data, cursor, _HEAD, "i4").astype(np.int64)
        refuse(size < 0, size, self.type, "a length of 0 or more", "bad-length")
        magnitude = np.where(size > 3, size - 4, 0)
        scale = np.where((size > 0) & self.scaled, 4, 0)
        require(cursor + _HEAD, magnitude + scale, limit, self.type)
        return cursor + _HEAD + magnitude + scale

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
        try:
            if not self.scaled:
                return int(Decimal(text)) if _INTEGER.fullmatch(text) else int(text), 0
            sign, digits, exponent = Decimal(text).as_tuple()
            unscaled = int(Decimal((0, digits, 0)))
            return -unscaled if sign else unscaled, -int(exponent)
        except (ValueError, InvalidOperation) as error:
            raise InvalidRequestError(
                f"column of type {self.type}: expected a number, found {text[:100]!r}", kind="bad-value"
            ) from error

    def _bytes(self, unscaled: int, scale: int) -> bytes:
        magnitude = unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)
        number = (len(magnitude) + 4).to_bytes(4, "big") + magnitude
        return number + scale.to_bytes(4, "big", signed=True) if self.scaled else number

    def _text(self, raw: bytes) -> str | None:
        size = int.from_bytes(raw[:_HEAD], "big")
        if size == 0:
            return None
        rest = raw[_HEAD:]
        unscaled = _CONSTANTS.get(size, int.from_bytes(rest[: max(size - 4, 0)], "big", signed=True))
        if not self.scaled:
            return integer_text(unscaled)
        scale = int.from_bytes(rest[-4:], "big", signed=True)
        digits = tuple(map(int, integer_text(abs(unscaled))))
        return str(Decimal((int(unscaled < 0), digits, -scale)))


def _signed(word: int) -> int:
    return (word + 2**31) % 2**32 - 2**31
