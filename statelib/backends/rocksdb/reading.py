"""Reading many entries of a column family at once: all entries in key order, or the entries of many keys."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rocksdict import Rdict, RdictIter

from statelib.backends.distinct_keys import entries_per_key
from statelib.backends.key_lookup import find_rows
from statelib.backends.keyed import StateScan
from statelib.backends.rocksdb.database import rocksdb_errors
from statelib.backends.rocksdb.scan import RocksDBScan
from statelib.backends.rocksdb.table_scan import TableScan, tables_of
from statelib.model.amounts import number_of
from statelib.model.state import KeyedStateSchema
from statelib.serializers.entries.keys import prefixed_keys
from statelib.serializers.entries.rows import StateRows
from statelib.wire.ragged import Ragged, concat

SCANNED_PER_KEY = 2
"""The number of entries of a state per wanted key up to which scanning all entries is cheaper than looking each key up.
Even in an entry-by-entry scan, an entry costs about a quarter of a lookup."""


@dataclass(frozen=True)
class StoredState:
    """The column family of a state in an open database. ``family`` is the handle that the owner of the database holds:
    the RocksDB library flushes the memtables whenever a handle is freed, so no second handle is made. ``families``: see
    :func:`~statelib.backends.rocksdb.table_scan.tables_of`; the states of a database share them."""

    db: Rdict
    family: Rdict
    name: str
    directory: str
    families: MutableMapping[str, str]


def scan_state(
    state: StoredState,
    release: Callable[[], None] = lambda: None,
    *,
    first: bytes = b"",
    stop: bytes | None = None,
) -> StateScan:
    """Return the current entries of a state with keys in [first, stop). ``release`` is called once, when the scan
    is closed or has reached its end. Raises CorruptStateError (``corrupt-rocksdb``)."""
    tables = tables_of(state.db, state.family, state.name, state.directory, state.families)
    if tables is None:
        return RocksDBScan(state.family, state.directory, release, first, stop)
    return TableScan(tables, release, first, stop)


def find_by_scan(
    state: StoredState, keys: Ragged, key_list: Sequence[bytes]
) -> tuple[npt.NDArray[np.int64], StateRows]:
    """Return the positions of the keys that have an entry, and those entries. ``keys``: ascending; ``key_list``: the
    same keys as bytes objects.

    All entries from the first to the last key are read; only one batch of them is in memory at a time."""
    hit_positions: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
    values: list[Ragged] = []
    if key_list:
        for rows in scan_state(state, first=key_list[0], stop=key_list[-1] + b"\0"):
            least, greatest = rows.keys.take(np.array([0, len(rows) - 1])).to_list()
            low, high = bisect_left(key_list, least), bisect_right(key_list, greatest)
            at = find_rows(rows.keys, keys.slice(low, high))
            hits = at >= 0
            hit_positions.append(low + np.flatnonzero(hits))
            values.append(rows.values.take(at[hits]))
    positions = np.concatenate(hit_positions)
    return positions, StateRows(keys.take(positions), concat(values))


def count_by_scan(state: StoredState, schema: KeyedStateSchema, keys: Ragged) -> npt.NDArray[np.int64]:
    """Return the number of entries per key. ``keys``: key group and key, ascending and distinct.

    All entries from the first to the last key are read."""
    counts = np.zeros(len(keys), np.int64)
    if len(keys):
        first, last = keys.take(np.array([0, len(keys) - 1])).to_list()
        for rows in scan_state(state, first=first, stop=_behind(last)):
            counts += entries_per_key(prefixed_keys(schema, schema.state(state.name), rows.keys), keys)
    return counts


def count_by_seek(state: StoredState, keys: Sequence[bytes], most: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the number of entries per key, at most the limit of the key in ``most``. Each key takes one seek.
    ``keys``: key group and key."""
    with rocksdb_errors(state.directory, f"looking {number_of(len(keys), 'key')} of state {state.name!r} up"):
        iterator = state.family.iter()
        counts = [_count_from(iterator, key, limit) for key, limit in zip(keys, most, strict=True)]
        iterator.status()
    return np.array(counts, np.int64)


def _count_from(iterator: RdictIter, key: bytes, most: int) -> int:
    iterator.seek(key)
    count = 0
    while count < most and iterator.valid() and iterator.key().startswith(key):
        count += 1
        iterator.next()
    return count


def _behind(prefix: bytes) -> bytes | None:
    """Return the least key that is larger than all keys that begin with ``prefix``; None if there is no such key."""
    cut = prefix.rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else None
