"""Open deltas: the parts of a change log whose partial values are not merged with the state yet."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.keys.order import coded
from statelib.model.handles import ChangelogStateBackendHandleImpl
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateDescriptor
from statelib.restore.changelog.change_log import read_change_log
from statelib.restore.changelog.merged_values import (
    GONE,
    MERGED,
    PUT,
    EntryOutcome,
    Steps,
    merged_into,
    outcome_of,
)
from statelib.restore.changelog.state_changes import StateChanges
from statelib.restore.check import Tally
from statelib.restore.live.logged import open_log
from statelib.restore.plan import RestoreSource
from statelib.restore.stored.new_parts import IsKnown, is_known_part
from statelib.serializers.entries.rows import join_rows, windows, without_values

Backend = TypeVar("Backend", bound=KeyedStateBackend)
Watch = Callable[[KeyedStateBackend], KeyedStateBackend]
"""A function that returns a backend, or a wrapper of it that observes what open deltas change."""


def unwatched(backend: KeyedStateBackend) -> KeyedStateBackend:
    """Return the backend itself."""
    return backend


def with_open_deltas(
    restore: Callable[[Sequence[RestoreSource]], Backend],
    schema: KeyedStateSchema,
    key_group_range: KeyGroupRange,
    sources: Sequence[RestoreSource],
    watched: Watch,
) -> Backend:
    """Return the backend that ``restore`` makes of sources, with their open deltas merged into it through ``watched``.

    The state below the deltas and each delta are compared with their statistics, if the backend is restored from one
    unchanged change log. Otherwise the deltas are merged while entries are read."""
    if open_log(schema, key_group_range, sources) is None or not sources[0].deltas:
        return restore(sources)
    (source,) = sources
    backend = restore([source.without_deltas()])
    try:
        _merge_deltas(watched(backend), source)
    except BaseException:
        backend.close()
        raise
    return backend


def _merge_deltas(backend: KeyedStateBackend, source: RestoreSource) -> None:
    """Apply the net changes of all deltas to a backend, so that each entry is read and written once."""
    changes: dict[int, list[StateChanges]] = {}
    for number in range(len(source.deltas)):
        for index, of_delta in _checked(source.of_delta(number)).items():
            changes.setdefault(index, []).append(of_delta)
    for index in sorted(changes):
        descriptor = source.schema.states[index]
        net = _net(descriptor, changes.pop(index))
        for keys in (net.put.keys, net.gone):
            before = backend.read(descriptor.name, keys)
            backend.write(
                before, descriptor.name, pa.nulls(len(keys), before.values.type), pa.repeat(pa.scalar(True), len(keys))
            )
        # A value that is put follows a deletion: its key has no entry now, and it is merged with nothing.
        for rows in (*windows(net.put), *windows(net.merged)):
            before = backend.read(descriptor.name, rows.keys)
            backend.write(before, descriptor.name, merged_into(descriptor, before.values, rows.values))


def _net(descriptor: StateDescriptor, deltas: Sequence[StateChanges]) -> EntryOutcome:
    """Return the net changes of one state by several deltas, the oldest first."""
    steps = [
        step for each in deltas for step in ((PUT, each.put), (GONE, without_values(each.gone)), (MERGED, each.merged))
    ]
    rows = join_rows([of_step for _, of_step in steps])
    entries, keys = coded(rows.keys)
    kinds = np.repeat(np.array([kind for kind, _ in steps], np.int8), [len(of_step) for _, of_step in steps])
    return outcome_of(descriptor, keys, Steps(entries, kinds, rows.values), np.zeros(len(keys), np.bool_))


def check_deltas(source: RestoreSource, is_known: IsKnown) -> None:
    """Read the open deltas of a source, without those of which all streams are known.

    Raise CorruptStateError (``restore-mismatch``) if their partial values do not have the recorded statistics, and what
    reading them raises."""
    for number in range(len(source.deltas)):
        delta = source.of_delta(number)
        assert isinstance(delta.handle, ChangelogStateBackendHandleImpl)
        (part,) = delta.handle.log
        if not is_known_part(part, is_known):
            _checked(delta)


def _checked(delta: RestoreSource) -> Mapping[int, StateChanges]:
    """Return the changes of one delta by the index of their state, compared with their statistics."""
    assert isinstance(delta.handle, ChangelogStateBackendHandleImpl)
    key_groups = delta.handle.key_group_range
    tally, changes = Tally(delta, key_groups), read_change_log(delta, delta.handle, key_groups).changes
    for index, of_state in changes.items():
        for rows in (of_state.put, of_state.merged):  # a value is put if its key was deleted before
            tally.add(index, rows)
    tally.check()
    return changes
