"""User functions on Arrow tables. They receive events and state, and return changed state and timers."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.aggregates.grouping import group_rows, one_array
from statelib.backends.keyed import KeyedStateBackend, StateValues
from statelib.backends.operator.state import OperatorStateBackend
from statelib.errors import InvalidRequestError
from statelib.functions.state_function import Ignored, Progress
from statelib.functions.timers import Timers, register, take_due
from statelib.functions.user_code.resolve import resolve
from statelib.functions.user_code.results import DOMAIN_COLUMNS, FunctionResult
from statelib.serializers.columns.arrow import number_array
from statelib.serializers.entries.keys import encode_keys
from statelib.serializers.entries.values import value_arrow_type
from statelib.serializers.scalars.windows import MOMENT

MAX_ROUNDS = 100_000
"""The maximum number of timers that fire per key in one interval. More indicate a function that always sets another."""

OPERATOR = "operator"
"""The name of the parameter of a user function that receives the operator state."""


@dataclass(frozen=True, eq=False)
class _Call:
    """A user function and its arguments without the state: ``table``, and operator state if it has that parameter."""

    reference: str
    table: pa.Table
    operator: OperatorStateBackend | None

    def __call__(self, state: pa.Table) -> object:
        function = resolve(self.reference)
        if OPERATOR in inspect.signature(function).parameters:
            return function(self.table, state, self.operator or OperatorStateBackend())
        return function(self.table, state)


@dataclass(frozen=True)
class UserFunction:
    """The state function that calls ``def update(events: pa.Table, state: pa.Table) -> pa.Table`` of ``reference``.

    ``events`` holds all events of the interval for the keys of one subtask, in no particular order. ``state`` has one
    row per distinct key of these events, in order of first appearance. Its columns are the key columns, then the fields
    of the state's Row, which are null if the key is new. The result has the same columns in any order, and one row per
    key to write. A row whose fields are all null deletes its key. Keys without a row are unchanged.

    With ``on_timer``, a function may return ``(rows, timers)`` instead. ``timers`` has the key columns, and
    ``event_time``, ``processing_time`` or both: UTC timestamps in whole milliseconds, null for no timer. Setting the
    same timer again changes nothing. At the end of an interval, ``def on_timer(timers, state)`` is called in the same
    way for the timers that are due. Its ``timers`` has the key columns, ``domain`` (``event_time`` or
    ``processing_time``) and ``timestamp``. Each call has the earliest due timer per key, event time first. The calls
    are repeated until no timer is due, including timers that the calls set.

    With ``outputs`` in the pipeline file, either function may return a dict as the last part of a tuple: tables with
    further rows to emit, by the name of the output, as in ``(rows, outputs)`` or ``(rows, timers, outputs)``. They do
    not become part of the state.

    A third parameter ``operator`` of either function receives the operator state of the subtask, an
    :class:`~statelib.backends.operator.state.OperatorStateBackend`, which the function can read and change.
    """

    state: str
    key_columns: tuple[str, ...]
    reference: str
    on_timer: str | None = None

    def apply(
        self,
        backend: KeyedStateBackend,
        events: pa.Table,
        keys: pa.Array,
        groups: npt.NDArray[np.int32],
        progress: Progress,  # noqa: ARG002 - events are not late for a user function
        *,
        operator: OperatorStateBackend | None = None,
    ) -> Ignored:
        """Call the function with the events, write its result and set its timers. No event is ignored.

        Raise InvalidRequestError (``bad-function``, ``bad-function-result``) and what the function raises."""
        if len(events):
            first = group_rows([keys]).first
            call = _Call(self.reference, events, operator)
            register(backend, self.state, self._run(backend, call, keys.take(pa.array(first)), groups[first]))
        return Ignored()

    def advance(
        self, backend: KeyedStateBackend, progress: Progress, *, operator: OperatorStateBackend | None = None
    ) -> None:
        """Call ``on_timer`` with the timers that are due, until no timer is due.

        Raise InvalidRequestError (``bad-function``, ``bad-function-result``, ``timer-loop``) and what the function
        raises."""
        if self.on_timer is None:
            return
        limits = np.array([progress.event_time_ms, progress.processing_time_ms])
        pending = _NO_TIMERS
        for domain, until_ms in enumerate(limits.tolist()):
            due = take_due(backend, self.state, domain, until_ms)
            pending = pending if due is None else due if not len(pending) else pending.with_void(due)
        for _ in range(MAX_ROUNDS):
            if not len(pending):
                return
            first, rest = _earliest(pending)
            call = _Call(self.on_timer, self._table(first), operator)
            new_timers = self._run(backend, call, first.keys, first.groups)
            due_now = new_timers.moments <= limits[new_timers.domains]
            register(backend, self.state, new_timers.take(np.flatnonzero(~due_now)))
            new_due = new_timers.take(np.flatnonzero(due_now))
            pending = rest.with_void(new_due) if len(new_due) else rest
        raise self._bad(self.on_timer, f"a key has more than {MAX_ROUNDS} timers due in one interval")

    def _table(self, timers: Timers) -> pa.Table:
        names = [*self.key_columns, "domain", "timestamp"]
        domains = pa.array(DOMAIN_COLUMNS).take(pa.array(timers.domains))
        return pa.table([*self._key_arrays(timers.keys), domains, number_array(timers.moments, MOMENT)], names=names)

    def _key_arrays(self, keys: pa.Array) -> Sequence[pa.Array]:
        return keys.flatten() if len(self.key_columns) > 1 else [keys]

    def _run(
        self, backend: KeyedStateBackend, call: "_Call", distinct: pa.Array, groups: npt.NDArray[np.int32]
    ) -> Timers:
        """Call a function with the state of distinct keys, write the rows of its result, and return its timers."""
        descriptor = backend.schema.state(self.state)
        before = backend.read(self.state, encode_keys(backend.schema, descriptor, distinct, groups))
        row_type, key_arrays = value_arrow_type(descriptor), self._key_arrays(distinct)
        names = [*self.key_columns, *(field.name for field in row_type)]
        state = pa.table([*key_arrays, *before.values.flatten()], names=names)
        try:
            returned = call(state)
        except Exception as error:
            error.add_note(f"in function {call.reference} of state {self.state}")
            raise
        result = FunctionResult(self.state, call.reference, self.key_columns, key_arrays, self.on_timer is not None)
        emitted = (call.operator or OperatorStateBackend()).emitted
        rows, timers, outputs = result.parts(returned)
        rows = result.checked_rows(rows, state.schema)
        to_emit = result.checked_outputs(outputs, emitted.of_functions)
        self._write(backend, before, result.rows_of(rows, once=True), _struct(rows, row_type))
        for output, table in to_emit.items():
            emitted.add(output, table)
        if timers is None:
            return _NO_TIMERS
        owners, domains, moments = result.timers(timers)
        return Timers(domains, moments, distinct.take(pa.array(owners)), groups[owners])

    def _bad(self, reference: str, problem: str) -> InvalidRequestError:
        return InvalidRequestError(f"function {reference} for state {self.state}: {problem}", kind="timer-loop")

    def _write(
        self,
        backend: KeyedStateBackend,
        before: StateValues,
        targets: npt.NDArray[np.int64],
        values: pa.StructArray,
    ) -> None:
        """Write ``values`` to the state. Row i of ``values`` replaces row ``targets[i]`` of ``before``."""
        empty = np.ones(len(values), bool)
        for field in values.flatten():
            empty &= field.is_null().to_numpy(zero_copy_only=False)
        is_stored = before.present.to_numpy(zero_copy_only=False)
        source = np.full(len(before.keys), -1, np.int64)
        needed = is_stored[targets] | ~empty
        source[targets[needed]] = np.flatnonzero(needed)
        chosen = np.flatnonzero(source >= 0)
        if not len(chosen):
            return
        if len(chosen) < len(before.keys):
            before = backend.read(self.state, before.keys.take(chosen))
        order = source[chosen]
        removed = pa.array(empty[order]) if empty[order].any() else None
        backend.write(before, self.state, values.take(pa.array(order)), removed)


_NO_TIMERS = Timers(np.empty(0, np.int8), np.empty(0, np.int64), pa.nulls(0), np.empty(0, np.int32))


def _earliest(timers: Timers) -> tuple[Timers, Timers]:
    """Return the earliest timer per key, ordered by domain and time, and all other timers."""
    codes = group_rows([timers.keys]).codes
    order = np.lexsort((timers.moments, timers.domains, codes))
    begins = np.concatenate(([True], codes[order][1:] != codes[order][:-1]))
    first, rest = order[begins], order[~begins]
    by_time = np.lexsort((first, timers.moments[first], timers.domains[first]))
    return timers.take(first[by_time]), timers.take(np.sort(rest))


def _struct(result: pa.Table, row_type: pa.StructType) -> pa.StructArray:
    return pa.StructArray.from_arrays([one_array(result[f.name]) for f in row_type], fields=list(row_type))
