"""The computation of each aggregate: one partial accumulator per group of a batch, which is merged into the stored one.

All computations are on whole columns. ``aggregates.py`` describes the results.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelib.aggregates.decay import Decay
from statelib.aggregates.decimal_sums import add_decimals, sum_decimals
from statelib.aggregates.grouping import (
    Grouping,
    Rows,
    list_array,
    one_array,
    reduce_groups,
    stack,
    valid_rows,
)
from statelib.aggregates.kinds import AggregateSpec
from statelib.aggregates.picks import Pick, better, clean
from statelib.aggregates.ranked import Ranked, first_of_groups
from statelib.aggregates.sketches.bitmap import Bitmap
from statelib.aggregates.sketches.hll import DistinctSketch
from statelib.aggregates.sketches.kll import QuantileSketch
from statelib.aggregates.sketches.theta import ThetaSketch
from statelib.errors import InvalidRequestError
from statelib.model.sql import MAX_DIGITS
from statelib.model.types import decimal_digits
from statelib.serializers.columns.decimal_words import as_doubles

LONG_LIMIT = 2.0**63
LONG_DIGITS = 19, 0
"""The precision and the scale of decimals that hold every long."""
_infinite = np.errstate(over="ignore", invalid="ignore")
"""The decorator of functions that compute with infinities, as SQL does, without warnings of numpy."""


class Accumulator(Protocol):
    """An aggregate's computation. The merge of several partials must equal the partial of all their rows together."""

    def partial(self, events: pa.Table, grouping: Grouping) -> pa.Array:
        """Return one accumulator per group, which is null if the group has no value."""
        ...

    def merge(self, before: pa.Array, more: pa.Array) -> pa.Array:
        """Return the merged accumulators, row by row. Both arguments have the accumulator's type, and merging null into
        an accumulator leaves it unchanged."""
        ...


@runtime_checkable
class FoldingAccumulator(Accumulator, Protocol):
    """An accumulator that adds events without making partial accumulators of them first."""

    def fold(self, before: pa.Array, events: pa.Table, grouping: Grouping) -> pa.Array:
        """Return the accumulators of the groups, merged with the partials of the events."""
        ...


@dataclass(frozen=True)
class Count:
    """``count``: the number of events or of non-null values."""

    spec: AggregateSpec

    def partial(self, events: pa.Table, grouping: Grouping) -> pa.Array:
        codes = grouping.codes
        if self.spec.of is not None:
            codes = _inputs(events, self.spec.column, codes)[1]
        return pa.array(np.bincount(codes, minlength=grouping.size).astype(np.int64))

    def merge(self, before: pa.Array, more: pa.Array) -> pa.Array:
        return _add(before, more, self.spec)


@dataclass(frozen=True)
class Sum:
    """``sum``, as a long, a double or a decimal. Raise InvalidRequestError (``sum-overflow``) if a long has not enough
    bits, or a decimal not enough digits. Whole numbers may be summed as decimals: the type in ``spec`` decides."""

    spec: AggregateSpec

    def partial(self, events: pa.Table, grouping: Grouping) -> pa.Array:
        values, codes = _inputs(events, self.spec.column, grouping.codes)
        if pa.types.is_integer(values.type) and decimal_digits(self.spec.of_required[1]):
            values = values.cast(pa.decimal128(*LONG_DIGITS))
        if pa.types.is_decimal(values.type):
            return _decimal_sums(values, codes, grouping.size, self.spec)
        if pa.types.is_floating(values.type):
            return reduce_groups(values.cast(pa.float64()), codes, grouping.size, "sum")
        _check_long_sums(values, codes, grouping.size, self.spec)
        return reduce_groups(values.cast(pa.int64()), codes, grouping.size, "sum")

    def merge(self, before: pa.Array, more: pa.Array) -> pa.Array:
        return _add(before, more, self.spec)


