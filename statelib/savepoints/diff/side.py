"""One of the two snapshots of a comparison: its recorded statistics, and its entries, one window of key groups at a
time."""

import numpy as np
import numpy.typing as npt

from statelib.backends.entries import check_loaded_rows
from statelib.model.handles import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandleImpl,
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
    StreamStateHandle,
    checksum_key,
    log_streams,
    stream_handles,
)
from statelib.model.key_groups import KeyGroupRange, all_key_groups, prefix_width
from statelib.model.state import StateDescriptor, StateKind, StateStatistics
from statelib.restore.check import check_statistics, cut_statistics
from statelib.restore.entries import EntryReader
from statelib.savepoints.opened import Checkpoint, located
from statelib.serializers.columns.cursors import require
from statelib.serializers.entries.rows import StateRows, join_rows, key_groups_of, statistics_of
from statelib.storage.registry import PLACES
from statelib.wire.ragged import Ragged, gather

Mask = npt.NDArray[np.bool_]
"""A boolean per key group, for the key groups 0 to max_parallelism - 1."""


class Side:
    """One of the two snapshots that are compared. ``scratch``: the directory for temporary copies of files.

    If the snapshot has a manifest, entries are checked against its statistics before they are returned.

    ``index``: the position of each state in the schema, by name. ``whole``: the range of all key groups."""

    def __init__(self, opened: Checkpoint, scratch: str) -> None:
        self.opened = opened
        with located(opened.directory):
            self.schema = opened.schema()
            self.sources = opened.sources()
        self.index = {d.name: i for i, d in enumerate(self.schema.states)}
        self.whole = all_key_groups(self.schema.max_parallelism)
        self.statistics = opened.statistics(self.whole)
        self._scratch = scratch
        self._readers: dict[int, EntryReader] = {}
        self._counted = np.zeros(len(self.schema.states), np.int64)
        self._read = np.zeros(len(self.whole), np.bool_)

    def recorded(self, name: str) -> StateStatistics | None:
        """Return the manifest's statistics of a state; None if there is no manifest, or no state of that name."""
        return self.statistics[self.index[name]] if self.statistics and name in self.index else None

    def entries(self, name: str) -> int | None:
        """Return the number of entries of a state: the recorded number, or the counted number if all entries were read;
        None if there is neither."""
        if name not in self.index:
            return 0
        recorded = self.recorded(name)
        if recorded is not None:
            return recorded.total_entries
        return int(self._counted[self.index[name]]) if bool(self._read[self.held()].all()) else None

    def held(self) -> Mask:
        """Return a mask of the key groups that are in the range of a handle."""
        mask = np.zeros(len(self.whole), np.bool_)
        for source in self.sources:
            mask[source.handle.key_group_range.start : source.handle.key_group_range.end + 1] = True
        return mask

    def weights(self) -> npt.NDArray[np.float64]:
        """Return the approximate stored bytes per key group: the bytes of each handle, spread evenly over its range."""
        weights = np.zeros(len(self.whole))
        for source in self.sources:
            key_groups = source.handle.key_group_range
            if len(key_groups):
                size_bytes = sum(stream.size_bytes for stream in stream_handles(source.handle))
                weights[key_groups.start : key_groups.end + 1] += size_bytes / len(key_groups)
        return weights

    def contents(self) -> dict[object, KeyGroupRange]:
        """Return the key groups of each handle, by an identity of its content. Two handles with the same identity have
        the same files and hence the same entries."""
        return {_content(self.opened.directory, s.handle): s.handle.key_group_range for s in self.sources}

    def read(self, window: Mask) -> list[StateRows]:
        """Return the entries of the key groups in ``window``, one element per state.

        Raises CorruptStateError (``restore-mismatch``) if the entries do not have the recorded statistics."""
        with located(self.opened.directory):
            return self._read_window(window)

    def _read_window(self, window: Mask) -> list[StateRows]:
        runs = _runs_of(window)
        batches: list[list[StateRows]] = [[] for _ in self.schema.states]
        for number, source in enumerate(self.sources):
            overlapping = [run for run in runs if len(run.intersection(source.handle.key_group_range))]
            if not overlapping:
                continue
            reader = self._readers.setdefault(number, EntryReader(source, f"{self._scratch}/{number}"))
            for index, rows in reader.read(overlapping):
                check_loaded_rows(self.schema.states[index].name, rows, self.schema, source.handle.key_group_range)
                batches[index].append(self._within(rows, window))
            if source.handle.key_group_range.end <= runs[-1].end:
                self._readers.pop(number).close()
        self._read |= window
        states = [join_rows(of_state) for of_state in batches]
        self._counted += [len(rows) for rows in states]
        self._check(states, runs, window)
        return [_without_padding(d, rows) for d, rows in zip(self.schema.states, states, strict=True)]

    def _within(self, rows: StateRows, window: Mask) -> StateRows:
        if not len(rows):
            return rows
        inside = window[key_groups_of(rows.keys, prefix_width(self.schema.max_parallelism))]
        return rows if bool(inside.all()) else rows.take(np.flatnonzero(inside))

    def _check(self, states: list[StateRows], runs: list[KeyGroupRange], window: Mask) -> None:
        """Raise CorruptStateError (``restore-mismatch``) if the entries of a window are not those in the manifest."""
        if self.statistics is None:
            return
        enclosing = KeyGroupRange(runs[0].start, runs[-1].end)
        inside = window[enclosing.start : enclosing.end + 1]
        width = prefix_width(self.schema.max_parallelism)
        cut = [cut_statistics(statistics, enclosing) for statistics in self.statistics]
        expected = tuple(StateStatistics(enclosing, s.entries * inside, s.digests * inside) for s in cut)
        check_statistics(self.schema, expected, tuple(statistics_of(rows, width, enclosing) for rows in states))

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()


def _runs_of(window: Mask) -> list[KeyGroupRange]:
    """Return the ranges of consecutive key groups in a mask, in ascending order."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], window, [False]]).astype(np.int8)))
    return [KeyGroupRange(int(start), int(stop) - 1) for start, stop in edges.reshape(-1, 2)]


def _content(directory: str, handle: KeyedStateHandle) -> object:
    """Return a value that is equal for two handles only if they have the same key groups and files."""

    def place(stream: StreamStateHandle) -> bytes | str:
        if isinstance(stream, ByteStreamStateHandle):
            return stream.data
        return PLACES.file_uri(directory, checksum_key(stream))

    if isinstance(handle, IncrementalRemoteKeyedStateHandle):
        files = frozenset((name, place(stream)) for name, stream in handle.shared + handle.private)
        return handle.key_group_range, place(handle.meta), files
    if isinstance(handle, ChangelogStateBackendHandleImpl):
        materialized = tuple(_content(directory, part) for part in handle.materialized)
        return handle.key_group_range, materialized, tuple(map(place, log_streams(handle))), handle.log
    return type(handle), handle.key_group_range, handle.offsets, place(handle.stream)


def _without_padding(descriptor: StateDescriptor, rows: StateRows) -> StateRows:
    """Return the entries with each null value of a map state cut to its first byte, the null flag. Flink's heap backend
    writes further bytes after the flag, which have no meaning."""
    if descriptor.kind is not StateKind.MAP or not len(rows):
        return rows
    values = rows.values
    require(values.starts, 1, values.offsets[1:], f"value of state {descriptor.name!r}")
    null = values.data[values.starts] != 0
    if not bool((null & (values.lengths > 1)).any()):
        return rows
    cut: Ragged = gather(values.data, values.starts, np.where(null, 1, values.lengths))
    return StateRows(rows.keys, cut)
