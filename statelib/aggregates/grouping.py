"""Grouping the rows of a batch by equal columns, and reductions per group. All state functions are built on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelib.serializers.columns.arrow import one_nan

Rows = npt.NDArray[np.int64]
_SPAN = 8
"""Whole numbers are grouped by an array with a place per number between the least and the greatest, if there are at
most this many such places per row. The array then needs no more memory than a hash table of the numbers."""


@dataclass(frozen=True, eq=False)
class Grouping:
    """The groups of the rows of a batch, numbered from 0.

    ``codes[i]`` is the group of row i, and ``first[g]`` is the first row of group g."""

    codes: Rows
    first: Rows

    @property
    def size(self) -> int:
        """The number of groups."""
        return len(self.first)

    def ordered(self, order: Rows) -> "Grouping":
        """Return the groups in another order: ``order[0]`` becomes group 0."""
        rank = np.empty(self.size, np.int64)
        rank[order] = np.arange(self.size)
        return Grouping(rank[self.codes], self.first[order])


def group_rows(columns: Sequence[pa.Array]) -> Grouping:
    """Group rows by equality of all ``columns``, of which there is at least one. They are equally long, without nulls.

    Structs are compared field by field, and floating point numbers by their serialized bytes: all NaN are equal, but
    0.0 and -0.0 are not. Groups are in order of first appearance.
    """
    codes = _codes(columns[0])
    for column in columns[1:]:
        codes = _combine(codes, _codes(column))
    first = np.empty(int(codes.max()) + 1 if len(codes) else 0, np.int64)
    # The assignment runs backwards, because the last one of equal indexes counts.
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1, dtype=np.int64)
    return Grouping(codes, first)


def _codes(column: pa.Array) -> Rows:
    """Return a number per row, which is equal for equal values. Numbers are in order of first appearance."""
    if pa.types.is_struct(column.type):
        fields = column.flatten()
        codes = _codes(fields[0])
        for field in fields[1:]:
            codes = _combine(codes, _codes(field))
        return codes
    if pa.types.is_floating(column.type):
        column = one_nan(column).view(pa.int32() if column.type == pa.float32() else pa.int64())
    by_place = _codes_by_place(column.to_numpy()) if pa.types.is_integer(column.type) else None
    if by_place is not None:
        return by_place
    return np.asarray(column.dictionary_encode().indices.to_numpy(zero_copy_only=False), np.int64)


def _codes_by_place(numbers: npt.NDArray[np.integer]) -> Rows | None:
    """Return the result of :func:`_codes` without a hash table; None if the numbers are few or too far apart."""
    if not 1 < len(numbers) < 2**31:
        return None
    least = numbers.min()
    span = int(numbers.max()) - int(least) + 1
    if span > _SPAN * len(numbers):
        return None
    places = (numbers if numbers.itemsize == 8 else numbers.astype(np.int64)) - least
    rows = np.arange(len(numbers), dtype=np.int32)
    of_place = np.empty(span, np.int32)  # only the places of numbers that occur are written and read
    of_place[places[::-1]] = rows[::-1]  # the last one of equal indexes counts, so this is the first row of each number
    first = np.flatnonzero(of_place[places] == rows)
    of_place[places[first]] = rows[: len(first)]
    return np.asarray(of_place[places], np.int64)


def _combine(left: Rows, right: Rows) -> Rows:
    """Return a number per row, which is equal for equal pairs.

    Both numbers of a pair are smaller than the number of rows, so the product cannot overflow."""
    if not len(left):
        return left
    return _codes(pa.array(left * (right.max() + 1) + right))


def reduce_groups(values: pa.Array, codes: Rows, size: int, how: str) -> pa.Array:
    """Return the ``sum``, ``min`` or ``max`` of the values per group, or null for a group without values.

    ``values`` has no nulls, and ``size`` is the number of groups. The values are reduced in the order of the rows on
    one thread, so that the result always has the same bits.
    """
    if _is_number(values.type):
        empty = np.bincount(codes, minlength=size) == 0
        return pa.array(_reduced(values.to_numpy(), codes, size, how), values.type, mask=empty if empty.any() else None)
    table = pa.table({"group": pa.array(codes), "value": values})
    reduced = table.group_by("group", use_threads=False).aggregate([("value", how)])
    row_of_group = np.full(size, -1, np.int64)
    row_of_group[reduced["group"].to_numpy()] = np.arange(len(reduced))
    return one_array(reduced[f"value_{how}"]).take(nullable_rows(row_of_group))


def pick_rows(columns: Sequence[pa.Array], codes: Rows, size: int, how: str) -> Rows:
    """Return the row per group with the least (``min``) or greatest (``max``) values, or -1 for a group without rows.

    The ``columns`` are compared one after the other, and null is less than all values. Rows that remain at the end are
    equal in every column, so any of them is taken.
    """
    rows = np.arange(len(codes), dtype=np.int64)
    groups = int(np.count_nonzero(np.bincount(codes, minlength=size)))
    for column in columns:
        if len(rows) == groups:  # one row per group remains, so further columns change nothing
            break
        whole = len(rows) == len(codes)
        remaining, remaining_codes = (column, codes) if whole else (column.take(pa.array(rows)), codes[rows])
        rows = rows[_is_best(remaining, remaining_codes, size, how)]
    picked = np.full(size, -1, np.int64)
    picked[codes[rows]] = rows
    return picked


def _is_best(values: pa.Array, codes: Rows, size: int, how: str) -> npt.NDArray[np.bool_]:
    """Return whether each value is the least or the greatest of its group. Null is less than all values."""
    if not values.null_count:
        return _is_best_value(values, codes, size, how)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    best = _is_best_value(pa.array(valid.astype(np.int8)), codes, size, how)
    best_rows = np.flatnonzero(best & valid)
    best[best_rows] = _is_best_value(values.take(pa.array(best_rows)), codes[best_rows], size, how)
    return best


def _is_best_value(values: pa.Array, codes: Rows, size: int, how: str) -> npt.NDArray[np.bool_]:
    if _is_number(values.type):
        numbers = values.to_numpy()
        return np.asarray(numbers == _reduced(numbers, codes, size, how)[codes], np.bool_)
    best = reduce_groups(values, codes, size, how).take(pa.array(codes))
    return np.asarray(pc.equal(values, best).to_numpy(zero_copy_only=False), np.bool_)


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_float32(type_) or pa.types.is_float64(type_))


def _reduced(values: npt.NDArray[Any], codes: Rows, size: int, how: str) -> npt.NDArray[Any]:
    """Return the reduced numbers per group, computed without a hash table. Groups without rows have any number."""
    if how == "sum":
        if values.dtype == np.float64:
            return np.bincount(codes, values, minlength=size)
        total = np.zeros(size, values.dtype)
        np.add.at(total, codes, values)
        return total
    floating = values.dtype.kind == "f"
    least, greatest = (-np.inf, np.inf) if floating else (np.iinfo(values.dtype).min, np.iinfo(values.dtype).max)
    results = np.full(size, greatest if how == "min" else least, values.dtype)
    (np.minimum if how == "min" else np.maximum).at(results, codes, values)
    return results


def nullable_rows(rows: Rows) -> pa.Array:
    """Return row numbers for ``take``. A negative number takes null."""
    return pa.array(rows, mask=rows < 0)


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array. A column of one chunk is not copied."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def valid_rows(columns: Sequence[pa.Array]) -> Rows:
    """Return the numbers of the rows in which no column is null."""
    valid = np.ones(len(columns[0]), bool)
    for column in columns:
        valid &= column.is_valid().to_numpy(zero_copy_only=False)
    return np.flatnonzero(valid).astype(np.int64)


def stack(before: pa.Array, more: pa.Array) -> tuple[pa.Array, Rows]:
    """Return the non-null accumulators of ``before``, then those of ``more``, and the row number of each."""
    both = pa.concat_arrays([before, more])
    rows = valid_rows([both])
    return both.take(pa.array(rows)), rows % max(len(before), 1)


def list_array(values: pa.Array, lengths: npt.NDArray[np.integer]) -> pa.Array:
    """Return the ``values`` split into consecutive lists of these lengths. A list of length 0 becomes null."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(lengths == 0))
