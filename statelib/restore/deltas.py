"""Open deltas: the parts of a change log whose partial values are not merged with the state yet."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from statelib.backends.keyed import KeyedStateBackend
from statelib.model.handles import (
    ChangelogStateBackendHandleImpl,
    ChangelogStateHandleStreamImpl,
    StreamStateHandle,
)
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema
from statelib.restore.changelog.change_log import read_change_log
from statelib.restore.changelog.merged_values import merged_into, merged_rows
from statelib.restore.check import Tally
from statelib.restore.logged import open_log
from statelib.restore.plan import RestoreSource
from statelib.serializers.entries.rows import StateRows, windows

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
    """Merge the partial values of all deltas with each other, and then with the entries of the backend. So each entry
    is read and written once."""
    partial: dict[int, list[StateRows]] = {}
    for number in range(len(source.deltas)):
        for index, rows in _partial_values(source.of_delta(number)):
            partial.setdefault(index, []).append(rows)
    for index in sorted(partial):
        descriptor = source.schema.states[index]
        for rows in windows(merged_rows(descriptor, partial.pop(index))):
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
            for _ in _partial_values(delta):
                pass


def _partial_values(delta: RestoreSource) -> Iterator[tuple[int, StateRows]]:
    """Yield (index of the state, partial values), and compare them at the end with their statistics."""
    assert isinstance(delta.handle, ChangelogStateBackendHandleImpl)
    key_groups = delta.handle.key_group_range
    tally = Tally(delta, key_groups)
    for index, changes in read_change_log(delta, delta.handle, key_groups).changes.items():
        tally.add(index, changes.merged)
        yield from ((index, rows) for rows in windows(changes.merged))
    tally.check()
