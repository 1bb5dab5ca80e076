"""The change log over materialised state. It is read once, then applied to the materialised entries.

Only the log is held in memory, and the snapshot strategy bounds its size. The materialised entries are read in batches,
and each batch is compared only with the changes of its own key groups. "Below" means: in the materialised state.
Source: docs/spec/requirements.md R65 to R67; docs/spec/formats.md#change-log.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from statelib.backends.keys.order import byte_order
from statelib.errors import CorruptStateError
from statelib.formats.changelog.change_set import (
    Binding,
    ChangeRecords,
    ChangeSet,
    change_set_of,
    decode_change_set,
    decode_stream,
    read_binding,
    records_of,
    state_ids,
)
from statelib.model.handles import (
    ByteStreamStateHandle,
    ChangeFileStateHandle,
    ChangelogStateBackendHandleImpl,
    ChangelogStateHandle,
    ChangelogStateHandleStreamImpl,
    FileStateHandle,
    InMemoryChangelogStateHandle,
    KeyedStateHandle,
    StreamStateHandle,
)
from statelib.model.key_groups import MAX_MAX_PARALLELISM, KeyGroupRange, all_key_groups, prefix_width
from statelib.model.state import KeyedStateSchema, StateDescriptor
from statelib.restore.changelog.merged_values import merged_with
from statelib.restore.changelog.state_changes import StateChanges, changes_of
from statelib.restore.plan import RestoreSource
from statelib.restore.schemas.matching import check_same_state
from statelib.serializers.columns.elements import SEPARATOR
from statelib.serializers.entries.keys import join_keys, split_keys
from statelib.serializers.entries.rows import StateRows, join_rows, key_groups_of, windows
from statelib.storage.ports.views import StateReader
from statelib.wire.ragged import Bytes, Ragged, as_arrow, concat, from_fixed, from_list, join

Mask = npt.NDArray[np.bool_]


class ChangeLog:
    """The net changes of a changelog handle in some key groups, by the index of their state."""

    def __init__(self, schema: KeyedStateSchema, changes: Mapping[int, StateChanges]) -> None:
        self._schema = schema
        self.changes = changes

    def over(self, key_groups: KeyGroupRange) -> "Overlay":
        """Return an overlay that is applied to the materialised entries of these key groups once."""
        return Overlay(self._schema, key_groups, self.changes)


class Overlay:
    """The log applied to materialised entries. Pass every batch of entries to :meth:`covered`, then read from
    :meth:`rest` the entries that the log adds."""

    def __init__(
        self, schema: KeyedStateSchema, key_groups: KeyGroupRange, changes: Mapping[int, StateChanges]
    ) -> None:
        self._layers = {
            index: _Layer(schema, index, _within(schema, key_groups, logged)) for index, logged in changes.items()
        }

    def covered(self, index: int, rows: StateRows) -> StateRows:
        """Return the materialised entries that the log does not replace or remove. Lists include the elements that it
        appends, and values are merged with those of the log."""
        layer = self._layers.get(index)
        return rows if layer is None or not len(rows) else layer.covered(rows)

    def rest(self) -> Iterator[tuple[int, StateRows]]:
        """Yield (index of the state, entries) that the log adds. Call it after the last batch."""
        for index, layer in self._layers.items():
            for rows in windows(layer.rest()):
                yield index, rows


class _Layer:
    """The changes of one state, sorted by key so that a batch is compared only with those of its key groups."""

    def __init__(self, schema: KeyedStateSchema, index: int, changes: StateChanges) -> None:
        self._schema = schema
        self._descriptor = schema.states[index]
        self._width = prefix_width(schema.max_parallelism)
        self._put = changes.put
        self._hidden = _Sorted(concat([changes.put.keys, changes.gone]), schema)
        self._appended = _Sorted(changes.appended.keys, schema)
        self._values = changes.appended.values.take(self._appended.order)
        self._cleared = _Sorted(changes.cleared, schema)
        self._is_unused = np.ones(len(self._values), np.bool_)
        self._merged = _Sorted(changes.merged.keys, schema)
        self._partials = changes.merged.values.take(self._merged.order)
        self._is_unmerged = np.ones(len(self._partials), np.bool_)
        self._moved = changes.moved
        keys_below = sorted({key for moved in changes.moved for lies_below, key in moved.parts if lies_below})
        self._keys_below = _Sorted(from_list(keys_below), schema)
        self._values_below: dict[bytes, bytes] = {}

    def covered(self, rows: StateRows) -> StateRows:
        groups = key_groups_of(rows.keys, self._width)
        if self._moved:
            matching = rows.take(np.flatnonzero(self._keys_below.find(rows.keys, groups) >= 0))
            self._values_below.update(zip(matching.keys.to_list(), matching.values.to_list(), strict=True))
        remains = self._hidden.find(rows.keys, groups) < 0
        if len(self._cleared.keys):
            parts = replace(split_keys(self._schema, self._descriptor, rows.keys), user_keys=None)
            remains &= self._cleared.find(join_keys(self._schema, self._descriptor, parts), groups) < 0
        if not remains.all():
            rows, groups = rows.take(np.flatnonzero(remains)), groups[remains]
        if len(self._partials) and len(rows):
            rows = self._with_partials(rows, groups)
        return self._with_elements(rows, groups) if len(self._values) and len(rows) else rows

    def _with_elements(self, rows: StateRows, groups: npt.NDArray[np.int32]) -> StateRows:
        at = self._appended.find(rows.keys, groups)
        extended = np.flatnonzero(at >= 0)
        if not len(extended):
            return rows
        self._is_unused[at[extended]] = False
        comma = from_fixed(np.full((len(extended), 1), SEPARATOR, np.uint8))
        values = join([rows.values.take(extended), comma, self._values.take(at[extended])])
        unchanged = np.flatnonzero(at < 0)
        return StateRows(
            concat([rows.keys.take(unchanged), rows.keys.take(extended)]), concat([rows.values.take(unchanged), values])
        )

    def _with_partials(self, rows: StateRows, groups: npt.NDArray[np.int32]) -> StateRows:
        at = self._merged.find(rows.keys, groups)
        changed = np.flatnonzero(at >= 0)
        if not len(changed):
            return rows
        self._is_unmerged[at[changed]] = False
        partials = self._partials.take(at[changed])
        values = merged_with(self._descriptor, rows.values.take(changed), partials)
        places = np.arange(len(rows))
        places[changed] = len(rows) + np.arange(len(changed))
        return StateRows(rows.keys, concat([rows.values, values]).take(places))

    def rest(self) -> StateRows:
        new = np.flatnonzero(self._is_unused)
        moved_by_target = {value.target: value.value(self._descriptor, self._values_below) for value in self._moved}
        moved_values = {target: value for target, value in moved_by_target.items() if value is not None}
        unmerged = np.flatnonzero(self._is_unmerged)
        parts = (
            self._put,
            StateRows(self._appended.keys.take(new), self._values.take(new)),
            StateRows(self._merged.keys.take(unmerged), self._partials.take(unmerged)),
            StateRows(from_list(list(moved_values)), from_list(list(moved_values.values()))),
        )
        return join_rows(parts)


class _Sorted:
    """Keys in ascending order. ``order`` holds the original position of each key."""

    def __init__(self, keys: Ragged, schema: KeyedStateSchema) -> None:
        self.order = byte_order(keys)
        self.keys = keys.take(self.order)
        groups = key_groups_of(self.keys, prefix_width(schema.max_parallelism)) if len(keys) else np.empty(0, np.int32)
        self._bounds = np.searchsorted(groups, np.arange(schema.max_parallelism + 1))

    def find(self, keys: Ragged, groups: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Return the position of each key, or -1 if it is absent. ``groups`` holds the key group of each key."""
        first, stop = int(self._bounds[groups.min()]), int(self._bounds[groups.max() + 1])
        if first == stop:
            return np.full(len(keys), -1, np.int64)
        relative_positions = pc.index_in(as_arrow(keys), value_set=as_arrow(self.keys.slice(first, stop)))
        positions = np.asarray(pc.fill_null(relative_positions, -1), np.int64)
        return np.where(positions < 0, positions, positions + first)


