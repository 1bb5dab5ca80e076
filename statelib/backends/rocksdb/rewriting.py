"""Writing all entries of a state anew, as tables that RocksDB takes in whole.

RocksDB writes an entry to memory, then to a table of new entries, and later again when it merges tables. If most
entries of a state change at once, writing all of them in columns is cheaper, and leaves nothing to be merged.
"""

import logging
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rocksdict import IngestExternalFileOptions, Rdict

from statelib.backends.key_order import byte_order
from statelib.backends.rocksdb.database import family_options, machine_error, rocksdb_errors
from statelib.backends.rocksdb.reading import Matched, StoredState
from statelib.formats.sst.table_writer import TableWriter
from statelib.serializers.entries.rows import StateRows, windows
from statelib.wire.ragged import concat

log = logging.getLogger(__name__)

REWRITTEN_KEYS = 4096
"""The number of keys below which writing tables costs more than writing their entries to RocksDB."""
_TABLE_BYTES = 64 * 1024 * 1024
"""The size in bytes from which a table takes no more entries. It is RocksDB's default."""
Rows = npt.NDArray[np.int64]


def rewrite(
    state: StoredState, entries: Sequence[Matched], changed: StateRows, removed: npt.NDArray[np.bool_], directory: Path
) -> Rdict:
    """Replace a column family by one with the given entries after a change, and return its handle. The old handle must
    not be used afterwards.

    ``entries``: all entries of the state, matched with the keys of ``changed``, which are distinct and in key order.
    ``removed``: the rows of ``changed`` that are removed instead. ``directory``: it does not exist; the tables are
    written in it. Raise CorruptStateError (``corrupt-rocksdb``), RetryableError (``rocksdb-io``)."""
    doing = f"writing state {state.name!r} anew"
    try:
        paths = _write_tables(_after(entries, changed, removed), state.name, directory)
        log.debug("state %r is written anew: tables: %d", state.name, len(paths))
        with rocksdb_errors(state.directory, doing):
            return _replaced(state.db, state.name, paths)
    except OSError as error:
        raise machine_error(state.directory, doing, error) from error
    finally:
        shutil.rmtree(directory, ignore_errors=True)


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
    both = StateRows(concat([rows.keys, changed.keys]), concat([rows.values, changed.values]))
    merged = both.take(np.append(source[source >= 0], added))
    return merged.take(byte_order(merged.keys)) if len(added) else merged


def _write_tables(rows: Iterable[StateRows], family: str, directory: Path) -> list[str]:
    """Write entries in key order to tables in a new directory, and return the paths of the tables."""
    directory.mkdir()
    paths: list[str] = []
    parts = (window for batch in rows for window in windows(batch))
    for part in parts:
        paths.append(str(directory / f"{len(paths)}.sst"))
        with open(paths[-1], "wb") as file:
            writer = TableWriter(file.write, family)
            writer.add(part)
            while writer.size_bytes < _TABLE_BYTES and (more := next(parts, None)) is not None:
                writer.add(more)
            writer.finish()
    return paths


def _replaced(db: Rdict, name: str, tables: Sequence[str]) -> Rdict:
    """Return a column family that has taken the place of the one with this name, and has the entries of the tables."""
    db.drop_column_family(name)
    family = db.create_column_family(name, family_options())
    if tables:
        options = IngestExternalFileOptions()
        options.set_move_files(True)
        options.set_allow_global_seqno(False)
        family.ingest_external_file(list(tables), options)
    return family
