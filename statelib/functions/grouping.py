"""Which rows of a batch belong together, and reductions over them: the bottom of every function."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelib.serializers.columns import one_nan

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Grouping:
    """``codes[i]``: group of row i; groups are numbered 0, 1, ... ``first[g]``: the first row of group g."""

    codes: Rows
    first: Rows

    @property
    def size(self) -> int:
        return len(self.first)

    def ordered(self, order: Rows) -> "Grouping":
        """The same groups, of which ``order[0]`` becomes group 0."""
        rank = np.empty(self.size, np.int64)
        rank[order] = np.arange(self.size)
        return Grouping(rank[self.codes], self.first[order])


def group_rows(columns: Sequence[pa.Array]) -> Grouping:
    """Group rows by equality of all ``columns`` (at least one, without nulls, equally long).

    Structs are compared field by field, floating point numbers as their bytes will be: every NaN is the same, 0.0 and
    -0.0 are not. Groups are in order of first appearance.
    """
    codes = _codes(columns[0])
    for column in columns[1:]:
        codes = _combine(codes, _codes(column))
    first = np.empty(int(codes.max()) + 1 if len(codes) else 0, np.int64)
    # Backwards, because of equal indexes the last assignment stays.
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1, dtype=np.int64)
    return Grouping(codes, first)


def _codes(column: pa.Array) -> Rows:
    if pa.types.is_struct(column.type):
        fields = column.flatten()
        codes = _codes(fields[0])
        for field in fields[1:]:
            codes = _combine(codes, _codes(field))
        return codes
    if pa.types.is_floating(column.type):
        column = one_nan(column).view(pa.int32() if column.type == pa.float32() else pa.int64())
    return np.asarray(column.dictionary_encode().indices.to_numpy(zero_copy_only=False), np.int64)


def _combine(left: Rows, right: Rows) -> Rows:
    """Number the pairs; both sides are smaller than the number of rows, so no product overflows."""
    if not len(left):
        return left
    return _codes(pa.array(left * (right.max() + 1) + right))


def reduce_groups(values: pa.Array, codes: Rows, size: int, how: str) -> pa.Array:
    """``how`` (``sum``, ``min``, ``max``) of the values (without nulls) of each of ``size`` groups.

    Null where a group has no value. In the order of the rows, on one thread: always the same bits.
    """
    if _is_number(values.type):
        empty = np.bincount(codes, minlength=size) == 0
        return pa.array(_reduced(values.to_numpy(), codes, size, how), values.type, mask=empty if empty.any() else None)
    table = pa.table({"group": pa.array(codes), "value": values})
    reduced = table.group_by("group", use_threads=False).aggregate([("value", how)])
    at = np.full(size, -1, np.int64)
    at[reduced["group"].to_numpy()] = np.arange(len(reduced))
    return one_array(reduced[f"value_{how}"]).take(nullable_rows(at))


def pick_rows(columns: Sequence[pa.Array], codes: Rows, size: int, how: str) -> Rows:
    """The row of each group whose ``columns``, compared one after the other, are the least
    (``min``) or the greatest (``max``), null before all values; -1 for a group without rows.

    Rows that are left at the end are equal in every column, so it does not matter which is taken.
    """
    rows = np.arange(len(codes), dtype=np.int64)
    groups = int(np.count_nonzero(np.bincount(codes, minlength=size)))
    for column in columns:
        if len(rows) == groups:  # one row a group is left: the further columns decide nothing
            break
        whole = len(rows) == len(codes)
        here, group = (column, codes) if whole else (column.take(pa.array(rows)), codes[rows])
        rows = rows[_is_best(here, group, size, how)]
    picked = np.full(size, -1, np.int64)
    picked[codes[rows]] = rows
    return picked


def _is_best(values: pa.Array, codes: Rows, size: int, how: str) -> npt.NDArray[np.bool_]:
    if not values.null_count:
        return _is_best_value(values, codes, size, how)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    best = _is_best_value(pa.array(valid.astype(np.int8)), codes, size, how)
    at = np.flatnonzero(best & valid)
    best[at] = _is_best_value(values.take(pa.array(at)), codes[at], size, how)
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
    """Without a hash table: the group of a row is where its result lies. Of groups without rows, any number."""
    if how == "sum":
        if values.dtype == np.float64:
            return np.bincount(codes, values, minlength=size)
        total = np.zeros(size, values.dtype)
        np.add.at(total, codes, values)
        return total
    floating = values.dtype.kind == "f"
    least, greatest = (-np.inf, np.inf) if floating else (np.iinfo(values.dtype).min, np.iinfo(values.dtype).max)
    found = np.full(size, greatest if how == "min" else least, values.dtype)
    (np.minimum if how == "min" else np.maximum).at(found, codes, values)
    return found


def nullable_rows(rows: Rows) -> pa.Array:
    """Row numbers for ``take``: a negative one takes null."""
    return pa.array(rows, mask=rows < 0)


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """All of a column; that of one chunk is not copied."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def valid_rows(columns: Sequence[pa.Array]) -> Rows:
    """The rows in which no column is null."""
    valid = np.ones(len(columns[0]), bool)
    for column in columns:
        valid &= column.is_valid().to_numpy(zero_copy_only=False)
    return np.flatnonzero(valid).astype(np.int64)
