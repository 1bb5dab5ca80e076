"""The codec that arrays, lists and sets share: an i32 count, then the elements.

Source: docs/spec/formats.md#containers.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statelib.model.types import StateType
from statelib.serializers.aspects.steps import Step, StepsOf, chain, counted_elements, counted_widths
from statelib.serializers.columns.arrow import list_bounds, nested_column, small_offsets
from statelib.serializers.columns.codec import Codec, Cursor
from statelib.serializers.columns.cursors import fixed, read_count
from statelib.serializers.columns.elements import counted, strided
from statelib.serializers.columns.unkeyed import Unkeyed
from statelib.wire.ragged import Bytes, Offsets, Ragged, join, offsets_of


@dataclass(frozen=True)
class SequenceCodec(Unkeyed):
    """The codec of a count and that many elements. It has no hash, because arrays and sets are no keys."""

    type: StateType
    element: Codec
    width: int = -1
    reported_length: int = -1

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.list_(self.element.arrow_type)

    def encode(self, values: pa.Array) -> Ragged:
        elements, offsets = self.elements(values)
        return join([fixed(np.diff(offsets).astype("i4")), rows_of_elements(self.element.encode(elements), offsets)])

    def elements(self, values: pa.Array) -> tuple[pa.Array, Offsets]:
        """Return all elements, row after row, and the offsets at which each row's share begins."""
        values = nested_column(values, self.arrow_type, self.type)
        bounds = list_bounds(values)
        return values.values.slice(bounds[0], bounds[-1] - bounds[0]), bounds - bounds[0]

    def from_elements(self, elements: pa.Array, offsets: Offsets) -> pa.Array:
        """Return a column of lists. This is the inverse of :meth:`elements`."""
        bounds = pa.array(small_offsets(offsets, self.type))
        return pa.ListArray.from_arrays(bounds, elements, type=self.arrow_type)

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        counts, starts, end = self.starts(data, cursor, limit)
        elements, _ = self.element.decode(data, starts, np.repeat(limit, counts))
        return self.from_elements(elements, offsets_of(counts)), end

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        if self.element.width > 0:
            counts = read_count(data, cursor, limit, self.element.width, self.type)
            return cursor + 4 + counts * self.element.width
        return self.starts(data, cursor, limit)[2]

    def steps(self, steps_of: StepsOf) -> list[Step]:
        width = self.element.width
        return [counted_widths(width) if width > 0 else counted_elements(chain(steps_of(self.element)))]

    def starts(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[Cursor, Cursor, Cursor]:
        """Return the counts, the starts of all elements, row after row, and the cursors after the rows."""
        width = self.element.width
        counts = read_count(data, cursor, limit, max(width, 1), self.type)
        if width > 0:
            return counts, strided(cursor + 4, counts, width), cursor + 4 + counts * width
        return counts, *counted(self.element.skip, data, cursor + 4, limit, counts)


def rows_of_elements(elements: Ragged, offsets: Offsets) -> Ragged:
    """Return one row of bytes per list. The bytes of its elements already follow each other."""
    return Ragged(elements.data, elements.offsets[offsets])
