"""The values of aggregates that were computed elsewhere, as the aggregates would have stored them.

A null or a NaN of a single event counts as in events: it is skipped, and -0.0 becomes 0.0. A number that was computed
of many events, and that no events make, is refused, because nobody can tell what it should be."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelib.aggregates.accumulators import accumulator_of
from statelib.aggregates.grouping import Rows, list_array, valid_rows
from statelib.aggregates.kinds import AggregateSpec, Nulls
from statelib.aggregates.picks import clean
from statelib.errors import InvalidRequestError, StatelibError
from statelib.model.amounts import number_of

_ZERO_HINT = "write an expression that is a number in every row, such as COALESCE(column, 0)"
_NAN_HINT = (
    "NaN counts as null in events: leave it out where the number is computed, or take it as no value with "
    "NULLIF(column, double('NaN'))"
)
_ORDER_HINT = "events without it are ignored: leave them out where the value is computed"


@dataclass(frozen=True)
class GivenValues:
    """The values of one aggregate that were computed elsewhere. ``keys``: the key of each row. ``where``: the name of
    the state or the field in errors."""

    spec: AggregateSpec
    keys: pa.Array
    where: str

    def stored(self, column: pa.Array) -> pa.Array:
        """Return the values as the aggregate stores them, null for those of no event.

        Raises InvalidRequestError (``bad-accumulator``)."""
        column, none = self._checked(column).cast(column.type), pa.nulls(len(column), column.type)
        try:
            return accumulator_of(self.spec).merge(none, column).cast(column.type)
        except StatelibError as error:
            message = f"{self.where}: {error.message}"
            raise InvalidRequestError(message, kind="bad-accumulator", hint=error.hint) from error

    def _checked(self, column: pa.Array) -> pa.Array:
        match self.spec.agg:
            case "count":
                self._refuse(self.where, "null or negative", _missing_or_negative(column), _ZERO_HINT)
            case "avg" | "variance" | "stddev":
                return self._numbers(column)
            case "first" | "last" | "latest" | "decay":
                return self._picked(column)
            case "collect" | "distinct" | "top" | "bottom":
                return self._lists(column)
            case "histogram":
                counts, rows = _elements(column)
                wrong = _missing_or_negative(counts).to_numpy(zero_copy_only=False)
                of_row = np.bincount(rows[wrong], minlength=len(column)) > 0
                self._refuse(self.where, "a list with a null or negative count", pa.array(of_row), _ZERO_HINT)
            case _ if pa.types.is_floating(column.type):
                self._refuse_nan(self.where, column)
                return clean(column)
        return column

    def _numbers(self, column: pa.Array) -> pa.Array:
        """Return accumulators of a count and other numbers. One of no values is null."""
        counted = pc.not_equal(pc.struct_field(column, "count"), 0).fill_null(True)
        present = pc.and_(column.is_valid(), counted)
        parts = []
        for part, values in zip(column.type, column.flatten(), strict=True):
            name = f"{self.where}.{part.name}"
            self._refuse_nan(name, pc.if_else(present, values, pa.scalar(None, values.type)))
            never_negative = part.name in ("count", "squares")
            wrong = _missing_or_negative(values) if never_negative else values.is_null()
            what = "null or negative" if never_negative else "null"
            self._refuse(name, what, pc.and_(present, wrong), _ZERO_HINT)
            parts.append(_cleaned(values))
        return pa.StructArray.from_arrays(parts, fields=list(column.type), mask=pc.invert(present))

    def _picked(self, column: pa.Array) -> pa.Array:
        """Return accumulators of a value and the columns that order it. One of a null is null, unless the field keeps
        nulls."""
        if self.spec.agg == "decay":
            self._refuse_nan(f"{self.where}.value", column.field("value"))
        value, *order = map(_cleaned, column.flatten())
        present = pc.and_(column.is_valid(), value.is_valid()) if self._skips_nulls else column.is_valid()
        for part, values in zip(list(column.type)[1:], order, strict=True):
            wrong = pc.and_(present, values.is_null())
            self._refuse(f"{self.where}.{part.name}", "null beside a value", wrong, _ORDER_HINT)
        return pa.StructArray.from_arrays([value, *order], fields=list(column.type), mask=pc.invert(present))

    def _lists(self, column: pa.Array) -> pa.Array:
        """Return lists without the elements that would have been skipped as events."""
        elements, rows = _elements(column)
        elements = _cleaned(elements)
        needed = [elements]
        if pa.types.is_struct(elements.type):
            value, *order = elements.flatten()
            needed = [value, *order] if self._skips_nulls else order
        valid = valid_rows(needed)
        return list_array(elements.take(pa.array(valid)), np.bincount(rows[valid], minlength=len(column)))

    @property
    def _skips_nulls(self) -> bool:
        return self.spec.nulls is Nulls.SKIP and not self.spec.together

    def _refuse_nan(self, name: str, values: pa.Array) -> None:
        if pa.types.is_floating(values.type):
            self._refuse(name, "NaN", pc.is_nan(values), _NAN_HINT)

    def _refuse(self, name: str, what: str, wrong: pa.Array, hint: str) -> None:
        """Raise InvalidRequestError (``bad-accumulator``) if there are ``wrong`` rows."""
        bad = self.keys.filter(wrong)
        if len(bad):
            raise InvalidRequestError(
                f"{name} is {what} in {number_of(len(bad), 'row')}, such as that of key {bad[0]}",
                kind="bad-accumulator",
                hint=hint,
            )


def _missing_or_negative(values: pa.Array) -> pa.Array:
    return pc.or_kleene(values.is_null(), pc.less(values, 0))


def _elements(lists: pa.Array) -> tuple[pa.Array, Rows]:
    """Return the elements of lists, and the row of each."""
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return lists.flatten(), np.repeat(np.arange(len(lists)), lengths)


def _cleaned(values: pa.Array) -> pa.Array:
    """Return the values as those of events: null for NaN, 0.0 for -0.0. A row is never null, only its fields are."""
    if not pa.types.is_struct(values.type):
        return clean(values)
    return pa.StructArray.from_arrays([_cleaned(part) for part in values.flatten()], fields=list(values.type))
