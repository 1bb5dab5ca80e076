"""The entries of a state that expire next, in a list that a scan for expired entries makes.

Later runs look only for the listed entries, until one that is not listed may expire. Each entry that is written later
expires later, because a list reaches less far than the time to live. A list is side data of the checkpoint, per
subtask, under a name that no pipeline can declare.
Source: docs/spec/formats.md#listed-expirations.
"""

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

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
BATCH_ROWS = 1 << 14
"""The number of entries in a record batch of a stored list. A run decodes only the batches that it needs."""
LIMIT_BYTES = 16 << 20
"""The most bytes of keys in a list. It ends earlier if more entries would expire within half of the time to live."""
Moments = npt.NDArray[np.int64]
"""Epoch milliseconds."""


def expiring_name(state: str) -> str:
    """Return the name of the side data with the list of a state."""
    return f"{_PREFIX}{state}"


@dataclass(frozen=True, eq=False)
class StoredList:
    """A list that earlier runs have stored for some key groups, perhaps in several parts: (key groups, Arrow file).

    It has all entries whose last access was at most at ``until_ms`` when the list was made, a key of a list state once
    for each time of its elements. ``duration_ms``: the time to live when it was made. ``prefix_width``: the size in
    bytes of a key group."""

    until_ms: int
    duration_ms: int
    prefix_width: int
    _parts: Sequence[tuple[KeyGroupRange, pa.ipc.RecordBatchFileReader]]

    def between(self, after_ms: int, until_ms: int) -> Ragged:
        """Return the distinct keys of the entries that were last accessed after one time and at most at another."""
        keys = [rows for own, file in self._parts for rows in self._of_part(own, file, after_ms, until_ms)]
        return as_ragged(as_arrow(concat(keys)).unique())

    def _of_part(
        self, key_groups: KeyGroupRange, file: pa.ipc.RecordBatchFileReader, after_ms: int, until_ms: int
    ) -> Iterator[Ragged]:
        last = _number(file, "last_ms")
        for number in range(bisect_right(last, after_ms), file.num_record_batches):
            batch = file.get_batch(number)
            accessed = np.asarray(batch["accessed"].to_numpy(), np.int64)
            first, end = np.searchsorted(accessed, [after_ms, until_ms], side="right")
            keys = as_ragged(batch["key"]).slice(int(first), max(int(end), int(first)))
            groups = key_groups_of(keys, self.prefix_width)
            yield keys.take(np.flatnonzero((groups >= key_groups.start) & (groups <= key_groups.end)))
            if end < len(accessed):
                return


def stored_list(side_data: SideData, key_groups: KeyGroupRange, prefix_width: int) -> StoredList | None:
    """Return the list that earlier runs have stored for some key groups; None if there is none for all of them.
    ``prefix_width``: the size in bytes of a key group."""
    parts = [(own, pa.ipc.open_file(pa.py_buffer(data))) for own, data in side_data.read_parts()]
    if [group for own, _ in parts for group in own] != list(key_groups):
        return None
    durations = {_number(file, "duration_ms") for _, file in parts}
    until_ms = min(_number(file, "until_ms") for _, file in parts)
    return StoredList(until_ms, durations.pop(), prefix_width, parts) if len(durations) == 1 else None


def _number(file: pa.ipc.RecordBatchFileReader, name: str) -> Any:
    return json.loads(file.schema.metadata[name.encode()])


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
        owners, accessed = _distinct(owners[rows], accessed[rows])
        part = keys.take(owners)
        self._parts.append((part, accessed))
        self._bytes += int(part.offsets[-1])
        if self._bytes > 2 * LIMIT_BYTES:
            self._shorten()

    def encoded(self) -> bytes:
        """Return the list as an Arrow file, which :func:`stored_list` reads."""
        self._shorten()
        ((keys, accessed),) = self._parts or [(concat([]), np.empty(0, np.int64))]
        last = accessed[BATCH_ROWS - 1 :: BATCH_ROWS].tolist()
        numbers = {"until_ms": self._until_ms, "duration_ms": self._duration_ms, "last_ms": last}
        schema = _SCHEMA.with_metadata({name: json.dumps(number) for name, number in numbers.items()})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(pa.table([as_arrow(keys), accessed], schema=schema), BATCH_ROWS)
        return bytes(sink.getvalue())

    def _shorten(self) -> None:
        """Join the parts in the order of time, and leave out the latest entries if the rest is too large."""
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


def _distinct(owners: npt.NDArray[np.int64], accessed: Moments) -> tuple[npt.NDArray[np.int64], Moments]:
    """Return the distinct pairs of rows and times. The rows ascend; only a list state has a row several times."""
    if not (owners[1:] == owners[:-1]).any():
        return owners, accessed
    order = np.lexsort((accessed, owners))
    owners, accessed = owners[order], accessed[order]
    fresh = np.append(True, (owners[1:] != owners[:-1]) | (accessed[1:] != accessed[:-1]))
    return owners[fresh], accessed[fresh]
