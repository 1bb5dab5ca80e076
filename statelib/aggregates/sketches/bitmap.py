"""The aggregate ``bitmap``: the set of small whole numbers as bits, in the form of Spark's bitmap functions."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelib.aggregates.grouping import Grouping, one_array, valid_rows
from statelib.aggregates.kinds import AggregateSpec
from statelib.aggregates.sketches.stored import folded_in_parts, merged_in_parts, null_where
from statelib.errors import InvalidRequestError
from statelib.serializers.columns.arrow import byte_array, byte_rows
from statelib.wire.ragged import Ragged, join, offsets_of

POSITIONS = 32_768
"""The number of bits of a bitmap of Spark."""
Rows = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Bitmap:
    """``bitmap``: bit p % 8 of byte p // 8 is set if the value p occurred. Zeros at the end are left out."""

    spec: AggregateSpec

    def partial(self, events: pa.Table, grouping: Grouping) -> pa.Array:
        return self.fold(pa.nulls(grouping.size, pa.binary()), events, grouping)

    def fold(self, before: pa.Array, events: pa.Table, grouping: Grouping) -> pa.Array:
        column = one_array(events[self.spec.column])
        rows = valid_rows([column])
        positions = column.take(pa.array(rows)).cast(pa.int64()).to_numpy()
        outside = (positions < 0) | (positions >= POSITIONS)
        if outside.any():
            raise InvalidRequestError(
                f"bitmap of {self.spec.column}: expected numbers from 0 to {POSITIONS - 1}, "
                f"found {positions[outside][0]}",
                kind="bitmap-position",
                hint="compute the column with bitmap_bit_position(...), in a map whose user_key is "
                "bitmap_bucket_number(...)",
            )
        return folded_in_parts(_with_positions, before, grouping.codes[rows], positions)

    def merge(self, before: pa.Array, more: pa.Array) -> pa.Array:
        return merged_in_parts(_merged, before, more)


def _with_positions(before: pa.Array, codes: Rows, positions: Rows) -> pa.Array:
    return _with_bits(before, codes, positions // 8, np.left_shift(1, positions % 8).astype(np.uint8))


def _merged(before: pa.Array, more: pa.Array) -> pa.Array:
    return _with_bits(before, *_bits(more.fill_null(b"")))


def _with_bits(before: pa.Array, codes: Rows, places: Rows, bits: Bits) -> pa.Array:
    """Return bitmaps with more bits. ``codes`` are their rows, and ``places`` the indexes of their bytes."""
    before = before.fill_null(b"")
    if (ends := _ends_in_zero(byte_rows(before))).any():
        nothing, mask = pa.scalar(b"", before.type), pa.array(ends)
        own_codes, own_places, own_bits = _bits(pc.if_else(mask, before, nothing))
        codes, places = np.concatenate([own_codes, codes]), np.concatenate([own_places, places])
        bits = np.concatenate([own_bits, bits])
        before = pc.if_else(mask, nothing, before)
    stored = byte_rows(before)
    lengths = stored.lengths
    np.maximum.at(lengths, codes, places + 1)
    added = offsets_of(lengths - stored.lengths)
    rows = join([stored, Ragged(np.zeros(added[-1], np.uint8), added)])
    np.bitwise_or.at(rows.data, rows.offsets[codes] + places, bits)
    return null_where(lengths == 0, byte_array(rows, pa.binary()))


def _ends_in_zero(rows: Ragged) -> npt.NDArray[np.bool_]:
    """Return whether the last byte of each row is 0."""
    result, filled = np.zeros(len(rows), np.bool_), np.flatnonzero(rows.lengths)
    result[filled] = rows.data[rows.offsets[filled + 1] - 1] == 0
    return result


def _bits(bitmaps: pa.Array) -> tuple[Rows, Rows, Bits]:
    """Return (row, index of the byte in its row, byte) of the bytes that are not 0."""
    rows = byte_rows(bitmaps)
    begin, end = int(rows.offsets[0]), int(rows.offsets[-1])
    words = np.zeros(-(-(end - begin) // 8), np.uint64)  # there are few bytes that are not 0, so most words are 0, too
    words.view(np.uint8)[: end - begin] = rows.data[begin:end]
    word = np.flatnonzero(words)
    of_words, byte = np.nonzero(words[word].view(np.uint8).reshape(-1, 8))
    used = begin + 8 * word[of_words] + byte
    counts = np.diff(np.searchsorted(used, rows.offsets))
    return np.repeat(np.arange(len(rows)), counts), used - np.repeat(rows.starts, counts), rows.data[used]