@dataclass
class _LoggedStates:
    """The states that the log has named so far, by their id in the log, and the changes per state."""

    source: RestoreSource
    states: dict[int, StateDescriptor]
    records: dict[int, list[ChangeRecords]]

    def add(self, changes: ChangeSet, what: str) -> None:
        for record in changes.metadata:
            binding = read_binding(record, what)
            self.states[binding.number] = binding.descriptor
        ids = state_ids(changes, what)
        schema = self.source.schema
        for number in np.unique(ids).tolist():
            if number not in self.states:
                raise CorruptStateError(
                    f"{what}: changes of a state {number} without metadata", kind="corrupt-changelog"
                )
            descriptor = self.states[number]
            index = check_same_state(schema, descriptor)
            records = records_of(changes, np.flatnonzero(ids == number), schema.key_type, descriptor)
            self.records.setdefault(index, []).append(records)


def read_change_log(source: RestoreSource, handle: ChangelogStateBackendHandleImpl, wanted: KeyGroupRange) -> ChangeLog:
    """Return the net changes of the wanted key groups. The log is replayed from the oldest change on.

    Raise CorruptStateError (``corrupt-changelog``, and what the reader and the codecs raise), UnsupportedError
    (``merging-windows``), InvalidRequestError (``state-schema-changed``)."""
    logged = _LoggedStates(source, {}, {})
    for part in handle.log:
        for changes, what in _change_sets(source.reader, part, wanted):
            logged.add(changes, what)
    schema, over_nothing = source.schema, not handle.materialized
    records_by_state = logged.records.items()
    return ChangeLog(
        schema,
        {
            i: changes_of(schema, schema.states[i], records, over_nothing=over_nothing)
            for i, records in records_by_state
        },
    )


