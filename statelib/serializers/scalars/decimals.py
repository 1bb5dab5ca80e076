"""Decimals of a fixed scale: Java's BigDecimal, as exact decimal columns.

``scalars/big_numbers.py`` handles BigDecimals of any scale, value by value.

Source: docs/spec/formats.md#scalars, #hash-codes-of-keys.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.errors import CorruptStateError
from statelib.model.types import Decimal
from statelib.serializers.aspects.snapshot_payloads import PLAIN_VERSION, SnapshotSupport, plain_class, write_head
from statelib.serializers.aspects.type_support import TypeSupport, no_last_part
from statelib.serializers.columns.arrow import present, scalar_column, with_nulls
from statelib.serializers.columns.codec import Cursor, Hashes
from statelib.serializers.columns.cursors import fixed, read_unsigned, refuse, require
from statelib.serializers.columns.decimal_words import (
    DECIMAL_BYTES,
    Words,
    big_endian_bytes,
    decimal_array,
    decimal_words,
    shortest_sizes,
    words_of_bytes,
)
from statelib.serializers.columns.java_hashes import field_hash, signed
from statelib.serializers.scalars.big_numbers import CONSTANTS, PLAIN_DECIMAL, read_bigdecimal
from statelib.wire.ragged import Bytes, Ragged, gather, join

_LENGTH_BYTES, _SCALE_BYTES = 4, 4


@dataclass(frozen=True)
class BigDecimalCodec:
    """The codec of decimals. Flink writes the unscaled numbers 0, 1 and 10 as a length alone, because ``BigDecimal``
    takes them from the constants of ``BigInteger``. A key must have the same bytes, or Flink does not find it."""

    type: Decimal
    width: int = -1
    reported_length: int = -1

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.decimal128(self.type.precision, self.type.scale)

    def encode(self, values: pa.Array) -> Ragged:
        words = decimal_words(scalar_column(values, self.arrow_type, self.type))
        sizes = shortest_sizes(words)
        lengths = sizes + _LENGTH_BYTES
        for length, number in CONSTANTS.items():
            rows = (words[:, 0] == number) & (words[:, 1] == 0)
            lengths[rows], sizes[rows] = length, 0
        ends = np.arange(1, len(words) + 1, dtype=np.int64) * DECIMAL_BYTES
        magnitudes = gather(big_endian_bytes(words).reshape(-1), ends - sizes, sizes)
        scales = np.full(len(words), self.type.scale, "i4")
        return join([fixed(lengths.astype("i4")), magnitudes, fixed(scales)])

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        end = self.skip(data, cursor, limit)
        valid = end - cursor > _LENGTH_BYTES
        start, stop = cursor[valid] + _LENGTH_BYTES, end[valid] - _SCALE_BYTES
        scales = read_unsigned(data, stop, _SCALE_BYTES, "i4")
        refuse(scales != self.type.scale, scales, self.type, f"the scale {self.type.scale}", "bad-decimal")
        return with_nulls(self._values(data, start, stop), valid), end

    def _values(self, data: Bytes, start: Cursor, stop: Cursor) -> pa.Array:
        words = np.zeros((len(start), 2), np.int64)
        written = np.flatnonzero(stop > start)
        words[written] = words_of_bytes(data, start[written], (stop - start)[written], self.type, "bad-decimal")
        constant = np.flatnonzero(stop == start)
        lengths = read_unsigned(data, start[constant] - _LENGTH_BYTES, _LENGTH_BYTES, "i4")
        for length, number in CONSTANTS.items():
            words[constant[lengths == length], 0] = number
        try:
            return decimal_array(words, self.arrow_type)
        except pa.ArrowInvalid as error:
            raise CorruptStateError(f"{self.type}: {error}", kind="bad-decimal") from error

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        require(cursor, _LENGTH_BYTES, limit, self.type)
        length = read_unsigned(data, cursor, _LENGTH_BYTES, "i4").astype(np.int64)
        bad = (length < 0) | (length == _LENGTH_BYTES) | (length > _LENGTH_BYTES + DECIMAL_BYTES)
        refuse(bad, length, self.type, "a length of 0 to 3 or 5 to 20", "bad-decimal")
        rest = np.where(length > 3, length - _LENGTH_BYTES, 0) + np.where(length > 0, _SCALE_BYTES, 0)
        require(cursor + _LENGTH_BYTES, rest, limit, self.type)
        return np.asarray(cursor + _LENGTH_BYTES + rest, np.int64)

    def java_hash(self, values: pa.Array) -> Hashes:
        numbers, valid = present(values.cast(self.arrow_type))
        hashes = np.zeros(len(values), np.int32)
        hashes[valid] = signed(_unscaled_hashes(decimal_words(numbers)) * np.uint32(31) + np.uint32(self.type.scale))
        return hashes

    def deep_hash(self, values: pa.Array) -> Hashes:
        return field_hash(values, self.java_hash(values))


def _unscaled_hashes(words: Words) -> npt.NDArray[np.uint32]:
    """Return ``BigInteger.hashCode`` of each number: the hash of the words of its magnitude, times its sign."""
    negative = words[:, 1] < 0
    flip = np.where(negative, -1, 0)
    low = (words[:, 0] ^ flip).view(np.uint64) + negative.astype(np.uint64)
    carried = negative & (low == 0)
    high = (words[:, 1] ^ flip).view(np.uint64) + carried.astype(np.uint64)
    total = np.zeros(len(words), np.uint32)
    for word in (high >> np.uint64(32), high, low >> np.uint64(32), low):
        total = total * np.uint32(31) + word.astype(np.uint32)
    return np.asarray(np.where(negative, np.uint32(0) - total, total), np.uint32)


DECIMALS = TypeSupport(
    of=Decimal,
    codec=lambda type_, _codec_of: BigDecimalCodec(type_),
    json_reader=lambda _type, _reader_of: read_bigdecimal,
    snapshot=SnapshotSupport(
        lambda writer, _type, _write: write_head(writer, plain_class("BigDecSerializer"), PLAIN_VERSION)
    ),
    plain_hash=PLAIN_DECIMAL,
    last_parts=no_last_part,
)
