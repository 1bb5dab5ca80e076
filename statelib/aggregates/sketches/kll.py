"""The aggregate ``approx_quantiles``: KLL sketches of doubles in the form of Apache DataSketches.

A sketch with at most 200 values lists them all; such sketches are computed on whole columns. A larger one has levels:
each value of level i stands for 2**i values. When a level is full, every second of its sorted values moves up. Which
half moves up follows from a hash of the number of values and not from a random number, so the same batches make the
same bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.aggregates.grouping import Grouping, one_array, valid_rows
from statelib.aggregates.kinds import AggregateSpec
from statelib.aggregates.picks import clean
from statelib.aggregates.sketches.stored import StoredSketches, folded_in_parts, merged_in_parts, sketch_column
from statelib.errors import CorruptStateError
from statelib.serializers.columns.decimal_words import as_doubles
from statelib.wire.ragged import offsets_of
from statelib.wire.sorting import order_in_groups, ranks_of_doubles

K, _M = 200, 8
"""The size parameter and the least size of a level, which are the defaults of DataSketches and of Spark."""
_SINGLE_BYTES, _HEAD_BYTES = 8, 40
_EMPTY, _SORTED, _SINGLE = 1, 2, 4
_ALL_BITS = 2**64 - 1
_SINGLE_HEAD, _SEVERAL_HEAD = (
    int.from_bytes(bytes([*start, K, 0, _M, 0]), "little")
    for start in ([2, 2, 15, _SINGLE | _SORTED], [5, 1, 15, _SORTED])
)
"""The first 8 bytes of a sketch of one value, and of one of several."""
Doubles = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class QuantileSketch:
    """``approx_quantiles``: one KLL sketch per key."""

    spec: AggregateSpec

    def partial(self, events: pa.Table, grouping: Grouping) -> pa.Array:
        return self.fold(pa.nulls(grouping.size, pa.binary()), events, grouping)

    def fold(self, before: pa.Array, events: pa.Table, grouping: Grouping) -> pa.Array:
        column = clean(as_doubles(one_array(events[self.spec.column])))
        rows = valid_rows([column])
        return folded_in_parts(self._folded, before, grouping.codes[rows], column.take(pa.array(rows)).to_numpy())

    def merge(self, before: pa.Array, more: pa.Array) -> pa.Array:
        return merged_in_parts(self._merged, before, more)

    def _merged(self, before: pa.Array, more: pa.Array) -> pa.Array:
        parts = [_decoded(part, self.spec.column) for part in (before, more)]
        codes, values = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        large: dict[int, list[Levels]] = {}
        for _, _, levels_of in parts:
            for row, levels in levels_of.items():
                large.setdefault(row, []).append(levels)
        return _sketches(codes, values, large, len(before))

    def _folded(self, before: pa.Array, codes: Rows, values: Doubles) -> pa.Array:
        codes, values = _ordered(codes, values)
        own_codes, own_values, levels_of = _decoded(before, self.spec.column)
        large = {row: [levels] for row, levels in levels_of.items()}
        counts = np.bincount(codes, minlength=len(before))
        bounds, are_many = offsets_of(counts), counts > K
        for row in np.flatnonzero(are_many).tolist():  # as a partial accumulator has them
            added = Levels.of_values(values[bounds[row] : bounds[row + 1]]).compacted()
            large.setdefault(row, []).append(added)
        few = ~are_many[codes]
        codes, values = np.concatenate([own_codes, codes[few]]), np.concatenate([own_values, values[few]])
        return _sketches(codes, values, large, len(before))


@dataclass(frozen=True, eq=False)
class Levels:
    """A sketch with levels: the number of its values, the least and the greatest, and the values of each level."""

    count: int
    least: float
    most: float
    values: list[Doubles]

    @classmethod
    def of_values(cls, values: Doubles) -> "Levels":
        """Return a sketch of some sorted values, of which there is at least one. It may be larger than allowed."""
        return cls(len(values), float(values[0]), float(values[-1]), [values])

    @classmethod
    def parsed(cls, data: bytes) -> "Levels":
        """Return the sketch of serialized bytes. Raise ValueError for other bytes."""
        count, levels = int.from_bytes(data[8:16], "little"), data[18]
        starts = np.frombuffer(data, "<i4", levels, 20).astype(np.int64)
        items = np.frombuffer(data, "<f8", -1, 20 + 4 * levels)
        bounds = [*(starts - starts[0]).tolist(), len(items) - 2]
        values = [items[2 + a : 2 + b] for a, b in pairwise(bounds)]
        if sum(len(part) << i for i, part in enumerate(values)) != count:
            raise ValueError("weights and count differ")
        if not data[3] & _SORTED:  # the library sorts the newest values only when they move up
            values[0] = np.sort(values[0], kind="stable")
        return cls(count, float(items[0]), float(items[1]), values)

    def merged(self, other: "Levels") -> "Levels":
        """Return a sketch of the values of both, which may be larger than allowed."""
        longer, shorter = sorted((self.values, other.values), key=len, reverse=True)
        values = [np.sort(np.concatenate([part, *shorter[i : i + 1]]), kind="stable") for i, part in enumerate(longer)]
        return Levels(self.count + other.count, min(self.least, other.least), max(self.most, other.most), values)

    def compacted(self) -> "Levels":
        """Return the sketch with at most as many values as its levels may have."""
        values = list(self.values)
        while sum(map(len, values)) > _capacity(len(values)):
            level = next(i for i, part in enumerate(values) if len(part) > _level_capacity(len(values), i))
            if level + 1 == len(values):
                values.append(np.empty(0))
            full = values[level]
            odd = len(full) % 2
            half = full[odd + _coin(self.count, level) :: 2]
            values[level] = full[:odd]
            values[level + 1] = np.sort(np.concatenate([values[level + 1], half]), kind="stable")
        return Levels(self.count, self.least, self.most, values)

    def serialized(self) -> bytes:
        """Return the bytes of the sketch."""
        sizes = np.array([len(part) for part in self.values])
        starts = _capacity(len(sizes)) - sizes.sum() + offsets_of(sizes)[:-1]
        head = bytes([5, 1, 15, _SORTED]) + K.to_bytes(2, "little") + bytes([_M, 0])
        head += self.count.to_bytes(8, "little") + K.to_bytes(2, "little") + bytes([len(sizes), 0])
        items = np.concatenate([[self.least, self.most], *self.values])
        return b"".join([head, starts.astype("<i4").tobytes(), items.astype("<f8").tobytes()])


def _coin(count: int, level: int) -> int:
    """Return 0 or 1, which depends on all bits of both numbers (the end of MurmurHash3).

    The bits of the number itself are no coin: they are all 0 if each batch has 1024 values. Then the same half moves up
    each time, and the errors of the ranks add up."""
    mixed = (2 * count + 1) * 0x9E3779B97F4A7C15 + level * 0xD6E8FEB86659FD93 & _ALL_BITS
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed = (mixed ^ mixed >> 33) * factor & _ALL_BITS
    return mixed >> 63


def _level_capacity(levels: int, level: int) -> int:
    """Return the number of values that a level may have: K for the highest one, 2/3 of it for the next, and so on."""
    depth = levels - level - 1
    return max(_M, int((2 * K << depth) // 3**depth + 1) // 2)


def _capacity(levels: int) -> int:
    return sum(_level_capacity(levels, level) for level in range(levels))


def _decoded(sketches: pa.Array, column: str) -> tuple[Rows, Doubles, dict[int, Levels]]:
    """Return (row, value) of the sketches that list their values, and the others by row.

    Raise CorruptStateError (``bad-sketch``)."""
    stored = StoredSketches.of(sketches)
    if (stored.lengths < _SINGLE_BYTES).any():
        raise _bad(column)
    heads = stored.spans(0, _SINGLE_BYTES)
    filled = (heads[:, 3] & _EMPTY == 0) | (stored.lengths > _SINGLE_BYTES)  # of nulls alone, Spark makes an empty one
    if not filled.all():
        stored, heads = stored.taken(filled), heads[filled]
    single = heads[:, 1] == 2
    head_bytes = np.where(single, _SINGLE_BYTES, _HEAD_BYTES)
    if (heads[:, 2] != 15).any() or (stored.lengths < np.maximum(head_bytes, _SINGLE_BYTES + 8)).any():
        raise _bad(column)
    several = np.flatnonzero(~single)
    large = several[stored.taken(several).spans(18, 1)[:, 0] > 1]
    listed, levels_of = stored, {}
    if len(large):
        of_listed = np.delete(np.arange(len(stored)), large)
        listed, head_bytes = stored.taken(of_listed), head_bytes[of_listed]
        levels_of = dict(_parsed(stored.taken(large), column))
    if ((listed.lengths - head_bytes) % 8 != 0).any():
        raise _bad(column)
    return *listed.entries(head_bytes, "<f8"), levels_of


def _parsed(stored: StoredSketches, column: str) -> Iterator[tuple[int, Levels]]:
    for owner, data in zip(stored.rows.tolist(), stored.copied().to_list(), strict=True):
        try:
            yield owner, Levels.parsed(data)
        except (ValueError, IndexError) as error:
            raise _bad(column) from error


def _bad(column: str) -> CorruptStateError:
    text = f"approx_quantiles of {column}: expected KLL sketches of doubles, found other bytes"
    return CorruptStateError(text, kind="bad-sketch")


def _ordered(codes: Rows, values: Doubles) -> tuple[Rows, Doubles]:
    """Return (row, value) in the order of the rows, and of the values of a row."""
    order = order_in_groups(codes, ranks_of_doubles(values))
    return codes[order], values[order]


def _sketches(codes: Rows, values: Doubles, large: dict[int, list[Levels]], size: int) -> pa.Array:
    """Return the sketch of each group, null for a group without values. ``large``: sketches with levels by group."""
    codes, values = _ordered(codes, values)
    counts = np.bincount(codes, minlength=size)
    with_levels = counts > K
    with_levels[list(large)] = True
    bounds = offsets_of(counts)
    of_large = []
    for row in np.flatnonzero(with_levels).tolist():
        own = values[bounds[row] : bounds[row + 1]]
        parts = [*large.get(row, ()), *([Levels.of_values(own)] if len(own) else [])]
        merged = parts[0]
        for part in parts[1:]:
            merged = merged.merged(part)
        of_large.append(merged.compacted().serialized())
    listed = np.where(with_levels, 0, counts)
    if not of_large:
        return _listing(values, listed, counts == 0)
    listing = _listing(values[~with_levels[codes]], listed, listed == 0)
    places = np.arange(size)
    places[with_levels] = size + np.arange(len(of_large))
    return pa.concat_arrays([listing, pa.array(of_large, pa.binary())]).take(pa.array(places))


def _listing(values: Doubles, counts: npt.NDArray[np.int64], empty: npt.NDArray[np.bool_]) -> pa.Array:
    """Return sketches that list their values, which are sorted in each group."""
    single, bounds = counts == 1, offsets_of(counts)
    numbers = values.astype("<f8").view("<i8")
    ends = np.append(numbers, 0)  # an empty one may have any
    least, most = ends[bounds[:-1]], ends[bounds[1:] - 1]
    first = np.where(single, _SINGLE_HEAD, _SEVERAL_HEAD)
    third = K | 1 << 16 | (K - counts) << 32
    return sketch_column([first, counts, third, least, most], np.where(single, 1, 5), numbers, counts, empty)
