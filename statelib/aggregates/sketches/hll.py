"""The aggregate ``approx_distinct``: HLL sketches in the form of Apache DataSketches, computed on whole columns.

A sketch is a set of coupons. Each coupon has a slot and a value, which follow from the hash of an input. A sketch with
few coupons lists them (modes LIST and SET). A sketch with many has the greatest value of each slot as one byte (mode
HLL, type HLL_8). The coupons are sorted and the registers depend on no order, so equal inputs make equal bytes.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.aggregates.grouping import Grouping
from statelib.aggregates.kinds import AggregateSpec
from statelib.aggregates.sketches.hashes import hashed_events
from statelib.aggregates.sketches.stored import StoredSketches, folded_in_parts, merged_in_parts, sketch_column
from statelib.errors import CorruptStateError
from statelib.serializers.columns.arrow import byte_array
from statelib.wire.ragged import Bytes, from_fixed
from statelib.wire.sorting import sort_kind

LG_K = 12
"""The binary logarithm of the number of slots, which is the default of DataSketches and of Spark."""
_SLOTS = 1 << LG_K
_MOST_LISTED, _MOST_COUPONS = 7, 3 * _SLOTS // 32
"""The most coupons of the modes LIST and SET."""
_LIST, _SET, _HLL = 0, 1, 2
_HEADS = np.array([8, 12, 40])
"""The number of bytes before the coupons or the registers, by mode."""
_ADDRESS_BITS = 26
_EMPTY_BITS, _OUT_OF_ORDER = 0x08, 0x10
_TYPE_HLL_8 = 2 << 2
_DENSE_AT_ONCE = 4096
Coupons = npt.NDArray[np.uint32]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DistinctSketch:
    """``approx_distinct``: one HLL sketch per key."""

    spec: AggregateSpec

    def partial(self, events: pa.Table, grouping: Grouping) -> pa.Array:
        return self.fold(pa.nulls(grouping.size, pa.binary()), events, grouping)

    def fold(self, before: pa.Array, events: pa.Table, grouping: Grouping) -> pa.Array:
        codes, first, second = hashed_events(events, self.spec.column, grouping)
        return folded_in_parts(self._folded, before, codes, _coupons(first, second))

    def merge(self, before: pa.Array, more: pa.Array) -> pa.Array:
        return merged_in_parts(self._merged, before, more)

    def _merged(self, before: pa.Array, more: pa.Array) -> pa.Array:
        parts = [_Decoded.of(part, self.spec.column) for part in (before, more)]
        codes = np.concatenate([part.codes for part in parts])
        coupons = np.concatenate([part.coupons for part in parts])
        return _sketches(codes, coupons, [(part.dense, part.registers) for part in parts], len(before))

    def _folded(self, before: pa.Array, codes: Rows, coupons: Coupons) -> pa.Array:
        codes, coupons = _distinct_pairs(codes, coupons)
        own = _Decoded.of(before, self.spec.column)
        codes, coupons = np.concatenate([own.codes, codes]), np.concatenate([own.coupons, coupons])
        return _sketches(codes, coupons, [(own.dense, own.registers)], len(before))


def _coupons(first: npt.NDArray[np.uint64], second: npt.NDArray[np.uint64]) -> Coupons:
    """Return the coupon of each hash: 26 bits of the first half, and the leading zeros of the second half plus 1."""
    address = (first & np.uint64((1 << _ADDRESS_BITS) - 1)).astype(np.uint32)
    zeros = np.minimum(_leading_zeros(second), 62).astype(np.uint32)
    return ((zeros + np.uint32(1)) << np.uint32(_ADDRESS_BITS)) | address


def _leading_zeros(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    # A double holds 32 bits exactly, so the exponent of each half is the place of its highest bit.
    high, low = (words >> np.uint64(32)).astype(np.float64), (words & np.uint64(0xFFFFFFFF)).astype(np.float64)
    bits = np.where(high > 0, np.frexp(high)[1] + 32, np.frexp(low)[1])
    return 64 - bits.astype(np.int64)


@dataclass(frozen=True, eq=False)
class _Decoded:
    """The contents of a column of sketches: coupons with the rows that they belong to, and registers per dense row."""

    codes: Rows
    coupons: Coupons
    dense: Rows
    registers: Bytes

    @classmethod
    def of(cls, sketches: pa.Array, column: str) -> "_Decoded":
        stored = StoredSketches.of(sketches)
        modes = _modes(stored, column)
        sparse, full = stored.taken(modes != _HLL), stored.taken(modes == _HLL)
        codes, coupons = sparse.entries(_HEADS[modes[modes != _HLL]], "<u4")
        used = coupons != 0  # sketches that can be updated have free places
        return cls(codes[used], coupons[used], full.rows, full.spans(int(_HEADS[_HLL]), _SLOTS))


def _modes(stored: StoredSketches, column: str) -> npt.NDArray[np.int64]:
    """Return the mode of each sketch.

    Raise CorruptStateError (``bad-sketch``) unless all are HLL sketches of the expected form."""
    short = stored.lengths < _HEADS[_LIST]
    heads = np.zeros((len(stored), 8), np.uint8)
    heads[~short] = stored.taken(~short).spans(0, 8)
    modes = (heads[:, 7] & 3).astype(np.int64)
    bad = short | (heads[:, 2] != 7) | (heads[:, 3] != LG_K) | (modes > _HLL)
    bad |= (modes == _HLL) & ((heads[:, 7] >> 2 != 2) | (stored.lengths != _HEADS[_HLL] + _SLOTS))
    bad |= (modes != _HLL) & ((stored.lengths - _HEADS[np.minimum(modes, 1)]) % 4 != 0)
    if bad.any():
        raise CorruptStateError(
            f"approx_distinct of {column}: expected HLL sketches with lg_k {LG_K} and type HLL_8, found other bytes",
            kind="bad-sketch",
        )
    return modes


def _sketches(codes: Rows, coupons: Coupons, registers: list[tuple[Rows, Bytes]], size: int) -> pa.Array:
    """Return the sketch of each group, null for a group without coupons and registers."""
    codes, coupons = _distinct_pairs(codes, coupons)
    counts = np.bincount(codes, minlength=size)
    dense = counts > _MOST_COUPONS
    for rows, _ in registers:
        dense[rows] = True
    sparse_counts = np.where(dense, 0, counts)
    dense_rows = np.flatnonzero(dense)
    of_sparse = ~dense[codes] if len(dense_rows) else slice(None)
    empty = ~dense & (counts == 0)
    sketches = _listing(coupons[of_sparse], sparse_counts, empty)
    if len(dense_rows):
        of_dense = dense[codes]
        full = _dense_rows(dense_rows, codes[of_dense], coupons[of_dense], registers)
        places = np.arange(size)
        places[dense_rows] = size + np.arange(len(dense_rows))
        sketches = pa.concat_arrays([sketches, full]).take(pa.array(places))
    return sketches


def _distinct_pairs(codes: Rows, coupons: Coupons) -> tuple[Rows, Coupons]:
    """Return the distinct pairs of a group and a coupon, in ascending order."""
    pairs = (codes.astype(np.uint64) << np.uint64(32)) | coupons
    pairs.sort(kind=sort_kind(pairs))
    pairs = pairs[np.flatnonzero(np.diff(pairs, prepend=~pairs[:1]))]
    return (pairs >> np.uint64(32)).astype(np.int64), pairs.astype(np.uint32)


def _listing(coupons: Coupons, counts: npt.NDArray[np.int64], empty: npt.NDArray[np.bool_]) -> pa.Array:
    """Return sketches that list their coupons. ``counts`` is the number of coupons of each."""
    as_set = counts > _MOST_LISTED
    log_places = np.full(len(counts), 3)
    log_places[as_set] = np.maximum(np.ceil(np.log2(counts[as_set] * 4 / 3)), 5)
    sizes = np.where(as_set, 3, 2)
    first = sizes | 1 << 8 | 7 << 16 | LG_K << 24
    second = (
        log_places | _EMPTY_BITS << 8 | np.where(as_set, _SET << 24, counts << 16 | _LIST << 24) | _TYPE_HLL_8 << 24
    )
    return sketch_column([first, second, counts], sizes, coupons.astype("<u4"), counts, empty)


def _dense_rows(rows: Rows, codes: Rows, coupons: Coupons, registers: list[tuple[Rows, Bytes]]) -> pa.Array:
    """Return sketches with registers for some rows, some at a time because each needs 4 KiB."""
    parts = []
    for start in range(0, len(rows), _DENSE_AT_ONCE):
        part = rows[start : start + _DENSE_AT_ONCE]
        matrix = np.zeros((len(part), _SLOTS), np.uint8)
        for owners, stored in registers:
            inside = np.isin(owners, part)
            at = np.searchsorted(part, owners[inside])
            matrix[at] = np.maximum(matrix[at], stored[inside])
        inside = np.isin(codes, part)
        slots = np.searchsorted(part, codes[inside]) * _SLOTS + (coupons[inside] & np.uint32(_SLOTS - 1))
        values = (coupons[inside] >> np.uint32(_ADDRESS_BITS)).astype(np.uint8)
        np.maximum.at(matrix.reshape(-1), slots, values)
        parts.append(byte_array(from_fixed(np.hstack([_dense_heads(matrix), matrix])), pa.binary()))
    return pa.concat_arrays(parts)


def _dense_heads(registers: Bytes) -> Bytes:
    """Return the bytes before the registers. The sums of the powers of 1/2 are what the estimate is computed from."""
    heads = np.zeros((len(registers), _HEADS[_HLL]), np.uint8)
    heads[:, :8] = (10, 1, 7, LG_K, 0, _EMPTY_BITS | _OUT_OF_ORDER, 0, _HLL | _TYPE_HLL_8)
    powers = np.exp2(-np.arange(64.0))
    counts = np.stack([(registers == value).sum(axis=1) for value in range(64)], axis=1)
    sums = [counts[:, :32] @ powers[:32], counts[:, 32:] @ powers[32:]]
    for i, total in enumerate(sums):
        heads[:, 16 + 8 * i : 24 + 8 * i] = total.astype("<f8").view(np.uint8).reshape(-1, 8)
    heads[:, 32:36] = counts[:, 0].astype("<i4").view(np.uint8).reshape(-1, 4)
    return heads
