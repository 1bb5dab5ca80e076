"""The aggregates that a pipeline file can name, with their input types and the types of their accumulators.

This module does not import an array library, so that pipeline files are checked quickly. ``accumulators.py`` computes
the aggregates. An accumulator is null until its first value. Null inputs are skipped as in SQL, unless ``first`` or
``last`` keeps them, and NaN counts as null. All aggregates are commutative and associative: the result depends neither
on the order of events nor on their division into batches (sums of doubles and deviations up to rounding).
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from statelib.model.types import (
    BYTES,
    DOUBLE,
    LONG,
    SCALARS,
    ArrayOf,
    Field,
    ListOf,
    Row,
    Scalar,
    StateType,
    decimal_digits,
    widest_decimal,
)

DECIMAL = "decimal"
"""The name of the decimal types of all precisions."""
RETRACTABLE = frozenset({"count", "sum", "avg", "histogram"})
"""The aggregates that can take an event back."""
NULL_IF_EMPTY = frozenset({"avg", "histogram"})
"""The aggregates of these that fail if a value is taken back that was not added, and that are null without values. So
an accumulator that is null does not show whether the entry has values from before the field was added."""
NUMERIC = ("byte", "short", "int", "long", "float", "double", DECIMAL)
WHOLE = ("byte", "short", "int", "long")
HASHED = (*WHOLE, "string", "bytes")
"""The types whose values sketches hash, as Spark's functions do."""
ORDERED = (*(name for name in SCALARS if name != "void"), DECIMAL)


class Nulls(StrEnum):
    """The meaning of a null in the column of ``first`` or ``last``: no value (``skip``), or a value (``keep``)."""

    SKIP = "skip"
    KEEP = "keep"


@dataclass(frozen=True)
class AggregateSpec:
    """One aggregate of one column.

    ``of`` is (column, type), or None for a ``count`` of events. ``by`` are the columns that order ``first`` and
    ``last``. ``bounds`` are the upper bounds of a ``histogram``, or the one number of another aggregate: ``n``,
    ``limit`` or the half-life in milliseconds. ``nulls`` applies to ``first`` and ``last``. ``together`` replaces
    ``of`` and holds several columns of ``first`` or ``last`` that come from the same event.
    ``where`` is the boolean column of the events that count, '' if all events do."""

    agg: str
    of: tuple[str, StateType] | None = None
    by: tuple[tuple[str, StateType], ...] = ()
    bounds: tuple[float, ...] = ()
    nulls: Nulls = Nulls.SKIP
    together: tuple[tuple[str, StateType], ...] = ()
    where: str = ""

    @property
    def accumulator_type(self) -> StateType:
        """The type of the accumulator in the state."""
        return AGGREGATES[self.agg].accumulator(self)

    @property
    def column(self) -> str:
        """The name of the column that it reads. Only for aggregates that have a column."""
        return self.of_required[0]

    @property
    def columns(self) -> tuple[tuple[str, StateType], ...]:
        """The columns that it reads, in the order in which ``first`` and ``last`` compare them."""
        return (*self.by, *self.together, *((self.of,) if self.of is not None else ()))

    @property
    def of_required(self) -> tuple[str, StateType]:
        """The name and the type of the column. Only for aggregates that have a column."""
        assert self.of is not None, f"aggregate {self.agg} without a column passed the checks of the definition"
        return self.of


class ColumnRule(StrEnum):
    """Whether an aggregate needs a column."""

    REQUIRED = "required"
    OPTIONAL = "optional"


@dataclass(frozen=True)
class Aggregate:
    """The description of an aggregate. ``inputs`` are the names of the scalar types that its column may have; if it is
    empty, any type is allowed. ``takes_together``: it may take several columns of one event. ``number``: the key of the
    number that it needs, or may have, '' if it has none."""

    accumulator: Callable[[AggregateSpec], StateType]
    inputs: tuple[str, ...] = ORDERED
    column: ColumnRule = ColumnRule.REQUIRED
    takes_by: bool = False
    takes_bounds: bool = False
    takes_together: bool = False
    number: str = ""
    number_required: bool = True


def _type_of_column(spec: AggregateSpec) -> StateType:
    return spec.of_required[1]


def _sum(spec: AggregateSpec) -> StateType:
    type_ = spec.of_required[1]
    return widest_decimal(type_) or (DOUBLE if str(type_) in ("float", "double") else LONG)


def _pick(spec: AggregateSpec) -> StateType:
    order = tuple(Field(f"by_{name}", type_) for name, type_ in spec.by)
    together = Row(tuple(Field(name, type_) for name, type_ in spec.together))
    return Row((Field("value", together if spec.together else spec.of_required[1]), *order))


def _ranked(spec: AggregateSpec) -> StateType:
    return ListOf(_pick(spec))


