"""Slots: how values lie in binary rows and arrays, for many rows at once.

A slot holds a value, or the offset and the size of bytes that lie after all slots of its row or array.

Source: docs/spec/formats.md#binary-rows.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from statelib.errors import CorruptStateError
from statelib.model.sql import LogicalType
from statelib.model.types import Sql
from statelib.serializers.columns.codec import Cursor
from statelib.wire.ragged import Bytes, Offsets, Ragged, join, offsets_of

SLOT_BYTES = 8
Valid = npt.NDArray[np.bool_]
Written = tuple[Bytes, Ragged]
"""Slots of values without nulls, a matrix (rows, 8), and the bytes that lie after the slots. A slot refers to them as
if they began where its row or array begins; :func:`moved` adds where they really begin."""


@dataclass(frozen=True)
class Spans:
    """One stretch of bytes per row: ``data[start:end]``. Offsets in a row or array count from its ``start``."""

    data: Bytes
    start: Cursor
    end: Cursor

    def take(self, rows: npt.NDArray[np.generic]) -> "Spans":
        """Return the spans of these rows."""
        return Spans(self.data, self.start[rows], self.end[rows])

    def check(self, at: Cursor, size: Cursor | int, what: LogicalType) -> None:
        """Raise CorruptStateError (``bad-binary-row``) unless ``size`` bytes at ``at`` are within the span."""
        bad = (at < self.start) | (np.asarray(size) < 0) | (at + size > self.end)
        if bad.any():
            row = int(np.argmax(bad))
            raise CorruptStateError(
                f"{Sql(what)} in row {row}: expected a value within {self.end[row] - self.start[row]} bytes, "
                f"found one at byte {at[row] - self.start[row]}",
                kind="bad-binary-row",
            )

    def numbers(self, at: Cursor, dtype: str, what: LogicalType) -> npt.NDArray[np.generic]:
        """Return the little-endian number at each of the positions ``at``."""
        width = np.dtype(dtype).itemsize
        self.check(at, width, what)
        return np.ascontiguousarray(self.data[at[:, None] + np.arange(width)]).view(dtype).reshape(-1)

    def outside(self, at: Cursor, what: LogicalType) -> tuple[Cursor, Cursor]:
        """Return start and end of the bytes that the slots at ``at`` refer to: offset in the upper half, size in the
        lower one.

        Raise CorruptStateError (``bad-binary-row``), also if values share their bytes: columns of them could be far
        larger than the file."""
        slot = self.numbers(at, "<u8", what).astype(np.uint64)
        start = self.start + (slot >> np.uint64(32)).astype(np.int64)
        size = (slot & np.uint64(0xFFFFFFFF)).astype(np.int64)
        self.check(start, size, what)
        if int(size.sum()) > len(self.data):
            raise CorruptStateError(
                f"{Sql(what)}: values of {size.sum()} bytes within {len(self.data)}", kind="bad-binary-row"
            )
        return start, start + size


def only_slots(numbers: npt.NDArray[np.generic]) -> Written:
    """Return slots that hold these numbers, with no bytes after them."""
    return padded(numbers), Ragged(np.empty(0, np.uint8), np.zeros(len(numbers) + 1, np.int64))


def padded(numbers: npt.NDArray[np.generic]) -> Bytes:
    """Return slots that hold these numbers, with zeros after them."""
    table = np.zeros((len(numbers), SLOT_BYTES), np.uint8)
    table[:, : numbers.dtype.itemsize] = little_endian(numbers)
    return table


def little_endian(numbers: npt.NDArray[np.generic]) -> Bytes:
    """Return native numbers as a matrix (rows, width) of little-endian bytes."""
    raw = np.ascontiguousarray(numbers.astype(numbers.dtype.newbyteorder("<"))).view(np.uint8)
    return raw.reshape(len(numbers), numbers.dtype.itemsize)


def filled(rows: Ragged) -> Ragged:
    """Return each row with zeros after it, up to a multiple of eight bytes."""
    zeros = -rows.lengths % SLOT_BYTES
    return join([rows, Ragged(np.zeros(int(zeros.sum()), np.uint8), offsets_of(zeros))])


def moved(slots: Bytes, lengths: Offsets, starts: Cursor) -> Bytes:
    """Return the slots, of which those with ``lengths`` > 0 bytes after the slots refer to them at ``starts``."""
    offsets = np.where(lengths > 0, starts, 0).astype(np.uint64) * np.uint64(1 << 32)
    return little_endian((slots.view("<u8").reshape(-1) + offsets).astype("<u8"))
