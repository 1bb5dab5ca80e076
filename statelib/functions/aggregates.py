"""The aggregates a pipeline file may name: what each takes, and the type of its accumulator.

Types only, and no array library, so that a pipeline file is checked in a moment; how they are
computed is in ``accumulators.py``. An accumulator is null until it has seen a value, null inputs
are skipped (SQL) unless ``first`` or ``last`` keeps them, and a NaN counts as null. All of them are commutative
and associative: neither the order of events nor their division into batches shows in the result (sums of doubles
up to rounding).
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from statelib.model.types import DOUBLE, LONG, SCALARS, ArrayOf, Field, ListOf, Row, Scalar, StateType

NUMERIC = ("byte", "short", "int", "long", "float", "double")
ORDERED = tuple(name for name in SCALARS if name != "void")


class Nulls(StrEnum):
    """What a null in the column of ``first`` or ``last`` means: no value, or the value null."""

    SKIP = "skip"
    KEEP = "keep"


@dataclass(frozen=True)
class AggregateSpec:
    """One aggregate of one column. ``of``: (column, type), None for a plain ``count``; ``by``:
    the columns that order ``first`` and ``last``; ``bounds``: see ``histogram``; ``nulls``: of ``first`` and ``last``.
    ``together``: instead of ``of``, the columns of ``first`` or ``last`` that are taken from one and the same event."""

    agg: str
    of: tuple[str, StateType] | None = None
    by: tuple[tuple[str, StateType], ...] = ()
    bounds: tuple[float, ...] = ()
    nulls: Nulls = Nulls.SKIP
    together: tuple[tuple[str, StateType], ...] = ()

    @property
    def accumulator_type(self) -> StateType:
        return AGGREGATES[self.agg].accumulator(self)

    @property
    def column(self) -> str:
        """The column it reads; asks only where there must be one."""
        return self.of_required[0]

    @property
    def columns(self) -> tuple[tuple[str, StateType], ...]:
        """The columns that it reads, in the order in which ``first`` and ``last`` compare them."""
        return (*self.by, *self.together, *((self.of,) if self.of is not None else ()))

    @property
    def of_required(self) -> tuple[str, StateType]:
        assert self.of is not None, f"aggregate {self.agg} without a column passed the checks of the definition"
        return self.of


class Column(StrEnum):
    REQUIRED = "required"
    OPTIONAL = "optional"


@dataclass(frozen=True)
class Aggregate:
    """``inputs``: names of the scalar types that ``of`` may have; empty = any type."""

    accumulator: Callable[[AggregateSpec], StateType]
    inputs: tuple[str, ...] = ORDERED
    column: Column = Column.REQUIRED
    takes_by: bool = False
    takes_bounds: bool = False


def _same(spec: AggregateSpec) -> StateType:
    return spec.of_required[1]


def _sum(spec: AggregateSpec) -> StateType:
    return DOUBLE if str(spec.of_required[1]) in ("float", "double") else LONG


def _pick(spec: AggregateSpec) -> StateType:
    order = tuple(Field(f"by_{name}", type_) for name, type_ in spec.by)
    together = Row(tuple(Field(name, type_) for name, type_ in spec.together))
    return Row((Field("value", together if spec.together else spec.of_required[1]), *order))


def _many(spec: AggregateSpec) -> StateType:
    return ListOf(spec.of_required[1])


AVERAGE = Row((Field("sum", DOUBLE), Field("count", LONG)))

AGGREGATES: dict[str, Aggregate] = {
    "count": Aggregate(lambda _: LONG, inputs=(), column=Column.OPTIONAL),
    "sum": Aggregate(_sum, inputs=NUMERIC),
    "min": Aggregate(_same),
    "max": Aggregate(_same),
    "avg": Aggregate(lambda _: AVERAGE, inputs=NUMERIC),
    "first": Aggregate(_pick, takes_by=True),
    "last": Aggregate(_pick, takes_by=True),
    "collect": Aggregate(_many),
    "distinct": Aggregate(_many),
    "histogram": Aggregate(lambda _: ArrayOf(LONG), inputs=NUMERIC, takes_bounds=True),
}
"""
``count`` events, or non-null values of a column (0 if all are null); ``sum`` long or double, an
overflow is an error; ``min``, ``max``; ``avg`` keeps sum and count; ``first`` and ``last`` value in
the order of the ``by`` columns, equal ones ordered by the value itself, null before all others; an event in which
a ``by`` column is null takes no part; ``collect`` all values
ascending, ``distinct`` each value once, ascending; ``histogram`` counts values by upper bound:
element i counts bounds[i-1] < value <= bounds[i], the last one the values above every bound.
"""


def accepts(agg: str, type_: StateType) -> bool:
    """Whether the aggregate takes a column of this type."""
    inputs = AGGREGATES[agg].inputs
    return not inputs or (isinstance(type_, Scalar) and type_.name in inputs)
