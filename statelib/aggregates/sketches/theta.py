"""The aggregate ``theta``: theta sketches in the form of Apache DataSketches, computed on whole columns.

A sketch has the least hashes of its inputs, at most 4096. If there are more, ``theta`` is the least hash that was left
out. Both depend on no order of the inputs, so equal inputs make equal bytes. The hashes are stored in ascending order.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.aggregates.grouping import Grouping
from statelib.aggregates.kinds import AggregateSpec
from statelib.aggregates.ranked import first_of_groups
from statelib.aggregates.sketches.hashes import hashed_events
from statelib.aggregates.sketches.stored import StoredSketches, folded_in_parts, merged_in_parts, sketch_column
from statelib.errors import CorruptStateError
from statelib.wire.sorting import order_in_groups

_MOST_HASHES = 4096
"""The nominal number of entries, which is the default of DataSketches and of Spark."""
_WHOLE = np.int64(2**63 - 1)
"""The theta of a sketch that has left no hash out."""
_HEAD = int.from_bytes(bytes([0, 3, 3, 0, 0, 0x1A, 0xCC, 0x93]), "little", signed=True)
"""The first 8 bytes: size of the head in words (0 here), versions, flags, and a hash of the seed. The number of entries
follows if there are several, and then theta if some were left out."""
Hashes = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ThetaSketch:
    """``theta``: one theta sketch per key."""

    spec: AggregateSpec

    def partial(self, events: pa.Table, grouping: Grouping) -> pa.Array:
        return self.fold(pa.nulls(grouping.size, pa.binary()), events, grouping)

    def fold(self, before: pa.Array, events: pa.Table, grouping: Grouping) -> pa.Array:
        codes, first, _ = hashed_events(events, self.spec.column, grouping)
        return folded_in_parts(self._folded, before, codes, (first >> np.uint64(1)).astype(np.int64))

    def merge(self, before: pa.Array, more: pa.Array) -> pa.Array:
        return merged_in_parts(self._merged, before, more)

    def _merged(self, before: pa.Array, more: pa.Array) -> pa.Array:
        thetas = np.full(len(before), _WHOLE)
        parts = [_decoded(part, thetas, self.spec.column) for part in (before, more)]
        codes, hashes = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        return _sketches(codes, hashes, thetas)

    def _folded(self, before: pa.Array, codes: Rows, hashes: Hashes) -> pa.Array:
        thetas, (codes, hashes) = np.full(len(before), _WHOLE), _ordered(codes, hashes)
        own_codes, own_hashes = _decoded(before, thetas, self.spec.column)
        return _sketches(np.concatenate([own_codes, codes]), np.concatenate([own_hashes, hashes]), thetas)


def _ordered(codes: Rows, hashes: Hashes) -> tuple[Rows, Hashes]:
    """Return (row, hash) in the order of the rows, and of the hashes of a row."""
    order = order_in_groups(codes, hashes.view(np.uint64) << np.uint64(1))
    return codes[order], hashes[order]


def _decoded(sketches: pa.Array, thetas: Hashes, column: str) -> tuple[Rows, Hashes]:
    """Return (row, hash) of the entries of a column of sketches, and lower ``thetas`` to those of the sketches.

    Raise CorruptStateError (``bad-sketch``)."""
    stored = StoredSketches.of(sketches)
    if (stored.lengths < 8).any() or (stored.lengths % 8 != 0).any():
        raise _bad(column)
    heads = stored.spans(0, 8)
    sizes = heads[:, 0].astype(np.int64)
    if ((heads[:, 1] != 3) | (heads[:, 2] != 3) | (sizes > 3) | (8 * sizes > stored.lengths)).any():
        raise _bad(column)
    estimating = stored.taken(sizes == 3)
    limits = estimating.spans(16, 8).view("<i8").reshape(-1)
    thetas[estimating.rows] = np.minimum(thetas[estimating.rows], limits)
    return stored.entries(8 * sizes, "<i8")


def _bad(column: str) -> CorruptStateError:
    return CorruptStateError(
        f"theta of {column}: expected compact theta sketches, found other bytes", kind="bad-sketch"
    )


def _sketches(codes: Rows, hashes: Hashes, thetas: Hashes) -> pa.Array:
    """Return the sketch of each group, null for a group without hashes. ``thetas``: the limits of the hashes so far."""
    codes, hashes = _ordered(codes, hashes)
    fresh = np.ones(len(codes), np.bool_)
    fresh[1:] = (codes[1:] != codes[:-1]) | (hashes[1:] != hashes[:-1])
    fresh &= hashes < thetas[codes]
    codes, hashes = codes[fresh], hashes[fresh]
    counts = np.bincount(codes, minlength=len(thetas))
    kept_rows, kept_counts = first_of_groups(np.arange(len(codes)), codes, len(thetas), _MOST_HASHES)
    full = np.flatnonzero(counts > _MOST_HASHES)
    thetas = thetas.copy()
    thetas[full] = hashes[(np.cumsum(counts) - counts)[full] + _MOST_HASHES]
    sizes = np.where(thetas < _WHOLE, 3, np.where(kept_counts == 1, 1, 2))
    heads = [_HEAD + sizes, kept_counts, thetas]
    empty = (kept_counts == 0) & (thetas == _WHOLE)
    return sketch_column(heads, sizes, hashes[kept_rows].astype("<i8"), kept_counts, empty)
