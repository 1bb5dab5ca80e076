"""Open deltas: the parts of a change log whose partial values are not merged with the state yet."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import pyarrow as pa

from statelib.backends.keyed import KeyedStateBackend
from statelib.model.handles import (
    ChangelogStateBackendHandleImpl,
    ChangelogStateHandleStreamImpl,
    StreamStateHandle,
)
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema
from statelib.restore.changelog.change_log import ChangeLog, read_change_log
from statelib.restore.changelog.merged_values import merged_into
from statelib.restore.check import Tally
from statelib.restore.logged import open_log
from statelib.restore.plan import RestoreSource
from statelib.serializers.entries.rows import windows

Backend = TypeVar("Backend", bound=KeyedStateBackend)


def with_open_deltas(
    restore: Callable[[Sequence[RestoreSource]], Backend],
    schema: KeyedStateSchema,
    key_group_range: KeyGroupRange,
    sources: Sequence[RestoreSource],
) -> Backend:
    """Return the backend that ``restore`` makes of sources, with their open deltas merged into it.

    The state below the deltas and each delta are compared with their statistics, if the backend is restored from one
    unchanged change log. Otherwise the deltas are merged while entries are read."""
    if open_log(schema, key_group_range, sources) is None or not sources[0].deltas:
        return restore(sources)
    (source,) = sources
    backend = restore([source.without_deltas()])
    try:
        _merge_deltas(backend, source)
    except BaseException:
        backend.close()
        raise
    return backend


def _merge_deltas(backend: KeyedStateBackend, source: RestoreSource) -> None:
    """Apply the net changes of all deltas to a backend, so that each entry is read and written once."""
    check_deltas(source, lambda _: False)
    for index, changes in _log_of(source.only_deltas()).changes.items():
        descriptor = source.schema.states[index]
        for keys in (changes.put.keys, changes.gone):
            before = backend.read(descriptor.name, keys)
            backend.write(
                before, descriptor.name, pa.nulls(len(keys), before.values.type), pa.repeat(pa.scalar(True), len(keys))
            )
        # A value that is put follows a deletion: its key has no entry now, and it is merged with nothing.
        for rows in (*windows(changes.put), *windows(changes.merged)):
            before = backend.read(descriptor.name, rows.keys)
            backend.write(before, descriptor.name, merged_into(descriptor, before.values, rows.values))


def check_deltas(source: RestoreSource, is_known: Callable[[StreamStateHandle], bool]) -> None:
    """Read the open deltas of a source, without those of which all streams are known.

    Raise CorruptStateError (``restore-mismatch``) if their partial values do not have the recorded statistics, and what
    reading them raises."""
    for number in range(len(source.deltas)):
        delta = source.of_delta(number)
        assert isinstance(delta.handle, ChangelogStateBackendHandleImpl)
        (part,) = delta.handle.log
        streams = [stream for stream, _ in part.segments] if isinstance(part, ChangelogStateHandleStreamImpl) else []
        if not (streams and all(map(is_known, streams))):
            _check_delta(delta)


def _check_delta(delta: RestoreSource) -> None:
    tally = Tally(delta, delta.handle.key_group_range)
    for index, changes in _log_of(delta).changes.items():
        for rows in (changes.put, changes.merged):  # a value is put if its key was deleted before
            tally.add(index, rows)
    tally.check()


def _log_of(source: RestoreSource) -> ChangeLog:
    assert isinstance(source.handle, ChangelogStateBackendHandleImpl)
    return read_change_log(source, source.handle, source.handle.key_group_range)
