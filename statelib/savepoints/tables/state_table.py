"""One state of a snapshot as a table: its columns, its division into splits, and the reading of a split."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.errors import InvalidRequestError
from statelib.model.handles import (
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    stream_handles,
)
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateDescriptor
from statelib.restore.entries import EntryReader
from statelib.restore.plan import RestoreSource
from statelib.savepoints.opened import Checkpoint, located, to_table
from statelib.serializers.entries.keys import key_columns
from statelib.serializers.entries.rows import NO_ROWS, StateRows
from statelib.serializers.entries.values import decode_values
from statelib.storage.local.scratch import scratch_directory

SPLIT_BYTES = 32 * 1024 * 1024
"""The most stored bytes per split, if the caller does not choose the number of splits. A single key group may be
larger."""


@dataclass(frozen=True)
class Split:
    """A part of a state that one task reads: key groups of one handle. ``source``: the index of the handle. ``runs``:
    ranges of consecutive key groups, in ascending order. The spans of two splits of a handle do not overlap."""

    source: int
    runs: tuple[KeyGroupRange, ...]

    @property
    def span(self) -> KeyGroupRange:
        return KeyGroupRange(self.runs[0].start, self.runs[-1].end)


@dataclass(frozen=True)
class StateTable:
    """One state of a snapshot, ready to be read split by split. It can be pickled and has no open files, so a split can
    be read on any host that can reach the storage."""

    directory: str
    schema: KeyedStateSchema
    state: str
    sources: tuple[RestoreSource, ...]

    @property
    def descriptor(self) -> StateDescriptor:
        return self.schema.state(self.state)

    def arrow_schema(self) -> pa.Schema:
        """Return the schema of all columns, which are those of :func:`~statelib.savepoints.opened.to_table`."""
        return to_table(self.schema, self.descriptor, NO_ROWS).schema

    def splits(self, key_groups: Collection[int] | None, parts: int | None, cores: int) -> tuple[Split, ...]:
        """Return the splits that together contain the given key groups (None: all), without key groups that are known
        to be empty.

        ``parts``: the wanted number of splits, as far as handles and key groups allow it. None: the number follows from
        the stored bytes and from ``cores``, the number of tasks that can run at once. The files of a RocksDB handle or
        a changelog can only be read as a whole. Without ``parts``, such a handle is one split; with ``parts``, each of
        its splits reads all of its files."""
        wanted = [_wanted(source.handle, key_groups) for source in self.sources]
        total = sum(int(sizes.sum()) for _, sizes in wanted)
        count = parts or max(cores, -(-total // SPLIT_BYTES))
        splits: list[Split] = []
        for number, (groups, sizes) in enumerate(wanted):
            if len(groups):
                whole = parts is None and not _divisible(self.sources[number].handle)
                shares = 1 if whole else max(1, round(count * int(sizes.sum()) / total))
                splits += [Split(number, _runs(groups[cut])) for cut in _cuts(sizes, min(shares, len(groups)))]
        return tuple(splits)

    def read(self, split: Split, columns: Sequence[str], scratch: str | None = None) -> Iterator[pa.Table]:
        """Yield the entries of a split as tables with the given columns, in the given order. Other columns are not
        decoded.

        The files of a RocksDB handle are first copied to a temporary directory below ``scratch``, which is removed at
        the end. Raises CorruptStateError, NotFoundError (``missing-file``), UnsupportedError."""
        place = f"{self.directory}: state {self.state}"
        index = self.schema.states.index(self.descriptor)
        with located(place), scratch_directory(scratch, "read") as directory:
            reader = EntryReader(self.sources[split.source], f"{directory}/files", split.span, only=index)
            for _, rows in reader.read(split.runs):
                if len(rows):
                    yield _columns(self.schema, self.descriptor, rows, columns)

    def entries(self, key_groups: Collection[int] | None = None, scratch: str | None = None) -> Iterator[pa.Table]:
        """Yield the entries of the given key groups (None: all) as tables with all columns, split after split. Raises
        as :meth:`read`."""
        for split in self.splits(key_groups, None, 1):
            yield from self.read(split, self.arrow_schema().names, scratch)


def state_table(opened: Checkpoint, state: str | None) -> StateTable:
    """Return the state with the given name, or the only state of the selected operator if ``state`` is None.

    Raises InvalidRequestError: ``unknown-state`` for a name that no state has, ``no-state`` if ``state`` is None and
    there is not exactly one state. Raises UnsupportedError: ``raw-keyed-state`` for timers in raw keyed state."""
    schema = opened.schema()
    names = [descriptor.name for descriptor in schema.states]
    if state is None and len(names) != 1:
        raise InvalidRequestError(
            f"{opened.directory}: no state is named: there are {', '.join(names) or 'none'}",
            kind="no-state",
            hint="choose one with the option 'state'",
        )
    with located(opened.directory):
        descriptor = schema.state(names[0] if state is None else state)
    # The recorded statistics are not used to read columns. Their size is proportional to the number of key groups.
    raw = any(timers.descriptor == descriptor for timers in opened.raw_timers)
    stored = opened.sources() if raw else opened.managed_sources()
    sources = tuple(replace(source, statistics=None) for source in stored)
    return StateTable(opened.directory, schema, descriptor.name, sources)


def group_bytes(handle: KeyedStateHandle) -> npt.NDArray[np.int64]:
    """Return the stored bytes per key group of the handle, of all states together. 0 means that the key group has no
    entries. If the files of the handle hold all its key groups together, each key group has an equal share."""
    size = len(handle.key_group_range)
    if not isinstance(handle, KeyGroupsSavepointStateHandle | KeyGroupsStateHandle):
        total = sum(stream.size_bytes for stream in stream_handles(handle))
        return np.full(size, max(total // size, 1), np.int64)
    offsets = np.array(handle.offsets, np.int64)
    ends = np.append(np.sort(offsets[offsets > 0]), handle.stream.size_bytes)
    following = ends[np.searchsorted(ends, offsets, side="right").clip(max=len(ends) - 1)]
    return np.where(offsets > 0, following - offsets, 0).astype(np.int64)


def _divisible(handle: KeyedStateHandle) -> bool:
    """Return whether a key group of the handle can be read without the others."""
    return isinstance(handle, KeyGroupsSavepointStateHandle | KeyGroupsStateHandle)


def _wanted(
    handle: KeyedStateHandle, key_groups: Collection[int] | None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return (key groups of the handle to read, in ascending order; their stored bytes)."""
    owned = handle.key_group_range
    groups, sizes = np.arange(owned.start, owned.end + 1, dtype=np.int64), group_bytes(handle)
    selected = sizes > 0
    if key_groups is not None:
        selected &= np.isin(groups, np.fromiter(key_groups, np.int64, len(key_groups)))
    return groups[selected], sizes[selected]


