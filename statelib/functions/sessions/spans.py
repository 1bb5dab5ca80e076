"""Windows of several keys as columns, and the merging of those that overlap or touch."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.aggregates.grouping import Grouping
from statelib.model.types import TIME_WINDOW
from statelib.serializers.columns.arrow import number_array, numbers
from statelib.serializers.registry import codec_of
from statelib.serializers.scalars.windows import MOMENT
from statelib.wire.sorting import order_in_groups, order_of

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_BITS = 63
"""The bits of a number that is not negative."""


@dataclass(frozen=True, eq=False)
class SessionWindows:
    """Windows, one per row. ``owners`` are the numbers of their keys. ``starts`` and ``ends`` (exclusive) are in epoch
    milliseconds."""

    owners: Longs
    starts: Longs
    ends: Longs

    def __len__(self) -> int:
        return len(self.owners)

    def take(self, rows: npt.NDArray[np.integer] | Mask) -> "SessionWindows":
        """Return the windows in these rows."""
        return SessionWindows(self.owners[rows], self.starts[rows], self.ends[rows])

    def distinct_owners(self) -> Longs:
        """Return the numbers of the keys that have a window, in ascending order."""
        return np.flatnonzero(np.bincount(self.owners))

    def order(self) -> Longs:
        """Return the row numbers in the order of key and start. There must be a window."""
        return order_of(_numbered(self.owners, self.starts))

    def as_namespaces(self) -> pa.Array:
        """Return the windows as namespaces."""
        bounds = [number_array(bound, MOMENT) for bound in (self.starts, self.ends)]
        return pa.StructArray.from_arrays(bounds, fields=list(codec_of(TIME_WINDOW).arrow_type))

    def equal(self, other: "SessionWindows") -> Mask:
        """Return whether the bounds of each window are those of the other window in the same row."""
        return np.asarray((self.starts == other.starts) & (self.ends == other.ends), np.bool_)

    def grouped(self) -> Grouping:
        """Return the groups of equal windows of the same key, in the order of key, start and end."""
        if not len(self):
            return Grouping(np.empty(0, np.int64), np.empty(0, np.int64))
        numbers, lengths = _numbered(self.owners, self.starts), self.ends - self.starts
        order = order_in_groups(numbers, lengths.view(np.uint64))
        numbers, lengths = numbers[order], lengths[order]
        begins = np.append(True, (numbers[1:] != numbers[:-1]) | (lengths[1:] != lengths[:-1]))
        codes = np.empty(len(self), np.int64)
        codes[order] = np.cumsum(begins) - 1
        return Grouping(codes, np.minimum.reduceat(order, np.flatnonzero(begins)))

    def among(self, others: "SessionWindows") -> Mask:
        """Return whether the same key has an equal window among the others."""
        codes = stacked(self, others).grouped().codes
        return np.isin(codes[: len(self)], codes[len(self) :])


def spans_of(owners: Longs, windows: pa.Array) -> SessionWindows:
    """Return the windows of a column of namespaces."""
    return SessionWindows(owners, *(np.asarray(numbers(bound, "i8"), np.int64) for bound in windows.flatten()))


def stacked(one: SessionWindows, other: SessionWindows) -> SessionWindows:
    """Return the rows of the first, then those of the second."""
    pairs = ((one.owners, other.owners), (one.starts, other.starts), (one.ends, other.ends))
    return SessionWindows(*map(np.concatenate, pairs))


def merged(spans: SessionWindows) -> tuple[SessionWindows, Longs]:
    """Merge the windows of each key that overlap or touch. Return the merged windows in the order of key and start, and
    per row of ``spans`` the number of the merged window that contains it."""
    if not len(spans):
        return spans, np.empty(0, np.int64)
    order = spans.order()
    ordered = spans.take(order)
    # the greatest end so far within the key: a greater key has a greater number, whatever its ends are
    numbers = _numbered(ordered.owners, ordered.ends)
    reaches = numbers == np.maximum.accumulate(numbers)
    ends = ordered.ends[np.maximum.accumulate(np.where(reaches, np.arange(len(spans)), 0))]
    begins = np.ones(len(spans), np.bool_)
    begins[1:] = (ordered.owners[1:] != ordered.owners[:-1]) | (ordered.starts[1:] > ends[:-1])
    first = np.flatnonzero(begins)
    codes = np.empty(len(spans), np.int64)
    codes[order] = np.cumsum(begins) - 1
    last = np.append(first[1:], len(spans)) - 1
    return SessionWindows(ordered.owners[first], ordered.starts[first], ends[last]), codes


def _numbered(owners: Longs, times: Longs) -> Longs:
    """Return a number per row. The numbers are in the order of the owners, and of the times of one owner."""
    least = int(times.min())
    bits = (int(times.max()) - least).bit_length()
    if bits + int(owners.max()).bit_length() > _BITS:  # the ranks of the times are smaller than the number of rows
        return _numbered(owners, np.unique(times, return_inverse=True)[1])
    return np.asarray(owners << bits | times - least, np.int64)