@dataclass(frozen=True)
class Extreme:
    """``min`` and ``max`` of values of any ordered type. ``bool_and`` and ``bool_or`` are those of booleans."""

    spec: AggregateSpec

    @property
    def end(self) -> str:
        """``min`` or ``max``."""
        return "min" if self.spec.agg in ("min", "bool_and") else "max"

    def partial(self, events: pa.Table, grouping: Grouping) -> pa.Array:
        values, codes = _inputs(events, self.spec.column, grouping.codes)
        return reduce_groups(values, codes, grouping.size, self.end)

    def merge(self, before: pa.Array, more: pa.Array) -> pa.Array:
        return better(before, more, [(before, more)], self.end)


@dataclass(frozen=True)
class Average:
    """``avg``: the sum as a double, or of decimals as a decimal, and the number of the values."""

    spec: AggregateSpec

    def partial(self, events: pa.Table, grouping: Grouping) -> pa.Array:
        values, codes = _inputs(events, self.spec.column, grouping.codes)
        counts = np.bincount(codes, minlength=grouping.size).astype(np.int64)
        if pa.types.is_decimal(values.type):
            sums = _decimal_sums(values, codes, grouping.size, self.spec)
        else:
            sums = reduce_groups(as_doubles(values), codes, grouping.size, "sum")
        return _sum_and_count(sums, pa.array(counts), pa.array(counts == 0))

    def merge(self, before: pa.Array, more: pa.Array) -> pa.Array:
        fields = zip(before.flatten(), more.flatten(), strict=True)
        sums, counts = (_add(a, b, self.spec) for a, b in fields)
        return _sum_and_count(sums, counts, pc.and_(before.is_null(), more.is_null()))


@dataclass(frozen=True)
class Deviations:
    """``variance`` and ``stddev``: the mean, the sum of the squared deviations from it, and the number of the values.
    The deviations are added as Chan, Golub and LeVeque describe (1979), because the difference of two large sums would
    lose the digits that matter."""

    spec: AggregateSpec

    @_infinite
    def partial(self, events: pa.Table, grouping: Grouping) -> pa.Array:
        values, codes = _inputs(events, self.spec.column, grouping.codes)
        numbers = as_doubles(values).to_numpy(zero_copy_only=False)
        counts = np.bincount(codes, minlength=grouping.size).astype(np.int64)
        size, divisors = grouping.size, np.maximum(counts, 1)
        means = np.bincount(codes, numbers, minlength=size) / divisors
        apart = numbers - means[codes]
        # The mean of large numbers is rounded by more than they may differ. The mean of the differences is not.
        rest = np.bincount(codes, apart, minlength=size) / divisors
        squares = np.bincount(codes, (apart - rest[codes]) ** 2, minlength=size)
        return _deviations(means + rest, squares, counts)

    @_infinite
    def merge(self, before: pa.Array, more: pa.Array) -> pa.Array:
        (mean, squares, count), (mean_2, squares_2, count_2) = (_zeros_for_nulls(both) for both in (before, more))
        counts = count + count_2
        share = count_2 / np.maximum(counts, 1)
        apart = mean_2 - mean
        means = np.where(count == 0, mean_2, mean + apart * share)
        between = np.where((count == 0) | (count_2 == 0), 0.0, apart * apart * count * share)
        return _deviations(means, squares + squares_2 + between, counts)


@dataclass(frozen=True)
class Collected:
    """``collect`` and ``distinct``: values in ascending order, so that the result does not depend on the order of
    events. With a limit, the least values."""

    spec: AggregateSpec

    def partial(self, events: pa.Table, grouping: Grouping) -> pa.Array:
        values, codes = _inputs(events, self.spec.column, grouping.codes)
        return self._lists(values, codes, grouping.size)

    def merge(self, before: pa.Array, more: pa.Array) -> pa.Array:
        lists, codes = stack(before, more)
        lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
        return self._lists(lists.flatten(), np.repeat(codes, lengths), len(before))

    def _lists(self, values: pa.Array, codes: Rows, size: int) -> pa.Array:
        order = pc.sort_indices(
            pa.table({"group": pa.array(codes), "value": values}),
            sort_keys=[("group", "ascending"), ("value", "ascending")],
        )
        values, codes = values.take(order), codes[order.to_numpy()]
        if self.spec.agg == "distinct" and len(codes):
            repeats = pc.equal(values[1:], values[:-1]).to_numpy(zero_copy_only=False) & (codes[1:] == codes[:-1])
            distinct_rows = np.flatnonzero(np.concatenate(([True], ~repeats)))
            values, codes = values.take(pa.array(distinct_rows)), codes[distinct_rows]
        counts = np.bincount(codes, minlength=size)
        if self.spec.bounds:
            rows, counts = first_of_groups(np.arange(len(codes)), codes, size, int(self.spec.bounds[0]))
            values = values.take(pa.array(rows))
        return list_array(values, counts)