def _cuts(sizes: npt.NDArray[np.int64], parts: int) -> list[slice]:
    """Return slices that divide key groups with the given sizes into parts of about equal bytes. Each part has at least
    one key group."""
    ends = np.searchsorted(np.cumsum(sizes), sizes.sum() * np.arange(1, parts) / parts) + 1
    least, most = np.arange(1, parts), len(sizes) - parts + np.arange(1, parts)
    bounds = [0, *np.maximum.accumulate(np.clip(ends, least, most)).tolist(), len(sizes)]
    return [slice(a, b) for a, b in pairwise(bounds) if a < b]


def _runs(groups: npt.NDArray[np.int64]) -> tuple[KeyGroupRange, ...]:
    starts = np.flatnonzero(np.diff(groups, prepend=groups[0] - 2) > 1)
    ends = np.append(starts[1:], len(groups)) - 1
    return tuple(KeyGroupRange(int(groups[a]), int(groups[b])) for a, b in zip(starts, ends, strict=True))


def _columns(schema: KeyedStateSchema, descriptor: StateDescriptor, rows: StateRows, wanted: Sequence[str]) -> pa.Table:
    """Return a table of the wanted columns in the wanted order. Only these columns are decoded."""
    columns = key_columns(schema, descriptor, rows.keys, wanted)
    if "value" in wanted:
        columns["value"] = decode_values(descriptor, rows.values)
    return pa.table([columns[name] for name in wanted], names=list(wanted))
