"""The aggregates ``first`` and ``last``: one or several values of the first or the last event."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelib.aggregates.grouping import Grouping, nullable_rows, one_array, pick_rows, valid_rows
from statelib.aggregates.kinds import AggregateSpec, Nulls

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Pick:
    """``first`` and ``last`` by some columns. The accumulator also stores these columns, to compare later events."""

    spec: AggregateSpec

    @property
    def how(self) -> str:
        """``min`` for ``first``, ``max`` for ``last``."""
        return "min" if self.spec.agg == "first" else "max"

    @property
    def _skips_nulls(self) -> bool:
        return self.spec.nulls is Nulls.SKIP and not self.spec.together

    def partial(self, events: pa.Table, grouping: Grouping) -> pa.Array:
        names = [name for name, _ in self.spec.columns]
        columns = [clean(one_array(events[name])) for name in names]
        order = len(self.spec.by)
        rows, codes = valid_rows(columns if self._skips_nulls else columns[:order]), grouping.codes
        if len(rows) < len(codes):
            columns, codes = [column.take(pa.array(rows)) for column in columns], codes[rows]
        picked = pick_rows(columns, codes, grouping.size, self.how)
        value = pa.StructArray.from_arrays(columns[order:], names[order:]) if self.spec.together else columns[-1]
        fields = ["value", *(f"by_{name}" for name in names[:order])]
        return pa.StructArray.from_arrays([value, *columns[:order]], fields).take(nullable_rows(picked))

    def merge(self, before: pa.Array, more: pa.Array) -> pa.Array:
        if self._skips_nulls:
            before = _without_nulls(before)
        values, *order = zip(before.flatten(), more.flatten(), strict=True)
        compared = list(zip(*(side.flatten() for side in values), strict=True)) if self.spec.together else [values]
        return better(before, more, [*order, *compared], self.how)


def _without_nulls(accumulators: pa.Array) -> pa.Array:
    """Return the accumulators, with null for those whose value is null.

    Such values were stored while the field had ``nulls: keep``."""
    value = accumulators.field(0)
    if value.null_count <= accumulators.null_count:
        return accumulators
    return accumulators.take(nullable_rows(np.where(_mask(value.is_valid()), np.arange(len(value)), -1)))


def clean(values: pa.Array) -> pa.Array:
    """Return the values with null for NaN and 0.0 for -0.0. Otherwise results would depend on the order of events."""
    if not pa.types.is_floating(values.type):
        return values
    values = pc.add(values, pa.scalar(0.0, values.type))
    nan = pc.is_nan(values)
    return pc.if_else(nan, pa.scalar(None, values.type), values) if pc.any(nan).as_py() else values


def better(before: pa.Array, more: pa.Array, columns: Iterable[tuple[pa.Array, pa.Array]], how: str) -> pa.Array:
    """Return the lesser (``min``) or the greater (``max``) of two values per row, or the other one if one is null.

    ``columns`` are pairs of columns that are compared one after the other. Null is less than all values."""
    old, new = _mask(before.is_valid()), _mask(more.is_valid())
    wins, tied = new & ~old, old & new
    for left, right in columns:
        if not tied.any():
            break
        is_better, is_equal = compared(left, right, how)
        wins |= tied & is_better
        tied &= is_equal
    if wins.all() or not wins.any():
        return more if wins.any() else before
    rows = np.arange(len(before), dtype=np.int64)
    rows[wins] += len(before)
    return pa.concat_arrays([before, more]).take(pa.array(rows))


def compared(left: pa.Array, right: pa.Array, how: str) -> tuple[Mask, Mask]:
    """Return whether each right value is better than the left value, and whether it is equal."""
    is_better = _mask((pc.less if how == "min" else pc.greater)(right, left))
    is_equal = _mask(pc.equal(right, left))
    if left.null_count or right.null_count:
        old, new = _mask(left.is_valid()), _mask(right.is_valid())
        is_better |= (old & ~new) if how == "min" else (new & ~old)
        is_equal |= ~(old | new)
    return is_better, is_equal


def _mask(values: pa.BooleanArray) -> Mask:
    """Return the values as a numpy mask, with False for null."""
    filled = values.fill_null(False) if values.null_count else values
    return np.asarray(filled.to_numpy(zero_copy_only=False), np.bool_)
