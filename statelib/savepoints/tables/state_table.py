"""One state of a snapshot as a table: its columns, the parts that can be read apart, and how a part is read."""

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
from statelib.serializers.keys import key_columns
from statelib.serializers.rows import NO_ROWS, StateRows
from statelib.serializers.values import decode_values
from statelib.storage.local.scratch import scratch_directory

SPLIT_BYTES = 32 * 1024 * 1024
"""Stored bytes that one part has at most, if its reader does not say how many parts there are."""


@dataclass(frozen=True)
class Split:
    """Key groups of the handle number ``source``, in ascending runs. No part lies in the gaps of another."""

    source: int
    runs: tuple[KeyGroupRange, ...]

    @property
    def span(self) -> KeyGroupRange:
        return KeyGroupRange(self.runs[0].start, self.runs[-1].end)


@dataclass(frozen=True)
class StateTable:
    """Picklable, holds nothing open: its parts can be read anywhere that sees the storage."""

    directory: str
    schema: KeyedStateSchema
    state: str
    sources: tuple[RestoreSource, ...]

    @property
    def descriptor(self) -> StateDescriptor:
        return self.schema.state(self.state)

    def arrow_schema(self) -> pa.Schema:
        """All columns there are: those of :meth:`Checkpoint.tables`."""
        return to_table(self.schema, self.descriptor, NO_ROWS).schema

    def splits(self, key_groups: Collection[int] | None, parts: int | None, cores: int) -> tuple[Split, ...]:
        """The parts with the wanted key groups (None: all), those known to be empty left out.

        ``parts``: how many, as far as handles and key groups allow it; None: as many as the stored bytes and
        ``cores`` suggest. Then a handle of which nothing can be read without all of it (RocksDB's files, a
        changelog) is one part; with ``parts`` each of its parts reads all of it."""
        wanted = [_wanted(source.handle, key_groups) for source in self.sources]
        total = sum(int(sizes.sum()) for _, sizes in wanted)
        count = parts or max(cores, -(-total // SPLIT_BYTES))
        found: list[Split] = []
        for number, (groups, sizes) in enumerate(wanted):
            if len(groups):
                whole = parts is None and not _divisible(self.sources[number].handle)
                shares = 1 if whole else max(1, round(count * int(sizes.sum()) / total))
                found += [Split(number, _runs(groups[cut])) for cut in _cuts(sizes, min(shares, len(groups)))]
        return tuple(found)

    def read(self, split: Split, columns: Sequence[str], scratch: str | None = None) -> Iterator[pa.Table]:
        """The entries of a part, with those columns only; what the others are made of is not decoded.

        A RocksDB handle is copied to a directory of its own in ``scratch`` first, which is removed at the end."""
        place = f"{self.directory}: state {self.state}"
        index = self.schema.states.index(self.descriptor)
        with located(place), scratch_directory(scratch, "read") as directory:
            reader = EntryReader(self.sources[split.source], f"{directory}/files", split.span, only=index)
            for _, rows in reader.read(split.runs):
                if len(rows):
                    yield _columns(self.schema, self.descriptor, rows, columns)


def state_table(opened: Checkpoint, state: str | None) -> StateTable:
    """The state of that name, or the only one there is.

    Raises InvalidRequestError (``unknown-state``, ``no-state``) naming those there are."""
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
    # what was recorded of the entries is of no use to a reader of columns, and is as large as there are key groups
    sources = tuple(replace(source, statistics=None) for source in opened.sources())
    return StateTable(opened.directory, schema, descriptor.name, sources)


def group_bytes(handle: KeyedStateHandle) -> npt.NDArray[np.int64]:
    """Stored bytes of each key group of the handle, of all states together: 0 = known to have no entry. Of files
    that hold all key groups at once, an equal share."""
    size = len(handle.key_group_range)
    if not isinstance(handle, KeyGroupsSavepointStateHandle | KeyGroupsStateHandle):
        total = sum(stream.size_bytes for stream in stream_handles(handle))
        return np.full(size, max(total // size, 1), np.int64)
    offsets = np.array(handle.offsets, np.int64)
    ends = np.append(np.sort(offsets[offsets > 0]), handle.stream.size_bytes)
    following = ends[np.searchsorted(ends, offsets, side="right").clip(max=len(ends) - 1)]
    return np.where(offsets > 0, following - offsets, 0).astype(np.int64)


def _divisible(handle: KeyedStateHandle) -> bool:
    return isinstance(handle, KeyGroupsSavepointStateHandle | KeyGroupsStateHandle)


def _wanted(
    handle: KeyedStateHandle, key_groups: Collection[int] | None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The key groups to be read of a handle, ascending, and their stored bytes."""
    owned = handle.key_group_range
    groups, sizes = np.arange(owned.start, owned.end + 1, dtype=np.int64), group_bytes(handle)
    kept = sizes > 0
    if key_groups is not None:
        kept &= np.isin(groups, np.fromiter(key_groups, np.int64, len(key_groups)))
    return groups[kept], sizes[kept]


def _cuts(sizes: npt.NDArray[np.int64], parts: int) -> list[slice]:
    """Cut a row of key groups into parts of about equal bytes, each with one group at least."""
    ends = np.searchsorted(np.cumsum(sizes), sizes.sum() * np.arange(1, parts) / parts) + 1
    least, most = np.arange(1, parts), len(sizes) - parts + np.arange(1, parts)
    bounds = [0, *np.maximum.accumulate(np.clip(ends, least, most)).tolist(), len(sizes)]
    return [slice(a, b) for a, b in pairwise(bounds) if a < b]


def _runs(groups: npt.NDArray[np.int64]) -> tuple[KeyGroupRange, ...]:
    starts = np.flatnonzero(np.diff(groups, prepend=groups[0] - 2) > 1)
    ends = np.append(starts[1:], len(groups)) - 1
    return tuple(KeyGroupRange(int(groups[a]), int(groups[b])) for a, b in zip(starts, ends, strict=True))


def _columns(schema: KeyedStateSchema, descriptor: StateDescriptor, rows: StateRows, wanted: Sequence[str]) -> pa.Table:
    """Those columns, in that order, decoded from no more than they need."""
    found = key_columns(schema, descriptor, rows.keys, wanted)
    if "value" in wanted:
        found["value"] = decode_values(descriptor, rows.values)
    return pa.table([found[name] for name in wanted], names=list(wanted))