@dataclass(frozen=True)
class Histogram:
    """``histogram``: the number of values per bin. Raise InvalidRequestError (``histogram-bounds-changed``) if a stored
    histogram has another number of bins."""

    spec: AggregateSpec

    @property
    def width(self) -> int:
        """The number of bins."""
        return len(self.spec.bounds) + 1

    def partial(self, events: pa.Table, grouping: Grouping) -> pa.Array:
        values, codes = _inputs(events, self.spec.column, grouping.codes)
        whole = pa.types.is_integer(values.type)
        numbers = (values.cast(pa.int64()) if whole else as_doubles(values)).to_numpy(zero_copy_only=False)
        bins = np.searchsorted(_whole(self.spec.bounds) if whole else self.spec.bounds, numbers, side="left")
        counts = np.bincount(codes * self.width + bins, minlength=grouping.size * self.width)
        return self._lists(counts.reshape(grouping.size, self.width))

    def merge(self, before: pa.Array, more: pa.Array) -> pa.Array:
        return self._lists(self._matrix(before) + self._matrix(more))

    def _lists(self, counts: npt.NDArray[np.int64]) -> pa.Array:
        """Return the rows of a matrix of counts as lists. A histogram without any value is null."""
        filled = counts.any(axis=1)
        return list_array(pa.array(counts[filled].reshape(-1).astype(np.int64)), np.where(filled, self.width, 0))

    def _matrix(self, lists: pa.Array) -> npt.NDArray[np.int64]:
        """Return stored histograms as a matrix of counts, with zeros for null."""
        lengths = lists.value_lengths().drop_null().to_numpy(zero_copy_only=False)
        if (lengths != self.width).any():
            stored_width = int(lengths[lengths != self.width][0])
            raise InvalidRequestError(
                f"histogram of {self.spec.column}: the state holds {stored_width} counts, its {len(self.spec.bounds)} "
                f"bounds make {self.width}",
                kind="histogram-bounds-changed",
                hint="set the bounds back; they are fixed for the life of a state",
            )
        matrix = np.zeros((len(lists), self.width), np.int64)
        matrix[valid_rows([lists])] = lists.flatten().to_numpy(zero_copy_only=False).reshape(-1, self.width)
        return matrix


ACCUMULATORS: dict[str, Callable[[AggregateSpec], Accumulator]] = {
    "count": Count,
    "sum": Sum,
    "min": Extreme,
    "max": Extreme,
    "avg": Average,
    "first": Pick,
    "last": Pick,
    "collect": Collected,
    "distinct": Collected,
    "histogram": Histogram,
    "variance": Deviations,
    "stddev": Deviations,
    "bool_and": Extreme,
    "bool_or": Extreme,
    "latest": Pick,
    "top": Ranked,
    "bottom": Ranked,
    "decay": Decay,
    "approx_distinct": DistinctSketch,
    "theta": ThetaSketch,
    "approx_quantiles": QuantileSketch,
    "bitmap": Bitmap,
}


def accumulator_of(spec: AggregateSpec) -> Accumulator:
    """Return the computation of an aggregate."""
    return ACCUMULATORS[spec.agg](spec)


def _inputs(events: pa.Table, column: str, codes: Rows) -> tuple[pa.Array, Rows]:
    """Return the non-null values of a column and the groups of their rows."""
    values = clean(one_array(events[column]))
    if not values.null_count:
        return values, codes
    rows = valid_rows([values])
    return values.take(pa.array(rows)), codes[rows]


