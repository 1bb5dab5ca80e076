"""The rows of a mapped table in a subtask: each becomes one entry per state that has a value in it.

The values of aggregates are brought into the form in which the aggregates store them, so that a pipeline that begins
with a table has the same state as one that applied all events. Lists are sorted, and sketches are read."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelib.aggregates.accumulators import accumulator_of
from statelib.aggregates.kinds import AggregateSpec
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.operator.state import OperatorStateBackend
from statelib.definition.columns import key_array
from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError, StatelibError
from statelib.functions.declared import AggregateFunction
from statelib.functions.interval import IntervalResult, expired
from statelib.functions.state_function import Progress
from statelib.model.amounts import number_of
from statelib.model.state import StateDescriptor, StateKind
from statelib.serializers.columns.arrow import list_bounds
from statelib.spark.imports.loaded_rows import load_rows
from statelib.spark.imports.seed_columns import STATE

DUPLICATE_KEY = "duplicate-key"
EXAMPLES = 3
_COUNTED = ("avg", "variance", "stddev")
"""The aggregates that store a count beside other numbers. One of no values is null."""


@dataclass(frozen=True)
class PutRows:
    """A change that puts the rows of a :class:`~statelib.spark.imports.seed_columns.MappedTable` into empty ``states``.
    It changes neither timers nor operator state."""

    states: tuple[str, ...]

    def __call__(
        self,
        pipeline: Pipeline,
        backend: KeyedStateBackend,
        rows: pa.Table,
        progress: Progress,
        operator: OperatorStateBackend,  # noqa: ARG002 - a table has none
    ) -> IntervalResult:
        if not len(rows):
            return IntervalResult()
        keys = key_array(pipeline, rows)
        timed, ttl = expired(backend, pipeline.ttl(), progress), pipeline.ttl()
        functions = {each.state: each for each in pipeline.functions() if isinstance(each, AggregateFunction)}
        for state in self.states:
            entries = _Entries.of(timed.schema.state(state), keys, rows[STATE + state].combine_chunks())
            if state in functions:
                entries = entries.stored(functions[state])
            repeated = load_rows(timed, state, entries.keys, entries.values, entries.user_keys, timed=state in ttl)
            if len(repeated):
                raise duplicates(pipeline, state, len(repeated), repeated[:EXAMPLES].to_pylist())
        return IntervalResult()


@dataclass(frozen=True)
class _Entries:
    """The entries of one state: per row a key, the user key of map state, and a value."""

    descriptor: StateDescriptor
    keys: pa.Array
    values: pa.Array
    user_keys: pa.Array | None = None

    @classmethod
    def of(cls, descriptor: StateDescriptor, keys: pa.Array, column: pa.Array) -> "_Entries":
        """Return the entries of a column, which has a map per row for map state. Null and an empty list are none."""
        if descriptor.kind is not StateKind.MAP:
            is_list = descriptor.kind is StateKind.LIST
            filled = pc.greater(pc.list_value_length(column), 0) if is_list else column.is_valid()
            return cls(descriptor, keys.filter(filled), column.filter(filled))
        filled = column.is_valid()
        keys, column = keys.filter(filled), column.filter(filled)
        bounds = list_bounds(column)
        owners = np.repeat(np.arange(len(keys)), np.diff(bounds))
        inside = slice(int(bounds[0]), int(bounds[-1]))
        return cls(descriptor, keys.take(pa.array(owners)), column.items[inside], column.keys[inside])

    def stored(self, function: AggregateFunction) -> "_Entries":
        """Return the entries with the values as the aggregates of the state store them.

        Raises InvalidRequestError (``bad-accumulator``)."""
        single = function.fields[0][0] is None
        columns = [self.values] if single else self.values.flatten()
        stored = [
            _stored(spec, column, self.keys, self.descriptor.name + (f".{name}" if name else ""))
            for (name, spec), column in zip(function.fields, columns, strict=True)
        ]
        if not single:
            values = pa.StructArray.from_arrays(stored, fields=list(self.values.type))
            return _Entries(self.descriptor, self.keys, values, self.user_keys)
        filled = stored[0].is_valid()  # an average or a sketch of no values is null
        user_keys = None if self.user_keys is None else self.user_keys.filter(filled)
        return _Entries(self.descriptor, self.keys.filter(filled), stored[0].filter(filled), user_keys)


def duplicates(pipeline: Pipeline, state: str, number: int, examples: list[object]) -> InvalidRequestError:
    """Return the error for a table with several rows per key."""
    return InvalidRequestError(
        f"{pipeline.name}: state {state!r}: {number_of(number, 'row')} of the table "
        f"{'repeats' if number == 1 else 'repeat'} the key of another row, such as {', '.join(map(str, examples))}",
        kind=DUPLICATE_KEY,
        hint="a table has one row per key; GROUP BY the key in a view, and seed from the view",
    )


def _stored(spec: AggregateSpec, column: pa.Array, keys: pa.Array, where: str) -> pa.Array:
    """Return accumulators as the aggregate stores them. Raises InvalidRequestError (``bad-accumulator``)."""
    if spec.agg in _COUNTED:
        counts = pc.struct_field(column, "count")
        column = pc.if_else(pc.equal(counts, 0).fill_null(False), pa.scalar(None, column.type), column)
    _check_numbers(spec, column, keys, where)
    try:
        return accumulator_of(spec).merge(pa.nulls(len(column), column.type), column).cast(column.type)
    except StatelibError as error:
        raise InvalidRequestError(f"{where}: {error.message}", kind="bad-accumulator", hint=error.hint) from error


def _check_numbers(spec: AggregateSpec, column: pa.Array, keys: pa.Array, where: str) -> None:
    """Raise InvalidRequestError (``bad-accumulator``) for a count that is null or negative, and for an average or the
    like of which only some numbers are null."""
    numbers = {where: column} if spec.agg == "count" else {}
    if spec.agg in _COUNTED:
        valid = column.is_valid()
        keys, column = keys.filter(valid), column.filter(valid)
        numbers = {f"{where}.{part.name}": values for part, values in zip(column.type, column.flatten(), strict=True)}
    for name, values in numbers.items():
        wrong = pc.is_null(values)
        if values.type == pa.int64():
            wrong = pc.or_(wrong, pc.less(values, 0).fill_null(False))
        bad = keys.filter(wrong)
        if len(bad):
            raise InvalidRequestError(
                f"{name} is null or negative in {number_of(len(bad), 'row')}, such as that of key {bad[0]}",
                kind="bad-accumulator",
                hint="write an expression that is a number in every row, such as COALESCE(column, 0)",
            )
