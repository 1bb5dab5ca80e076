"""The rows of a mapped table in a subtask: each becomes one entry per state that has a value in it.

The values of aggregates are brought into the form in which the aggregates store them, so that a pipeline that begins
with a table has the same state as one that applied all events. Lists are sorted, and sketches are read."""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelib.aggregates.grouping import group_rows
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.operator.state import OperatorStateBackend
from statelib.definition.columns import key_array
from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError
from statelib.functions.declared import AggregateFunction
from statelib.functions.interval import IntervalResult, expired
from statelib.functions.state_function import Progress
from statelib.model.amounts import number_of
from statelib.model.state import StateDescriptor, StateKind
from statelib.serializers.columns.arrow import list_bounds
from statelib.spark.imports.given_values import GivenValues
from statelib.spark.imports.loaded_rows import load_rows
from statelib.spark.imports.seed_columns import STATE

DUPLICATE_KEY = "duplicate-key"
EXAMPLES = 3


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
        repeats = np.delete(np.arange(len(keys)), group_rows([keys]).first)
        if len(repeats):
            examples = keys.take(pa.array(repeats[:EXAMPLES])).to_pylist()
            raise duplicates(pipeline, len(repeats), examples)
        timed, ttl = expired(backend, pipeline.ttl(), progress), pipeline.ttl()
        for state in self.states:
            entries = Entries.of(timed.schema.state(state), keys, rows[STATE + state].combine_chunks()).stored(pipeline)
            repeated = load_rows(timed, state, entries.keys, entries.values, entries.user_keys, timed=state in ttl)
            if len(repeated):
                raise InvalidRequestError(
                    f"{pipeline.name}: state {state!r}: a map has {number_of(len(repeated), 'user key')} more than "
                    f"once, such as that of key {repeated[0]}",
                    kind="duplicate-key",
                    hint="make maps in which each user key is once, for example with map_from_entries",
                )
        return IntervalResult()


@dataclass(frozen=True)
class Entries:
    """The entries of one state: per row a key, the user key of map state, and a value."""

    descriptor: StateDescriptor
    keys: pa.Array
    values: pa.Array
    user_keys: pa.Array | None = None

    @classmethod
    def of(cls, descriptor: StateDescriptor, keys: pa.Array, column: pa.Array) -> "Entries":
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

    def stored(self, pipeline: Pipeline) -> "Entries":
        """Return the entries with the values as the aggregates of the state store them, without those of no event.

        Raises InvalidRequestError (``bad-accumulator``)."""
        name = self.descriptor.name
        function = next((f for f in pipeline.functions() if isinstance(f, AggregateFunction) and f.state == name), None)
        if function is None:
            return self
        folding = function.value
        stored = [
            GivenValues(spec, self.keys, name if field is None else f"{name}.{field}").stored(column)
            for (field, spec), column in zip(folding.fields, folding.parts(self.values), strict=True)
        ]
        values = folding.values(stored, self.values.type)
        if not folding.is_single:
            return replace(self, values=values)
        filled = values.is_valid()
        user_keys = None if self.user_keys is None else self.user_keys.filter(filled)
        return Entries(self.descriptor, self.keys.filter(filled), values.filter(filled), user_keys)


def duplicates(pipeline: Pipeline, number: int, examples: list[object]) -> InvalidRequestError:
    """Return the error for a table with several rows per key."""
    return InvalidRequestError(
        f"{pipeline.name}: {number_of(number, 'row')} of the table {'repeats' if number == 1 else 'repeat'} the key of "
        f"another row, such as {', '.join(map(str, examples))}",
        kind=DUPLICATE_KEY,
        hint="a table has one row per key; GROUP BY the key in a view, and seed from the view",
    )