def _add(before: pa.Array, more: pa.Array, spec: AggregateSpec) -> pa.Array:
    """Return the sums, row by row. Null counts as zero, but the sum of two nulls is null.

    Raise InvalidRequestError (``sum-overflow``)."""
    try:
        if pa.types.is_decimal(before.type):
            return add_decimals(before, more)
        zero = pa.scalar(0, before.type)
        total = pc.add_checked(before.fill_null(zero), more.fill_null(zero))
    except pa.ArrowInvalid as error:
        raise sum_overflow(spec) from error
    if not (before.null_count and more.null_count):
        return total
    return pc.if_else(pc.and_(before.is_null(), more.is_null()), pa.scalar(None, before.type), total)


def _check_long_sums(values: pa.Array, codes: Rows, size: int, spec: AggregateSpec) -> None:
    """Raise InvalidRequestError (``sum-overflow``) if the sum of a group exceeds a long, for Arrow and numpy overflow
    silently. Only if the sum of absolute values comes near to a long, exact sums of both halves of the words are
    computed."""
    numbers = values.to_numpy(zero_copy_only=False).astype(np.int64)
    magnitudes = np.abs(numbers.astype(np.float64))
    if not len(numbers) or np.bincount(codes, magnitudes, minlength=size).max() < LONG_LIMIT * (1 - 1e-9):
        return
    high, low = np.zeros(size, np.int64), np.zeros(size, np.int64)
    np.add.at(high, codes, numbers >> 32)
    np.add.at(low, codes, numbers & 0xFFFFFFFF)
    high += low >> 32
    if high.min() < -(1 << 31) or high.max() >= 1 << 31:
        raise sum_overflow(spec)


def _decimal_sums(values: pa.Array, codes: Rows, size: int, spec: AggregateSpec) -> pa.Array:
    """Return the sum of decimals per group. Raise InvalidRequestError (``sum-overflow``)."""
    try:
        return sum_decimals(values, codes, size)
    except pa.ArrowInvalid as error:
        raise sum_overflow(spec) from error


def sum_overflow(spec: AggregateSpec) -> InvalidRequestError:
    """Return the error (``sum-overflow``) of a sum that its type cannot hold."""
    digits = decimal_digits(spec.of[1]) if spec.of else None
    if digits:
        return InvalidRequestError(
            f"sum of {spec.column}: expected at most {MAX_DIGITS} digits, {digits[1]} of them after the point, found "
            "more",
            kind="sum-overflow",
            hint="declare the column with a smaller scale, or as double, in a pipeline of another name, and replay; "
            "the stored sums cannot become of such a type",
        )
    return InvalidRequestError(
        f"sum of {spec.column if spec.of else 'events'}: expected within a long (64 bits), found more",
        kind="sum-overflow",
        hint="declare the column as decimal(19, 0), whose sum has 38 digits and continues the stored one; if the state "
        "has an avg of the column, declare a second column for the sum, with 'expr'",
    )


def _whole(bounds: Sequence[float]) -> npt.NDArray[np.int64]:
    """Return the greatest long up to each bound, because a long becomes another number as a double. A bound below all
    longs becomes the least one."""
    least, greatest = -(2**63), 2**63 - 1
    return np.array([math.floor(min(max(each, least), greatest)) for each in bounds], np.int64)


def _zeros_for_nulls(accumulators: pa.Array) -> list[npt.NDArray[Any]]:
    """Return the fields of accumulators as arrays, with zeros for an accumulator that is null."""
    return [field.fill_null(0).to_numpy(zero_copy_only=False) for field in accumulators.flatten()]


def _deviations(means: npt.NDArray[Any], squares: npt.NDArray[Any], counts: npt.NDArray[np.int64]) -> pa.Array:
    fields = [pa.array(means), pa.array(squares), pa.array(counts)]
    return pa.StructArray.from_arrays(fields, ["mean", "squares", "count"], mask=pa.array(counts == 0))


def _sum_and_count(sums: pa.Array, counts: pa.Array, null: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([sums, counts], ["sum", "count"], mask=null)
