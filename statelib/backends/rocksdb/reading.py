"""Many entries of a column family at once: all of them in key order, or those of many keys."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rocksdict import Rdict, RdictIter

from statelib.backends.distinct_keys import entries_per_key
from statelib.backends.key_order import find_rows
from statelib.backends.keyed import StateScan
from statelib.backends.rocksdb.database import rocksdb_errors
from statelib.backends.rocksdb.scan import RocksDBScan
from statelib.backends.rocksdb.table_scan import TableScan, tables_of
from statelib.model.amounts import number_of
from statelib.model.state import KeyedStateSchema
from statelib.serializers.keys import prefixed_keys
from statelib.serializers.rows import StateRows
from statelib.wire.ragged import Ragged, concat

SCANNED_PER_KEY = 2
"""Entries of a state for each key that is asked for, up to which reading all of them is cheaper than looking each key
up, even entry by entry: an entry of a scan costs about a quarter of a lookup."""


@dataclass(frozen=True)
class StoredState:
    """A state's column family in an open database. ``family`` is the one handle of it that its owner keeps: RocksDB's
    library flushes what is in memory whenever a handle is let go of."""

    db: Rdict
    family: Rdict
    name: str
    directory: str


def scan_state(
    state: StoredState,
    release: Callable[[], None] = lambda: None,
    *,
    first: bytes = b"",
    stop: bytes | None = None,
) -> StateScan:
    """The entries of a state with keys in [first, stop), as they are now; ``release`` is called once, when the scan
    is closed or has come to its end. Raises CorruptStateError (``corrupt-rocksdb``)."""
    tables = tables_of(state.db, state.family, state.name, state.directory)
    if tables is None:
        return RocksDBScan(state.family, state.directory, release, first, stop)
    return TableScan(tables, release, first, stop)


def find_by_scan(state: StoredState, asked: Ragged, names: Sequence[bytes]) -> tuple[npt.NDArray[np.int64], StateRows]:
    """The positions in ``asked`` (ascending keys; ``names``: the same as bytes) that are present, and their entries.

    Passes by all entries between the first and the last key, and keeps a batch of those that nobody asked for."""
    found: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
    values: list[Ragged] = []
    if names:
        for rows in scan_state(state, first=names[0], stop=names[-1] + b"\0"):
            least, greatest = rows.keys.take(np.array([0, len(rows) - 1])).to_list()
            low, high = bisect_left(names, least), bisect_right(names, greatest)
            at = find_rows(rows.keys, asked.slice(low, high))
            hits = at >= 0
            found.append(low + np.flatnonzero(hits))
            values.append(rows.values.take(at[hits]))
    positions = np.concatenate(found)
    return positions, StateRows(asked.take(positions), concat(values))


def count_by_scan(state: StoredState, schema: KeyedStateSchema, keys: Ragged) -> npt.NDArray[np.int64]:
    """How many entries the state has of each of ``keys`` (key group and key, ascending, each once).

    Passes by all entries between the first and the last key."""
    found = np.zeros(len(keys), np.int64)
    if len(keys):
        first, last = keys.take(np.array([0, len(keys) - 1])).to_list()
        for rows in scan_state(state, first=first, stop=_behind(last)):
            found += entries_per_key(prefixed_keys(schema, schema.state(state.name), rows.keys), keys)
    return found


def count_by_seek(state: StoredState, keys: Sequence[bytes], most: Sequence[int]) -> npt.NDArray[np.int64]:
    """The same with a seek per key, which ends at its ``most``-th entry."""
    with rocksdb_errors(state.directory, f"looking {number_of(len(keys), 'key')} of state {state.name!r} up"):
        iterator = state.family.iter()
        found = [_count_from(iterator, key, enough) for key, enough in zip(keys, most, strict=True)]
        iterator.status()
    return np.array(found, np.int64)


def _count_from(iterator: RdictIter, key: bytes, most: int) -> int:
    iterator.seek(key)
    count = 0
    while count < most and iterator.valid() and iterator.key().startswith(key):
        count += 1
        iterator.next()
    return count


def _behind(prefix: bytes) -> bytes | None:
    """The least key that is larger than all that begin with ``prefix``; None if there is no such."""
    cut = prefix.rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else None
