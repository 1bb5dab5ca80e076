"""Functions of states declared with aggregates. They merge the partial accumulators of a batch into the stored ones."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.aggregates.folding import Folding
from statelib.aggregates.grouping import Grouping, Rows, group_rows, one_array, valid_rows
from statelib.aggregates.kinds import AggregateSpec
from statelib.backends.keyed import KeyedStateBackend, StateValues
from statelib.backends.keys.order import quick_order
from statelib.backends.operator.state import OperatorStateBackend
from statelib.errors import InvalidRequestError
from statelib.functions.change_logs.changes import CHANGE
from statelib.functions.change_logs.retractions import countable, divided, emptied, exact_sums, net
from statelib.functions.state_function import Ignored, Progress
from statelib.functions.timers import remove_read
from statelib.model.amounts import number_of
from statelib.model.state import StateDescriptor
from statelib.serializers.entries.keys import encode_keys
from statelib.serializers.entries.values import value_arrow_type
from statelib.wire.ragged import Ragged


@dataclass(frozen=True)
class AggregateFunction:
    """The state function of a state that is declared with aggregates.

    ``fields`` are those of its :class:`~statelib.aggregates.folding.Folding`. ``user_key`` is the column of a map
    state's user keys. Events with a null user key are ignored if ``drop_null_user_keys`` is set. Otherwise they raise
    InvalidRequestError (``null-user-key``).

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
    ) -> Ignored:
        """Merge the events into the state. Return the number of those without a user key; none is late."""
        self.merge(backend, events, keys, groups)
        return Ignored(without_user_key=self.without_user_key(events))

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
        *,
        numbers: Rows | None = None,
    ) -> None:
        """Merge events into the stored accumulators of their keys, or of their keys and ``windows``. ``numbers``: a
        number per event, which is equal for equal keys and windows; None if it is not known.

        Raise InvalidRequestError (``null-user-key``, and what the accumulators raise)."""
        if self.user_key is not None:
            rows = self._rows_with_user_key(events, self.user_key)
            if len(rows) < len(events):
                positions = pa.array(rows)
                events, keys, groups = events.take(positions), keys.take(positions), groups[rows]
                windows = None if windows is None else windows.take(positions)
                numbers = None if numbers is None else numbers[rows]
        user_keys = None if self.user_key is None else one_array(events[self.user_key])
        owners = (keys, windows) if numbers is None else (pa.array(numbers),)
        grouping = group_rows([column for column in (*owners, user_keys) if column is not None])
        if not grouping.size:
            return
        positions, descriptor = pa.array(grouping.first), backend.schema.state(self.state)
        user_keys, windows = (None if column is None else column.take(positions) for column in (user_keys, windows))
        key_groups = groups[grouping.first]
        state_keys = encode_keys(
            backend.schema, descriptor, keys.take(positions), key_groups, user_keys, namespaces=windows
        )
        order = quick_order(state_keys)
        if order is not None:  # the state is stored in about this order, so it is read in one pass
            grouping, state_keys = grouping.ordered(order), state_keys.take(order)
        self._add(backend, descriptor, state_keys, events, grouping)

    def _add(
        self,
        backend: KeyedStateBackend,
        descriptor: StateDescriptor,
        state_keys: Ragged,
        events: pa.Table,
        grouping: Grouping,
    ) -> None:
        """Merge events into the entries of their groups. ``state_keys``: the serialized keys of the groups."""
        is_log = CHANGE in events.column_names
        if not is_log and not self.value.is_single:
            before = backend.read(self.state, state_keys)
            parts = self.value.folded(self.value.parts(before.values), events, grouping)
            backend.write(before, self.state, self.value.values(parts, value_arrow_type(descriptor)))
            return
        applied, retracted = divided(events, grouping)
        if retracted is not None:
            parts = [exact_sums(self.value).partials(*part) for part in (applied, retracted)]
            self._write(backend, descriptor, state_keys, *parts, is_log=is_log)
            return
        partials = self.value.partials(*applied)
        if self.value.is_single:
            with_value = valid_rows(partials)
            partials, state_keys = [partials[0].take(pa.array(with_value))], state_keys.take(with_value)
        if len(state_keys):
            self._write(backend, descriptor, state_keys, partials, is_log=is_log)

    def join(self, backend: KeyedStateBackend, sources: Ragged, targets: Ragged, codes: Rows) -> None:
        """Merge entries of one key into one entry. ``codes[i]`` is the row of ``targets`` that gets the entry of
        ``sources`` in row i. The keys of each side are distinct; a key of both sides is merged with the others."""
        stored = backend.read(self.state, sources)
        present = np.flatnonzero(stored.present.to_numpy(zero_copy_only=False))
        values, codes = self.value.merged_groups(stored.values.take(pa.array(present)), codes[present])
        remove_read(backend, self.state, stored)
        if len(codes):
            backend.write(backend.read(self.state, targets.take(codes)), self.state, values)

    def _write(
        self,
        backend: KeyedStateBackend,
        descriptor: StateDescriptor,
        keys: Ragged,
        partials: list[pa.Array],
        retracted: list[pa.Array] | None = None,
        *,
        is_log: bool,
    ) -> None:
        """Merge partial accumulators into the stored ones, and subtract those of retracted events. ``is_log``: whether
        the events are those of a change log."""
        before = backend.read(self.state, keys)
        parts, type_ = self.value.parts(before.values), value_arrow_type(descriptor)
        if is_log:
            partials = countable(self.value, before.present, parts, partials)
            retracted = retracted and countable(self.value, before.present, parts, retracted)
        if retracted is None:
            backend.write(before, self.state, self.value.values(self.value.merged(parts, partials), type_))
            return
        merged = net(self.value, parts, partials, retracted)
        self._write_or_remove(backend, before, self.value.values(merged, type_), emptied(self.fields, merged))

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

    def without_user_key(self, events: pa.Table, rows: Rows | None = None) -> int:
        """Return the number of events, or of events in distinct ``rows``, that a map leaves out for lack of a user
        key."""
        if self.user_key is None or not events[self.user_key].null_count:
            return 0
        missing = events[self.user_key].is_null().to_numpy()
        return int(np.count_nonzero(missing if rows is None else missing[rows]))

    @property
    def value(self) -> Folding:
        """The computation of its values."""
        return Folding(self.state, self.fields)

    @property
    def columns(self) -> set[str]:
        """The names of the columns that it reads, without the key columns."""
        return self.value.columns if self.user_key is None else self.value.columns | {self.user_key}

    def _rows_with_user_key(self, events: pa.Table, column: str) -> npt.NDArray[np.int64]:
        """Return the rows whose user key is not null. Raise InvalidRequestError (``null-user-key``)."""
        rows = valid_rows([one_array(events[column])])
        if len(rows) < len(events) and not self.drop_null_user_keys:
            raise InvalidRequestError(
                f"state {self.state}: {len(events) - len(rows)} of {number_of(len(events), 'event')} have no {column}, "
                "the user key of the map",
                kind="null-user-key",
                hint="set 'on_null_key: drop' beside 'key' in the pipeline file to leave such events out of the map",
            )
        return rows