def _decay(spec: AggregateSpec) -> StateType:
    return Row((Field("value", DOUBLE), *(Field(f"by_{name}", type_) for name, type_ in spec.by)))


def _list_of_column(spec: AggregateSpec) -> StateType:
    return ListOf(spec.of_required[1])


def _average(spec: AggregateSpec) -> StateType:
    return Row((Field("sum", widest_decimal(spec.of_required[1]) or DOUBLE), Field("count", LONG)))


DEVIATIONS = Row((Field("mean", DOUBLE), Field("squares", DOUBLE), Field("count", LONG)))

AGGREGATES: dict[str, Aggregate] = {
    "count": Aggregate(lambda _: LONG, inputs=(), column=ColumnRule.OPTIONAL),
    "sum": Aggregate(_sum, inputs=NUMERIC),
    "min": Aggregate(_type_of_column),
    "max": Aggregate(_type_of_column),
    "avg": Aggregate(_average, inputs=NUMERIC),
    "first": Aggregate(_pick, takes_by=True, takes_together=True),
    "last": Aggregate(_pick, takes_by=True, takes_together=True),
    "collect": Aggregate(_list_of_column, number="limit", number_required=False),
    "distinct": Aggregate(_list_of_column, number="limit", number_required=False),
    "histogram": Aggregate(lambda _: ArrayOf(LONG), inputs=NUMERIC, takes_bounds=True),
    "variance": Aggregate(lambda _: DEVIATIONS, inputs=NUMERIC),
    "stddev": Aggregate(lambda _: DEVIATIONS, inputs=NUMERIC),
    "bool_and": Aggregate(_type_of_column, inputs=("boolean",)),
    "bool_or": Aggregate(_type_of_column, inputs=("boolean",)),
    "latest": Aggregate(_pick, column=ColumnRule.OPTIONAL, takes_by=True),
    "top": Aggregate(_ranked, takes_by=True, takes_together=True, number="n"),
    "bottom": Aggregate(_ranked, takes_by=True, takes_together=True, number="n"),
    "decay": Aggregate(_decay, inputs=NUMERIC, column=ColumnRule.OPTIONAL, takes_by=True, number="half_life"),
    "approx_distinct": Aggregate(lambda _: BYTES, inputs=HASHED),
    "theta": Aggregate(lambda _: BYTES, inputs=HASHED),
    "approx_quantiles": Aggregate(lambda _: BYTES, inputs=NUMERIC),
    "bitmap": Aggregate(lambda _: BYTES, inputs=WHOLE),
}
"""
The aggregates by name.

- ``count``: the number of events, or of non-null values of a column (0 if all are null).
- ``sum``: a long or a double; for decimals a decimal of 38 digits and the same scale. An overflow is an error, but a
  double becomes infinite.
- ``min``, ``max``: the least and the greatest value.
- ``avg``: the sum and the count are stored.
- ``first``, ``last``: the value of the first or last event in the order of the ``by`` columns. Events with equal ``by``
  columns are ordered by the value itself, null before all others. An event with a null in a ``by`` column is ignored.
- ``collect``: all values in ascending order, or the least ones with a ``limit``.
- ``distinct``: each value once, in ascending order.
- ``histogram``: counts of values by upper bound. Element i counts bounds[i-1] < value <= bounds[i], and the last
  element counts the values above every bound.
- ``variance``, ``stddev``: those of a sample, as in SQL. The mean, the sum of the squared deviations from it, and the
  count are stored.
- ``bool_and``, ``bool_or``: whether all values are true, or any value is.
- ``latest``: all columns of the last event in the order of the ``by`` columns.
- ``top``, ``bottom``: the ``n`` events with the greatest or least ``by`` columns, the best first.
- ``decay``: the sum of a column, or the number of events, each halved once per half-life until the last event.
- ``approx_distinct``, ``theta``: an HLL sketch or a theta sketch of Apache DataSketches.
- ``approx_quantiles``: a KLL sketch of doubles of Apache DataSketches.
- ``bitmap``: the set of the numbers from 0 to 32767, as a bitmap of Spark.
"""


def hashed_kind(agg: str, type_: StateType) -> str:
    """Return the kind of values whose hashes the aggregate stores for a column of this type, in words; '' if it stores
    none. The number 7 and the text "7" have different hashes."""
    if not agg or AGGREGATES[agg].inputs != HASHED:
        return ""
    return "whole numbers" if str(type_) in WHOLE else "texts or bytes"


def accepts(agg: str, type_: StateType) -> bool:
    """Return whether the aggregate accepts a column of this type."""
    inputs = AGGREGATES[agg].inputs
    name = DECIMAL if decimal_digits(type_) else type_.name if isinstance(type_, Scalar) else ""
    return not inputs or name in inputs
