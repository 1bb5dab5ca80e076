"""Writing all entries of a state anew, as tables that RocksDB takes in whole.

RocksDB writes an entry to memory, then to a table of new entries, and later again when it merges tables. If most
entries of a state change at once, writing all of them in columns is cheaper, and leaves nothing to be merged.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from rocksdict import Rdict

from statelib.backends.keys.order import byte_order
from statelib.backends.rocksdb.database import family_options, rocksdb_errors
from statelib.backends.rocksdb.reading.entries import Matched, StoredState
from statelib.backends.rocksdb.writing.new_tables import NewTables
from statelib.serializers.entries.rows import StateRows, join_rows

Rows = npt.NDArray[np.int64]


def rewrite(
    state: StoredState,
    entries: Sequence[Matched],
    changed: StateRows,
    removed: npt.NDArray[np.bool_],
    tables: NewTables,
) -> Rdict:
    """Replace a column family by one with the given entries after a change, and return its handle. The old handle must
    not be used afterwards.

    ``entries``: all entries of the state, matched with the keys of ``changed``, which are distinct and in key order.
    ``removed``: the rows of ``changed`` that are removed instead. ``tables``: those to write to. Raise
    CorruptStateError (``corrupt-rocksdb``), RetryableError (``rocksdb-io``)."""
    try:
        for rows in _after(entries, changed, removed):
            tables.add(rows)
        tables.finish()
        with rocksdb_errors(state.directory, f"replacing the tables of state {state.name!r}"):
            state.db.drop_column_family(state.name)
            family = state.db.create_column_family(state.name, family_options())
        tables.take_in(family)
        return family
    finally:
        tables.discard()


def _after(entries: Sequence[Matched], changed: StateRows, removed: npt.NDArray[np.bool_]) -> Iterator[StateRows]:
    """Yield the entries after the change, in key order."""
    for part in entries:
        yield _merged(part.rows, part.at, changed.slice(part.low, part.high), removed[part.low : part.high])
    behind = entries[-1].high if entries else 0
    yield changed.take(behind + np.flatnonzero(~removed[behind:]))


def _merged(rows: StateRows, at: Rows, changed: StateRows, removed: npt.NDArray[np.bool_]) -> StateRows:
    """Return entries after a change, in key order. ``at``: the row of each changed key, -1 for a new one."""
    is_new = at < 0
    source = np.arange(len(rows))
    source[at[~is_new]] = np.where(removed, -1, len(rows) + np.arange(len(changed)))[~is_new]
    added = len(rows) + np.flatnonzero(is_new & ~removed)
    both, chosen = join_rows([rows, changed]), np.append(source[source >= 0], added)
    return both.take(chosen[byte_order(both.keys.take(chosen))] if len(added) else chosen)
