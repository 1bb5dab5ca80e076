"""Reading a column family in key order, so that damage is an error and never a short result.

The library's ``items()`` ends quietly at a damaged block; a raw iterator tells, if it is asked.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
import numpy.typing as npt
from rocksdict import Rdict, RdictIter

from statelib.backends.entries import SCAN_BYTES, SCAN_ROWS
from statelib.backends.key_order import find_rows
from statelib.backends.rocksdb.database import rocksdb_errors
from statelib.serializers.rows import StateRows
from statelib.wire.ragged import Ragged, concat, from_list

SCANNED_PER_KEY = 2
"""Entries of a state for each key that is asked for, up to which reading all of them is cheaper than looking each key
up: an entry of a scan costs about a quarter of a lookup."""


class RocksDBScan:
    """A :class:`~statelib.backends.keyed.StateScan` of one column family, frozen when it is made.

    ``first`` and ``stop`` bound the keys, [first, stop); ``release`` is called once, when the scan
    is closed or has come to its end. Raises CorruptStateError (``corrupt-rocksdb``)."""

    def __init__(
        self,
        family: Rdict,
        directory: str,
        release: Callable[[], None] = lambda: None,
        first: bytes = b"",
        stop: bytes | None = None,
    ) -> None:
        self._directory = directory
        self._release = release
        self._stop = stop
        with rocksdb_errors(directory, "starting a scan"):
            iterator = family.iter()
            iterator.seek(first) if first else iterator.seek_to_first()
        self._iterator: RdictIter | None = iterator

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StateRows:
        if self._iterator is None:
            raise StopIteration
        with rocksdb_errors(self._directory, "scanning it"):
            keys, values = _take(self._iterator, self._stop)
            self._iterator.status()
        if not keys:
            self.close()
            raise StopIteration
        return StateRows(from_list(keys), from_list(values))

    def close(self) -> None:
        if self._iterator is not None:
            self._iterator = None
            self._release()


def find_by_scan(
    family: Rdict, directory: str, asked: Ragged, names: Sequence[bytes]
) -> tuple[npt.NDArray[np.int64], StateRows]:
    """The positions in ``asked`` (ascending keys; ``names``: the same as bytes) that are present, and their entries.

    Passes by all entries between the first and the last key, and keeps a batch of those that nobody asked for."""
    found: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
    values: list[Ragged] = []
    if names:
        for rows in RocksDBScan(family, directory, first=names[0], stop=names[-1] + b"\0"):
            least, greatest = rows.keys.take(np.array([0, len(rows) - 1])).to_list()
            low, high = bisect_left(names, least), bisect_right(names, greatest)
            at = find_rows(rows.keys, asked.slice(low, high))
            hits = at >= 0
            found.append(low + np.flatnonzero(hits))
            values.append(rows.values.take(at[hits]))
    positions = np.concatenate(found)
    return positions, StateRows(asked.take(positions), concat(values))


def _take(iterator: RdictIter, stop: bytes | None) -> tuple[list[bytes], list[bytes]]:
    """A batch of entries from where the iterator stands; none = it came to its end."""
    keys: list[bytes] = []
    values: list[bytes] = []
    valid, key, value, step = iterator.valid, iterator.key, iterator.value, iterator.next
    left = SCAN_BYTES
    for _ in range(SCAN_ROWS):
        if left <= 0 or not valid():
            break
        at = key()
        if stop is not None and at >= stop:
            break
        held = value()
        keys.append(at)
        values.append(held)
        left -= len(at) + len(held)
        step()
    return keys, values