def log_bindings(reader: StateReader, handle: ChangelogStateBackendHandleImpl) -> tuple[Binding, ...]:
    """Return the states that the log names, each once, in ascending order of their number. The newest metadata of a
    number counts. Only timers have a key type there."""
    bindings: dict[int, Binding] = {}
    for part in handle.log:
        for changes, what in _change_sets(reader, part, KeyGroupRange(0, -1)):
            bindings.update((b.number, b) for b in (read_binding(record, what) for record in changes.metadata))
    return tuple(bindings[number] for number in sorted(bindings))


def changed_key_groups(reader: StateReader, part: ChangelogStateHandle) -> set[int]:
    """Return the key groups of the changes in one part of a log, which is read whole.

    Raise CorruptStateError (``corrupt-changelog``, and what the reader raises)."""
    every = all_key_groups(MAX_MAX_PARALLELISM)
    return {int(group) for changes, _ in _change_sets(reader, part, every) for group in np.unique(changes.key_groups)}


def with_whole_files(handle: KeyedStateHandle) -> KeyedStateHandle:
    """Return the handle of a snapshot that Flink wrote, with its log's files marked as such.

    Flink records the size of the changes in a file, not the size of the file. The file has one byte more, or is
    compressed."""
    if not isinstance(handle, ChangelogStateBackendHandleImpl):
        return handle
    return replace(handle, log=tuple(map(_with_whole_files, handle.log)))


def _with_whole_files(part: ChangelogStateHandle) -> ChangelogStateHandle:
    if isinstance(part, InMemoryChangelogStateHandle):
        return part
    return replace(part, segments=tuple((_whole(stream), offset) for stream, offset in part.segments))


def _whole(stream: StreamStateHandle) -> StreamStateHandle:
    return ChangeFileStateHandle(stream.path, stream.size_bytes) if isinstance(stream, FileStateHandle) else stream


def _change_sets(
    reader: StateReader, part: ChangelogStateHandle, wanted: KeyGroupRange
) -> Iterator[tuple[ChangeSet, str]]:
    """Yield the change sets of one handle, each with its name for error messages."""
    if isinstance(part, InMemoryChangelogStateHandle):
        yield change_set_of(part.changes, wanted), "changes in the metadata"
        return
    assert isinstance(part, ChangelogStateHandleStreamImpl)
    for stream, offset in part.segments:
        what = f"change log {_name(stream)}"
        yield decode_change_set(_log_content(reader, stream, what), offset, wanted, what), what


def check_log_file(reader: StateReader, stream: StreamStateHandle) -> None:
    """Read a whole file of a change log.

    Raise CorruptStateError (``corrupt-changelog`` if it is truncated, and what reading it raises), NotFoundError
    (``missing-file``)."""
    _log_content(reader, stream, f"change log {_name(stream)}")


def _log_content(reader: StateReader, stream: StreamStateHandle, what: str) -> Bytes:
    data = decode_stream(reader.read(stream), what)
    if isinstance(stream, ChangeFileStateHandle) and len(data) != stream.size_bytes:
        raise CorruptStateError(
            f"{what}: expected {stream.size_bytes} bytes of changes, found {len(data)}", kind="corrupt-changelog"
        )
    return data


def _name(stream: StreamStateHandle) -> str:
    return stream.name if isinstance(stream, ByteStreamStateHandle) else stream.path


def _within(schema: KeyedStateSchema, key_groups: KeyGroupRange, changes: StateChanges) -> StateChanges:
    """Return the changes whose keys are in the key groups."""
    width = prefix_width(schema.max_parallelism)

    def inside(keys: Ragged) -> npt.NDArray[np.int64]:
        groups = key_groups_of(keys, width) if len(keys) else np.empty(0, np.int32)
        return np.flatnonzero((groups >= key_groups.start) & (groups <= key_groups.end))

    return StateChanges(
        changes.put.take(inside(changes.put.keys)),
        changes.gone.take(inside(changes.gone)),
        changes.appended.take(inside(changes.appended.keys)),
        changes.cleared.take(inside(changes.cleared)),
        tuple(moved for moved in changes.moved if int.from_bytes(moved.target[:width], "big") in key_groups),
        changes.merged.take(inside(changes.merged.keys)),
    )
