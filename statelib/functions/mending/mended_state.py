"""The correction of one interval of a state: its delta is replaced, and the later deltas are applied again to the
entries that it concerns."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from statelib.aggregates.grouping import Rows
from statelib.backends.keyed import KeyedStateBackend, StateValues
from statelib.backends.keys.lookup import find_rows
from statelib.backends.keys.order import byte_order, coded
from statelib.backends.wrappers.changed_entries import unequal_values
from statelib.functions.mending.kept_delta import KeptDelta, Mask
from statelib.model.checkpoint import DataInterval
from statelib.model.state import StateDescriptor
from statelib.wire.ragged import Ragged, concat


@dataclass(frozen=True, eq=False)
class MendedState:
    """The result of the correction of an interval of one state.

    Attributes:
        keys: The serialized keys of the changed entries.
        now: Their values before the correction; null for an entry that did not exist.
        after: Their values after it; null for an entry that does not exist any more.
        delta: The new delta of the interval, with the values before it.
        rewritten: The deltas of later intervals in which values before them have changed.
    """

    keys: Ragged
    now: pa.Array
    after: pa.Array
    delta: KeptDelta
    rewritten: Mapping[DataInterval, KeptDelta]


def put_delta(backend: KeyedStateBackend, delta: KeptDelta) -> KeptDelta:
    """Apply the delta of an interval to the state, and return it with the values that the entries had before.

    Raise InvalidRequestError, as accumulators do."""
    before = backend.read(delta.descriptor.name, delta.keys)
    applied = replace(delta, before=before.values)
    _write(backend, delta.descriptor.name, before, applied.after())
    return applied


def mend_state(
    backend: KeyedStateBackend, old: KeptDelta, new: KeptDelta, later: Mapping[DataInterval, KeptDelta]
) -> MendedState:
    """Put the state that it would be if an interval had the delta ``new`` in place of ``old``.

    ``later``: the deltas of all later intervals, the oldest first. Only entries of ``old`` and ``new`` are computed
    again. The value of an entry before the interval is known from the first delta that has the entry; without one it
    is the present value. Raise InvalidRequestError, as accumulators do."""
    keys = _all_keys(old, new)
    present = backend.read(new.descriptor.name, keys)
    rows_of = {interval: find_rows(delta.keys, keys) for interval, delta in later.items()}
    sources = [(old, find_rows(old.keys, keys)), *((delta, rows_of[interval]) for interval, delta in later.items())]
    current = _values_before(present.values, sources)
    new = replace(new, before=current.take(pa.array(find_rows(keys, new.keys))))
    current = _replaced(current, find_rows(keys, new.keys), new.after())
    rewritten = {}
    for interval, delta in later.items():
        rows = rows_of[interval]
        at = np.flatnonzero(rows >= 0)
        if not len(at):
            continue
        values = current.take(pa.array(at))
        rewritten[interval] = replace(delta, before=_replaced(delta.before, rows[at], values))
        current = _replaced(current, at, rewritten[interval].take(rows[at]).after())
    changed = np.flatnonzero(_differs(new.descriptor, present.values, current))
    now, after = (each.take(pa.array(changed)) for each in (present.values, current))
    mended = MendedState(keys.take(changed), now, after, new, rewritten)
    _write(backend, new.descriptor.name, backend.read(new.descriptor.name, mended.keys), after)
    return mended


def _all_keys(old: KeptDelta, new: KeptDelta) -> Ragged:
    """Return the distinct keys of both deltas, in their order."""
    _, keys = coded(concat([old.keys, new.keys]))
    return keys.take(byte_order(keys))


def _values_before(present: pa.Array, deltas: list[tuple[KeptDelta, Rows]]) -> pa.Array:
    """Return the value of each key before the first of ``deltas``, each with its row of each key, -1 if it has none.
    ``present``: the values after the last one."""
    values, source = [present], np.arange(len(present), dtype=np.int64)
    unknown, size = np.ones(len(present), np.bool_), len(present)
    for delta, rows in deltas:
        at = np.flatnonzero(unknown & (rows >= 0))
        values.append(delta.before.take(pa.array(rows[at])))
        source[at] = size + np.arange(len(at))
        unknown[at] = False
        size += len(at)
    return pa.concat_arrays(values).take(pa.array(source))


def _replaced(array: pa.Array, rows: Rows, values: pa.Array) -> pa.Array:
    """Return the array with other values in some rows."""
    source = np.arange(len(array), dtype=np.int64)
    source[rows] = len(array) + np.arange(len(rows))
    return pa.concat_arrays([array, values]).take(pa.array(source))


def _differs(descriptor: StateDescriptor, now: pa.Array, after: pa.Array) -> Mask:
    exists, will_exist = (np.asarray(each.is_valid().to_numpy(zero_copy_only=False), np.bool_) for each in (now, after))
    differs: Mask = exists != will_exist
    both = np.flatnonzero(exists & will_exist)
    differs[both] = unequal_values(descriptor, now.take(pa.array(both)), after.take(pa.array(both)))
    return differs


def _write(backend: KeyedStateBackend, state: str, before: StateValues, after: pa.Array) -> None:
    """Write the values, and remove the entries whose value is null."""
    removed = after.is_null()
    writes = np.flatnonzero((before.present.to_numpy(zero_copy_only=False)) | ~removed.to_numpy(zero_copy_only=False))
    if len(writes) < len(before.keys):  # an entry that does not exist need not be removed
        rows = pa.array(writes)
        before, after, removed = backend.read(state, before.keys.take(writes)), after.take(rows), removed.take(rows)
    if len(writes):
        backend.write(before, state, after, removed)
