"""The entries of a state that expire next, in a list that a scan for expired entries makes.

Later runs look only for the listed entries, until one that is not listed may expire. Each entry that is written later
expires later, because a list reaches less far than the time to live. A list is side data of the checkpoint, per
subtask, under a name that no pipeline can declare.
Source: docs/spec/formats.md#listed-expirations.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.backends.operator.side_data import SideData
from statelib.formats.manifest.trailer import OWN_STATE_PREFIX
from statelib.model.key_groups import KeyGroupRange
from statelib.serializers.entries.rows import key_groups_of
from statelib.wire.ragged import Ragged, as_arrow, as_ragged, concat, offsets_of

_PREFIX = f"{OWN_STATE_PREFIX}expiring."
_SCHEMA = pa.schema([("key", pa.large_binary()), ("accessed", pa.int64())])
LIMIT_BYTES = 16 << 20
"""The most bytes of keys in a list. It ends earlier if more entries would expire within half of the time to live."""
Moments = npt.NDArray[np.int64]
"""Epoch milliseconds."""


def expiring_name(state: str) -> str:
    """Return the name of the side data with the list of a state."""
    return f"{_PREFIX}{state}"


@dataclass(frozen=True, eq=False)
class ExpiringEntries:
    """All entries of a state whose last access was at most at ``until_ms`` when the list was made. A key may be listed
    several times: once for each element of a list state.

    ``duration_ms``: the time to live at that time. ``accessed``: the times of the last access, ascending."""

    until_ms: int
    duration_ms: int
    keys: Ragged
    accessed: Moments

    def between(self, after_ms: int, until_ms: int) -> Ragged:
        """Return the distinct keys of the entries that were last accessed after one time and at most at another."""
        first, end = np.searchsorted(self.accessed, [after_ms, until_ms], side="right")
        return as_ragged(as_arrow(self.keys.slice(int(first), max(int(end), int(first)))).unique())

    def encoded(self) -> bytes:
        """Return the list as an Arrow stream; inverse of :func:`stored_list`."""
        schema = _SCHEMA.with_metadata({"until_ms": str(self.until_ms), "duration_ms": str(self.duration_ms)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(pa.table([as_arrow(self.keys), self.accessed], schema=schema))
        return bytes(sink.getvalue())


def stored_list(side_data: SideData, key_groups: KeyGroupRange, prefix_width: int) -> ExpiringEntries | None:
    """Return the list that earlier runs have stored for some key groups; None if there is none for all of them.
    ``prefix_width``: the size in bytes of a key group."""
    parts = side_data.read_parts()
    if [group for own, _ in parts for group in own] != list(key_groups):
        return None
    lists = [_within(_decoded(data), own, prefix_width) for own, data in parts]
    if len({each.duration_ms for each in lists}) != 1:
        return None
    keys, accessed = concat([each.keys for each in lists]), np.concatenate([each.accessed for each in lists])
    return _sorted(keys, accessed, min(each.until_ms for each in lists), lists[0].duration_ms)


def _decoded(data: bytes) -> ExpiringEntries:
    with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
        table, metadata = stream.read_all().combine_chunks(), stream.schema.metadata
    keys = table["key"].combine_chunks() if len(table) else pa.array([], pa.large_binary())
    accessed = np.asarray(table["accessed"].to_numpy(), np.int64)
    return ExpiringEntries(int(metadata[b"until_ms"]), int(metadata[b"duration_ms"]), as_ragged(keys), accessed)


def _within(listed: ExpiringEntries, key_groups: KeyGroupRange, prefix_width: int) -> ExpiringEntries:
    """Return the entries of some key groups."""
    groups = key_groups_of(listed.keys, prefix_width)
    own = np.flatnonzero((groups >= key_groups.start) & (groups <= key_groups.end))
    if len(own) == len(groups):
        return listed
    return ExpiringEntries(listed.until_ms, listed.duration_ms, listed.keys.take(own), listed.accessed[own])


class ExpiringCollector:
    """The collector of a list during a scan. ``until_ms``: how far the list shall reach."""

    def __init__(self, until_ms: int, duration_ms: int) -> None:
        self._until_ms, self._duration_ms = until_ms, duration_ms
        self._parts: list[tuple[Ragged, Moments]] = []
        self._bytes = 0

    def add(self, keys: Ragged, owners: npt.NDArray[np.int64], accessed: Moments) -> None:
        """Add entries that have not expired. ``owners``: the row in ``keys`` of each time in ``accessed``."""
        rows = np.flatnonzero(accessed <= self._until_ms)
        if not len(rows):
            return
        part = keys.take(owners[rows])
        self._parts.append((part, accessed[rows]))
        self._bytes += int(part.offsets[-1])
        if self._bytes > 2 * LIMIT_BYTES:
            self._shorten()

    def listed(self) -> ExpiringEntries:
        """Return the list."""
        self._shorten()
        ((keys, accessed),) = self._parts or [(concat([]), np.empty(0, np.int64))]
        return _sorted(keys, accessed, self._until_ms, self._duration_ms)

    def _shorten(self) -> None:
        """Join the parts, and leave out the latest entries if the rest is too large."""
        if not self._parts:
            return
        keys, accessed = concat([part for part, _ in self._parts]), np.concatenate([times for _, times in self._parts])
        order = np.argsort(accessed, kind="stable")
        sizes = offsets_of(keys.lengths[order])
        fitting = int(np.searchsorted(sizes, LIMIT_BYTES, side="right")) - 1
        if fitting < len(order):
            self._until_ms = int(accessed[order[fitting]]) - 1
            fitting = int(np.searchsorted(accessed[order], self._until_ms, side="right"))
        chosen = order[:fitting]
        self._parts = [(keys.take(chosen), accessed[chosen])]
        self._bytes = int(sizes[fitting])


def _sorted(keys: Ragged, accessed: Moments, until_ms: int, duration_ms: int) -> ExpiringEntries:
    """Return a list in the order of time, without the entries after ``until_ms``."""
    order = np.argsort(accessed, kind="stable")
    order = order[accessed[order] <= until_ms]
    return ExpiringEntries(until_ms, duration_ms, keys.take(order), accessed[order])
