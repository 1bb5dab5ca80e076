"""The aggregate ``bitmap``: the set of small whole numbers as bits, in the form of Spark's bitmap functions."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.aggregates.grouping import Grouping, one_array, valid_rows
from statelib.aggregates.kinds import AggregateSpec
from statelib.aggregates.sketches.stored import StoredSketches, merged_in_parts, null_where
from statelib.errors import InvalidRequestError
from statelib.serializers.columns.arrow import byte_array
from statelib.wire.ragged import Ragged, copy_spans, offsets_of

POSITIONS = 32_768
"""The number of bits of a bitmap of Spark."""
Rows = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Bitmap:
    """``bitmap``: bit p % 8 of byte p // 8 is set if the value p occurred. Zeros at the end are left out."""

    spec: AggregateSpec

    def partial(self, events: pa.Table, grouping: Grouping) -> pa.Array:
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
        bits = np.left_shift(1, positions % 8).astype(np.uint8)
        none_before = StoredSketches.of(pa.nulls(0, pa.binary()))
        return _bitmaps(grouping.codes[rows], positions // 8, bits, grouping.size, none_before)

    def merge(self, before: pa.Array, more: pa.Array) -> pa.Array:
        return merged_in_parts(self._merged, before, more)

    def _merged(self, before: pa.Array, more: pa.Array) -> pa.Array:
        stored = StoredSketches.of(before)
        stored = stored.taken(stored.lengths > 0)
        is_short = stored.data[stored.starts + stored.lengths - 1] != 0
        parts = [_bits(part) for part in (stored.taken(~is_short), StoredSketches.of(more))]
        codes, places, bits = (np.concatenate(column) for column in zip(*parts, strict=True))
        return _bitmaps(codes, places, bits, len(before), stored.taken(is_short))


def _bits(stored: StoredSketches) -> tuple[Rows, Rows, Bits]:
    """Return (row, index of the byte, byte) of the bytes that are not 0."""
    rows = stored.copied()
    used = np.flatnonzero(rows.data)
    counts = np.diff(np.searchsorted(used, rows.offsets))
    return np.repeat(stored.rows, counts), used - np.repeat(rows.starts, counts), rows.data[used]


def _bitmaps(codes: Rows, places: Rows, bits: Bits, size: int, before: StoredSketches) -> pa.Array:
    """Return the bitmap of each group, null for a group without bits. ``places`` are the indexes of the bytes. The bits
    are added to those of ``before``, which are copied as they are: their last bytes are not 0."""
    lengths = np.zeros(size, np.int64)
    lengths[before.rows] = before.lengths
    np.maximum.at(lengths, codes, places + 1)
    offsets = offsets_of(lengths)
    data = np.zeros(int(offsets[-1]), np.uint8)
    copy_spans(before.data, before.starts, data, offsets[before.rows], before.lengths)
    np.bitwise_or.at(data, offsets[codes] + places, bits)
    return null_where(lengths == 0, byte_array(Ragged(data, offsets), pa.binary()))
