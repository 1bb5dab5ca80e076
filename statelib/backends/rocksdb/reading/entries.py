"""Reading many entries of a column family at once: all entries in key order, or the entries of many keys."""

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import numpy.typing as npt
from rocksdict import Rdict, RdictIter

from statelib.backends.keyed import StateScan
from statelib.backends.keys.distinct import entries_per_key
from statelib.backends.keys.lookup import find_rows
from statelib.backends.rocksdb.database import rocksdb_errors
from statelib.backends.rocksdb.reading.scan import RocksDBScan
from statelib.backends.rocksdb.reading.table_scan import TableScan, first_row_from, tables_of
from statelib.model.amounts import number_of
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema
from statelib.serializers.entries.keys import prefixed_keys
from statelib.serializers.entries.rows import NO_ROWS, StateRows
from statelib.serializers.entries.timers import moment_bytes
from statelib.wire.ragged import Ragged, concat, from_list

SCANNED_PER_KEY = 2
"""The number of entries of a state per wanted key up to which scanning all entries is cheaper than looking each key up.
Even in an entry-by-entry scan, an entry costs about a quarter of a lookup."""
SCANNED_PER_TIMER = 4
"""The number of timers per due timer up to which scanning all is cheaper than reading the due ones one by one."""
KEPT_BYTES = 512 * 1024 * 1024
"""The most bytes of keys and values that a read keeps in memory for the write that follows."""


@dataclass(frozen=True)
class StoredState:
    """The column family of a state in an open database. ``family`` is the handle that the owner of the database holds:
    the RocksDB library flushes the memtables whenever a handle is freed, so no second handle is made. ``families``: see
    :func:`~statelib.backends.rocksdb.reading.table_scan.tables_of`; the states of a database share them."""

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


@dataclass(frozen=True, eq=False)
class Matched:
    """Entries of a scan in key order, with the wanted keys up to the last of them that were not in the part before.

    ``low`` and ``high`` (exclusive): the numbers of these keys. ``at``: the row of each in ``rows``, -1 if it has no
    entry."""

    rows: StateRows
    low: int
    high: int
    at: npt.NDArray[np.int64]

    @property
    def hits(self) -> tuple[npt.NDArray[np.int64], Ragged]:
        """The numbers of the keys that have an entry, and the values of these entries."""
        hits = np.flatnonzero(self.at >= 0)
        return self.low + hits, self.rows.values.take(self.at[hits])


def find_by_scan(state: StoredState, keys: Ragged) -> tuple[npt.NDArray[np.int64], StateRows, None]:
    """Return the positions of the keys that have an entry, and those entries. ``keys``: distinct and in key order.

    All entries from the first to the last key are read; only one batch of them is in memory at a time."""
    if not len(keys):
        return np.empty(0, np.int64), NO_ROWS, None
    first, last = keys.take(np.array([0, len(keys) - 1])).to_list()
    scan = scan_state(state, first=first, stop=last + b"\0")
    return *_joined([part.hits for part in _matched(scan, keys)], keys), None


def find_and_keep(
    state: StoredState, keys: Ragged
) -> tuple[npt.NDArray[np.int64], StateRows, Sequence[Matched] | None]:
    """Return what :func:`find_by_scan` returns, and all entries of the state with the places of the keys; None instead
    of these if they are larger than KEPT_BYTES."""
    hits, entries, size = [], list[Matched](), 0
    for part in _matched(scan_state(state), keys):
        hits.append(part.hits)
        entries.append(part)
        size += part.rows.keys.data.nbytes + part.rows.values.data.nbytes
        if size > KEPT_BYTES:
            entries.clear()
    return *_joined(hits, keys), entries if size <= KEPT_BYTES else None


def _matched(scan: StateScan, keys: Ragged) -> Iterator[Matched]:
    """Yield the entries of a scan, matched with distinct keys in key order."""
    low = 0
    for rows in scan:
        greatest = rows.keys.take(np.array([len(rows) - 1])).to_list()[0]
        high = first_row_from(keys, greatest + b"\0")
        yield Matched(rows, low, high, find_rows(rows.keys, keys.slice(low, high)))
        low = high


def _joined(
    hits: Sequence[tuple[npt.NDArray[np.int64], Ragged]], keys: Ragged
) -> tuple[npt.NDArray[np.int64], StateRows]:
    """Return the positions of the keys that have an entry, and those entries. ``hits``: those of each part."""
    present = np.concatenate([np.empty(0, np.int64), *(positions for positions, _ in hits)])
    return present, StateRows(keys.take(present), concat([values for _, values in hits]))


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
        entries_of = (islice(_keys_between(iterator, key, key), limit) for key, limit in zip(keys, most, strict=True))
        counts = [sum(1 for _ in entries) for entries in entries_of]
    return np.array(counts, np.int64)


def keys_by_seek(state: StoredState, prefixes: Sequence[bytes]) -> Ragged:
    """Return the keys of all entries that begin with one of the prefixes, of which none is the beginning of another
    one. Each prefix takes one seek."""
    with rocksdb_errors(state.directory, f"looking for entries of state {state.name!r}"):
        iterator = state.family.iter()
        return from_list([key for prefix in prefixes for key in _keys_between(iterator, prefix, prefix)])


def timers_by_seek(
    state: StoredState, key_groups: KeyGroupRange, prefix_width: int, until_ms: int, most: int
) -> Ragged | None:
    """Return the keys of the timers up to and including ``until_ms``, in ascending order; None if there are more than
    ``most`` of them. Each key group takes one seek, because its timers are in the order of time."""
    until, prefixes = moment_bytes(until_ms), (group.to_bytes(prefix_width, "big") for group in key_groups)
    with rocksdb_errors(state.directory, f"looking for due timers of state {state.name!r}"):
        iterator = state.family.iter()
        due = chain.from_iterable(_keys_between(iterator, prefix, prefix + until) for prefix in prefixes)
        keys = list(islice(due, most + 1))
    return None if len(keys) > most else from_list(keys)


def _keys_between(iterator: RdictIter, first: bytes, last: bytes) -> Iterator[bytes]:
    """Yield the keys from ``first`` on, as long as their first bytes, as many as ``last`` has, are at most ``last``."""
    size = len(last)
    iterator.seek(first)
    while iterator.valid():
        key = iterator.key()
        if key[:size] > last:
            return
        yield key
        iterator.next()
    iterator.status()  # raises an error, which the next seek would forget


def _behind(prefix: bytes) -> bytes | None:
    """Return the least key that is larger than all keys that begin with ``prefix``; None if there is no such key."""
    cut = prefix.rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else None
