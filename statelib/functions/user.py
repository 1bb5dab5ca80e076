"""User functions on Arrow tables: events and state in, changed state out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.backends.keyed import KeyedStateBackend, StateValues
from statelib.errors import InvalidRequestError
from statelib.functions.grouping import group_rows, one_array
from statelib.functions.resolve import resolve
from statelib.serializers.keys import encode_keys
from statelib.serializers.values import value_arrow_type


@dataclass(frozen=True)
class UserFunction:
    """Calls ``def update(events: pa.Table, state: pa.Table) -> pa.Table`` of ``reference``.

    ``events``: all events of the interval for the keys of one subtask, in no particular order.
    ``state``: one row a distinct key of these events, in order of first appearance: the key
    columns, then the fields of the state's Row, null where the key is new. The result has the same
    columns, in any order, and rows for the keys to be written, each at most once; a row whose
    fields are all null deletes its key. Keys left out keep what they have.
    """

    state: str
    key_columns: tuple[str, ...]
    reference: str

    def apply(
        self, backend: KeyedStateBackend, events: pa.Table, keys: pa.Array, groups: npt.NDArray[np.int32]
    ) -> None:
        if not len(events):
            return
        descriptor = backend.schema.state(self.state)
        first = group_rows([keys]).first
        distinct = keys.take(pa.array(first))
        before = backend.read(self.state, encode_keys(backend.schema, descriptor, distinct, groups[first]))
        row_type = value_arrow_type(descriptor)
        key_arrays = distinct.flatten() if len(self.key_columns) > 1 else [distinct]
        names = [*self.key_columns, *(field.name for field in row_type)]
        state = pa.table([*key_arrays, *before.values.flatten()], names=names)
        result = self._checked(self._call(events, state), state.schema)
        self._write(backend, before, self._rows_of(key_arrays, result), _struct(result, row_type))

    def _call(self, events: pa.Table, state: pa.Table) -> pa.Table:
        try:
            return resolve(self.reference)(events, state)
        except Exception as error:
            error.add_note(f"in function {self.reference} of state {self.state}")
            raise

    def _checked(self, result: object, expected: pa.Schema) -> pa.Table:
        if not isinstance(result, pa.Table):
            raise self._bad(f"expected a pyarrow.Table, found {type(result).__name__}")
        if sorted(result.column_names) != sorted(expected.names):
            raise self._bad(f"expected the columns {expected.names}, found {result.column_names}")
        try:
            table: pa.Table = result.select(expected.names).cast(expected)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise self._bad(f"expected the types {_types(expected)}, found {_types(result.schema)}: {error}") from error
        for name in self.key_columns:
            if table[name].null_count:
                raise self._bad(f"key column {name} is null in {table[name].null_count} rows")
        return table

    def _bad(self, problem: str) -> InvalidRequestError:
        return InvalidRequestError(
            f"result of function {self.reference} for state {self.state}: {problem}", kind="bad-function-result"
        )

    def _rows_of(self, key_arrays: Sequence[pa.Array], result: pa.Table) -> npt.NDArray[np.int64]:
        """For each row of the result the row of its key; refuses strange keys and repeated ones."""
        size = len(key_arrays[0])
        returned = [one_array(result[name]) for name in self.key_columns]
        rows = group_rows([pa.concat_arrays(pair) for pair in zip(key_arrays, returned, strict=True)]).codes[size:]
        problem = ""
        if (rows >= size).any():
            at, problem = int(np.argmax(rows >= size)), f"is not among the {size} keys of this batch"
        elif (np.bincount(rows, minlength=size) > 1).any():
            counts = np.bincount(rows)[rows]
            at, problem = int(np.argmax(counts)), f"is there {counts.max()} times, expected once"
        if problem:
            key = ", ".join(f"{name}={result[name][at].as_py()!r}" for name in self.key_columns)
            raise self._bad(f"key {key} {problem}")
        return rows

    def _write(
        self,
        backend: KeyedStateBackend,
        before: StateValues,
        targets: npt.NDArray[np.int64],
        values: pa.StructArray,
    ) -> None:
        """``targets[i]``: row of ``before`` that row i of ``values`` replaces."""
        empty = np.ones(len(values), bool)
        for field in values.flatten():
            empty &= field.is_null().to_numpy(zero_copy_only=False)
        known = before.present.to_numpy(zero_copy_only=False)
        source = np.full(len(before.keys), -1, np.int64)
        needed = known[targets] | ~empty
        source[targets[needed]] = np.flatnonzero(needed)
        chosen = np.flatnonzero(source >= 0)
        if not len(chosen):
            return
        if len(chosen) < len(before.keys):
            before = backend.read(self.state, before.keys.take(chosen))
        order = source[chosen]
        removed = pa.array(empty[order]) if empty[order].any() else None
        backend.write(before, self.state, values.take(pa.array(order)), removed)


def _struct(result: pa.Table, row_type: pa.StructType) -> pa.StructArray:
    return pa.StructArray.from_arrays([one_array(result[f.name]) for f in row_type], fields=list(row_type))


def _types(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
