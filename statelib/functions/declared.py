"""Functions of states declared with aggregates. They merge the partial accumulators of a batch into the stored ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.backends.key_order import quick_order
from statelib.backends.keyed import KeyedStateBackend, StateValues
from statelib.backends.operator import OperatorStateBackend
from statelib.errors import InvalidRequestError
from statelib.functions.aggregates.accumulators import accumulator_of
from statelib.functions.aggregates.kinds import AggregateSpec
from statelib.functions.change_logs.retractions import divided, emptied, without
from statelib.functions.grouping import Grouping, Rows, group_rows, nullable_rows, one_array, valid_rows
from statelib.functions.state_function import Progress
from statelib.functions.timers import remove
from statelib.model.amounts import number_of
from statelib.model.state import StateDescriptor
from statelib.serializers.entries.keys import encode_keys
from statelib.serializers.entries.values import value_arrow_type
from statelib.wire.ragged import Ragged


def counted(spec: AggregateSpec, events: pa.Table, grouping: Grouping) -> tuple[pa.Table, Grouping]:
    """Return the columns that an aggregate reads, of the events that count by its column ``where``, and their groups,
    whose numbers are unchanged. A null counts as false. Without ``where`` the events are returned as they are."""
    if not spec.where:
        return events, grouping
    rows = np.flatnonzero(one_array(events[spec.where]).fill_null(False).to_numpy(zero_copy_only=False))
    read = events.select(list(dict.fromkeys(name for name, _ in spec.columns)))
    return read.take(pa.array(rows)), Grouping(grouping.codes[rows], grouping.first)


@dataclass(frozen=True)
class AggregateFunction:
    """The state function of a state that is declared with aggregates.

    ``fields`` holds one (name, aggregate) per field of the state's Row, or a single aggregate with the name None if the
    state holds the accumulator itself. ``user_key`` is the column of a map state's user keys. Events with a null user
    key are ignored if ``drop_null_user_keys`` is set. Otherwise they raise InvalidRequestError (``null-user-key``).

    A Row is written for every key with an event; an accumulator without a Row is written only if it is not null.
    """

    state: str
    fields: tuple[tuple[str | None, AggregateSpec], ...]
    user_key: str | None = None
    drop_null_user_keys: bool = False

    def apply(
        self,
        backend: KeyedStateBackend,
        events: pa.Table,
        keys: pa.Array,
        groups: npt.NDArray[np.int32],
        progress: Progress,  # noqa: ARG002 - state without windows does not depend on time
        *,
        operator: OperatorStateBackend | None = None,  # noqa: ARG002 - aggregates are of keys only
    ) -> int:
        """Merge the events into the state. Return 0, because no event is late without windows."""
        self.merge(backend, events, keys, groups)
        return 0

    def advance(
        self, backend: KeyedStateBackend, progress: Progress, *, operator: OperatorStateBackend | None = None
    ) -> None:
        """Do nothing, because a state without windows does not depend on time."""

    def merge(
        self,
        backend: KeyedStateBackend,
        events: pa.Table,
        keys: pa.Array,
        groups: npt.NDArray[np.int32],
        windows: pa.Array | None = None,
    ) -> None:
        """Merge events into the stored accumulators of their keys, or of their keys and ``windows``.

        Raise InvalidRequestError (``null-user-key``, and what the accumulators raise)."""
        if self.user_key is not None:
            rows = self._rows_with_user_key(events, self.user_key)
            if len(rows) < len(events):
                positions = pa.array(rows)
                events, keys, groups = events.take(positions), keys.take(positions), groups[rows]
                windows = None if windows is None else windows.take(positions)
        user_keys = None if self.user_key is None else one_array(events[self.user_key])
        grouping = group_rows([column for column in (keys, user_keys, windows) if column is not None])
        if not grouping.size:
            return
        positions = pa.array(grouping.first)
        distinct_user_keys, distinct_windows = (
            None if column is None else column.take(positions) for column in (user_keys, windows)
        )
        descriptor = backend.schema.state(self.state)
        key_groups = groups[grouping.first]
        state_keys = encode_keys(
            backend.schema,
            descriptor,
            keys.take(positions),
            key_groups,
            distinct_user_keys,
            namespaces=distinct_windows,
        )
        order = quick_order(state_keys)
        if order is not None:  # the state is stored in about this order, so it is read in one pass
            grouping, state_keys = grouping.ordered(order), state_keys.take(order)
        applied, retracted = divided(events, grouping)
        partials = self._partials(*applied)
        if retracted is not None:
            self._write(backend, descriptor, state_keys, partials, self._partials(*retracted))
            return
        if self._is_single:
            with_value = valid_rows(partials)
            partials, state_keys = [partials[0].take(pa.array(with_value))], state_keys.take(with_value)
        if len(state_keys):
            self._write(backend, descriptor, state_keys, partials)

    def join(self, backend: KeyedStateBackend, sources: Ragged, targets: Ragged, codes: Rows) -> None:
        """Merge entries of one key into one entry. ``codes[i]`` is the row of ``targets`` that gets the entry of
        ``sources`` in row i. The keys of each side are distinct; a key of both sides is merged with the others."""
        stored = backend.read(self.state, sources)
        present = np.flatnonzero(stored.present.to_numpy(zero_copy_only=False))
        present = present[np.argsort(codes[present], kind="stable")]
        values, codes = stored.values.take(pa.array(present)), codes[present]
        while len(codes) > 1 and (codes[1:] == codes[:-1]).any():
            values, codes = self._pairs_merged(values, codes)
        remove(backend, self.state, sources)
        if len(codes):
            backend.write(backend.read(self.state, targets.take(codes)), self.state, values)

    def _pairs_merged(self, values: pa.Array, codes: Rows) -> tuple[pa.Array, Rows]:
        """Merge the second value of each group into the first, the fourth into the third, and so on. The rows are
        sorted by their codes."""
        begins = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
        within = np.arange(len(codes)) - np.repeat(begins, np.diff(np.append(begins, len(codes))))
        odd = np.flatnonzero(within % 2)
        firsts = np.flatnonzero(within % 2 == 0)
        partners = np.full(len(codes), -1, np.int64)
        partners[odd - 1] = odd
        first, second = values.take(pa.array(firsts)), values.take(nullable_rows(partners[firsts]))
        merged = self._merged(self._fields(first), self._fields(second))
        return self._values(merged, values.type), codes[firsts]

    def _merged(self, stored: list[pa.Array], more: list[pa.Array]) -> list[pa.Array]:
        """Return the accumulators of each field merged with more, row by row; null leaves an accumulator unchanged."""
        merged = []
        for (name, spec), old, new in zip(self.fields, stored, more, strict=True):
            with self._named(name):
                merged.append(accumulator_of(spec).merge(old, new.cast(old.type)).cast(old.type))
        return merged

    def _fields(self, values: pa.Array) -> list[pa.Array]:
        """Return the accumulators of each field in values of the state."""
        return [values] if self._is_single else list(values.flatten())

    def _values(self, accumulators: list[pa.Array], type_: pa.DataType) -> pa.Array:
        """Return values of the state; the inverse of :meth:`_fields`."""
        return accumulators[0] if self._is_single else pa.StructArray.from_arrays(accumulators, fields=list(type_))

    def _partials(self, events: pa.Table, grouping: Grouping) -> list[pa.Array]:
        """Return the accumulators of the events alone, one array per field."""
        partials = []
        for name, spec in self.fields:
            with self._named(name):
                partials.append(accumulator_of(spec).partial(*counted(spec, events, grouping)))
        return partials

    def _write(
        self,
        backend: KeyedStateBackend,
        descriptor: StateDescriptor,
        keys: Ragged,
        partials: list[pa.Array],
        retracted: list[pa.Array] | None = None,
    ) -> None:
        """Merge partial accumulators into the stored ones, and subtract those of retracted events."""
        before = backend.read(self.state, keys)
        merged = self._merged(self._fields(before.values), partials)
        if retracted is not None:
            for i, ((name, spec), partial) in enumerate(zip(self.fields, retracted, strict=True)):
                with self._named(name):
                    merged[i] = without(spec, merged[i], partial).cast(merged[i].type)
        values = self._values(merged, value_arrow_type(descriptor))
        if retracted is None:
            backend.write(before, self.state, values)
        else:
            self._write_or_remove(backend, before, values, emptied(self.fields, merged))

    def _write_or_remove(
        self, backend: KeyedStateBackend, before: StateValues, values: pa.Array, empty: npt.NDArray[np.bool_]
    ) -> None:
        """Write the values, and remove the entries that are ``empty``."""
        rows = np.flatnonzero(before.present.to_numpy(zero_copy_only=False) | ~empty)
        if len(rows) < len(empty):
            before, values, empty = (
                backend.read(self.state, before.keys.take(rows)),
                values.take(pa.array(rows)),
                empty[rows],
            )
        if len(rows):
            backend.write(before, self.state, values, pa.array(empty))

    @contextmanager
    def _named(self, field: str | None) -> Iterator[None]:
        """Name the state and the field in errors of accumulators."""
        try:
            yield
        except InvalidRequestError as error:
            where = f"state {self.state}" if field is None else f"state {self.state}, field {field}"
            raise InvalidRequestError(f"{where}: {error.message}", kind=error.kind, hint=error.hint) from error

    @property
    def columns(self) -> set[str]:
        """The names of the columns that it reads, without the key columns."""
        read = {name for _, spec in self.fields for name, _ in spec.columns}
        read |= {spec.where for _, spec in self.fields if spec.where}
        return read if self.user_key is None else read | {self.user_key}

    @property
    def _is_single(self) -> bool:
        """Whether the state holds one accumulator instead of a Row."""
        return self.fields[0][0] is None

    def _rows_with_user_key(self, events: pa.Table, column: str) -> npt.NDArray[np.int64]:
        """Return the rows whose user key is not null. Raise InvalidRequestError (``null-user-key``)."""
        rows = valid_rows([one_array(events[column])])
        if len(rows) < len(events) and not self.drop_null_user_keys:
            raise InvalidRequestError(
                f"state {self.state}: {len(events) - len(rows)} of {number_of(len(events), 'event')} have no {column}, "
                "the user key of the map",
                kind="null-user-key",
                hint="set 'on_null_key: drop' in the pipeline file to leave such events out of the map",
            )
        return rows
