"""The keyed state backend on the local disk, in RocksDB, for state that is larger than memory.

Source: docs/spec/requirements.md R37 to R49; docs/spec/formats.md#column-families (one column family per state, with
the name of the state; no write-ahead log). The RocksDB library only accepts lists of bytes, so this is the only place
with Python objects per entry. The lists are always in key order.
"""

import contextlib
import logging
import shutil
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rocksdict import Rdict, WriteBatch

from statelib.backends.entries import (
    add_entries,
    check_loaded_rows,
    check_owned_keys,
    check_write,
    having_prefix,
    removed_rows,
)
from statelib.backends.keyed import StateScan, StateValues
from statelib.backends.keys.order import byte_order
from statelib.backends.rocksdb.checkpoint import NativeCheckpoint, native_checkpoint
from statelib.backends.rocksdb.compaction import compact_where_it_pays
from statelib.backends.rocksdb.database import check_live_files, open_writable, rocksdb_errors, table_names, without_wal
from statelib.backends.rocksdb.leases import Leases
from statelib.backends.rocksdb.reading.entries import (
    SCANNED_PER_KEY,
    SCANNED_PER_TIMER,
    Matched,
    StoredState,
    count_by_scan,
    count_by_seek,
    find_and_keep,
    find_by_scan,
    keys_by_seek,
    scan_state,
    timers_by_seek,
)
from statelib.backends.rocksdb.takeover import check_key_groups
from statelib.backends.rocksdb.writing import new_tables
from statelib.backends.rocksdb.writing.loading import Loading
from statelib.backends.rocksdb.writing.new_tables import NewTables
from statelib.backends.rocksdb.writing.rewriting import rewrite
from statelib.errors import InvalidRequestError
from statelib.model.amounts import number_of
from statelib.model.handles import StreamStateHandle
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange, prefix_width
from statelib.model.state import KeyedStateSchema, StateStatistics, empty_statistics
from statelib.serializers.columns.cursors import spread
from statelib.serializers.entries.rows import StateRows, windows
from statelib.serializers.entries.timers import due_timers
from statelib.serializers.entries.values import decode_values, encode_values, value_arrow_type
from statelib.storage.local.file_identity import KnownFile
from statelib.wire.ragged import Ragged, concat, from_list

_BATCH_ROWS = 10_000
"""The number of entries in one WriteBatch."""
log = logging.getLogger(__name__)

_FLUSHED_TO_SCAN = 200_000
"""The number of entries of a state from which a scan first flushes the memtables, because tables are read several
times faster."""


@dataclass(frozen=True, eq=False)
class RocksDBCookie:
    """The result of a read, in key order, for the write that follows. ``order``: the row numbers of the keys in key
    order; ``sorted_keys``: the keys in this order; ``old``: the entries of those that are present, in this order."""

    order: npt.NDArray[np.int64]
    sorted_keys: Ragged
    present: npt.NDArray[np.int64]
    """The positions in ``sorted_keys`` of the keys that have an entry."""
    old: StateRows
    entries: Sequence[Matched] | None = None
    """All entries of the state, if the read came upon them and they are few enough to keep."""
    version: int = 0
    """The number of changes of the state before the read."""


class RocksDBKeyedStateBackend:
    """A :class:`~statelib.backends.keyed.KeyedStateBackend` in RocksDB.

    ``directory`` belongs to the backend: it must be absent or empty (else InvalidRequestError,
    ``directory-not-empty``), and :meth:`close` removes it. ``backend_uid`` names this instance in its native
    checkpoints. Each write updates the statistics: the old entries are subtracted, the new ones added."""

    def __init__(
        self, schema: KeyedStateSchema, key_group_range: KeyGroupRange, directory: str, backend_uid: str
    ) -> None:
        root = Path(directory)
        if root.is_dir() and any(root.iterdir()):
            raise InvalidRequestError(
                f"working directory {directory}: expected it absent or empty, it has content",
                kind="directory-not-empty",
            )
        database_directory(directory).mkdir(parents=True)
        self._open(schema, key_group_range, root, backend_uid, None, create=True)

    @classmethod
    def open_existing(
        cls,
        schema: KeyedStateSchema,
        key_group_range: KeyGroupRange,
        directory: str,
        backend_uid: str,
        statistics: tuple[StateStatistics, ...],
        *,
        restored_files: Mapping[str, KnownFile] | None = None,
    ) -> "RocksDBKeyedStateBackend":
        """Return a backend for the existing database in ``database_directory(directory)``. ``directory`` is removed by
        :meth:`close`, and when opening fails.

        ``statistics`` must be those of the content; they are not checked. ``restored_files``: the files from which the
        database was restored, by RocksDB's file names, each with the stream that holds the same bytes. Raises
        CorruptStateError (``corrupt-rocksdb``, ``rocksdb-files-mismatch``)."""
        backend = cls.__new__(cls)
        try:
            tables = table_names(str(database_directory(directory)))
            backend._open(schema, key_group_range, Path(directory), backend_uid, statistics, create=False)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        backend._restored_files = restored_files or {}
        try:
            check_live_files(backend._db, backend._database, tables)
        except BaseException:
            backend.close()
            raise
        return backend

    def _open(
        self,
        schema: KeyedStateSchema,
        key_group_range: KeyGroupRange,
        root: Path,
        backend_uid: str,
        statistics: tuple[StateStatistics, ...] | None,
        *,
        create: bool,
    ) -> None:
        self._schema = schema
        self._range = key_group_range
        self._root = root
        self._width = prefix_width(schema.max_parallelism)
        self.backend_uid = backend_uid
        names = [d.name for d in schema.states]
        initial = statistics or tuple(empty_statistics(key_group_range) for _ in names)
        self._statistics = dict(zip(names, initial, strict=True))
        self._database = str(database_directory(str(root)))
        self._db: Rdict = open_writable(self._database, names, create)
        self._families: dict[str, Rdict] = {name: self._db.get_column_family(name) for name in names}
        self._families_of_tables: dict[str, str] = {}
        self._versions = dict.fromkeys(names, 0)
        self._is_new, self._loading = create, dict[str, Loading]()
        self._write_options = without_wal()
        self._leases = Leases(self._dispose)
        self._restored_files: Mapping[str, KnownFile] = {}

    @property
    def schema(self) -> KeyedStateSchema:
        return self._schema

    @property
    def key_group_range(self) -> KeyGroupRange:
        return self._range

    def read(self, state: str, keys: Ragged) -> StateValues:
        self._check_open(state)
        check_owned_keys(state, keys, self._schema, self._range)
        cookie = self._fetch(state, keys)
        at = np.full(len(keys), -1, np.int64)
        at[cookie.order[cookie.present]] = np.arange(len(cookie.present))
        decoded = decode_values(self._schema.state(state), cookie.old.values)
        return StateValues(keys, pa.array(at >= 0), decoded.take(pa.array(at, mask=at < 0)), cookie)

    def write(self, before: StateValues, state: str, values: pa.Array, removed: pa.BooleanArray | None = None) -> None:
        self._check_open(state)
        descriptor = self._schema.state(state)
        check_write(descriptor, value_arrow_type(descriptor), len(before.keys), values)
        cookie = before.cookie if isinstance(before.cookie, RocksDBCookie) else self._fetch(state, before.keys)
        removed_mask = removed_rows(descriptor, values, removed)[cookie.order]
        put = np.flatnonzero(~removed_mask)
        new_values = encode_values(descriptor, values.take(pa.array(cookie.order[put])))
        new = StateRows(cookie.sorted_keys.take(put), new_values)
        if cookie.entries is not None and cookie.version == self._versions[state]:
            changed = StateRows(cookie.sorted_keys, spread(new_values, ~removed_mask))
            tables = self._new_tables(state)
            self._families[state] = rewrite(self._stored(state), cookie.entries, changed, removed_mask, tables)
            self._versions[state] += 1
        else:
            deleted = np.intersect1d(np.flatnonzero(removed_mask), cookie.present, assume_unique=True)
            self._put(state, new.keys.to_list(), new.values.to_list())
            self._delete(state, cookie.sorted_keys.take(deleted).to_list())
        self._count(state, cookie.old, -1)
        self._count(state, new, 1)

    def load(self, state: str, rows: StateRows) -> None:
        self._check_not_closed(state)
        check_loaded_rows(state, rows, self._schema, self._range)
        ordered = rows.take(byte_order(rows.keys))
        if self._is_new and not self._versions[state] and state not in self._loading:
            self._loading[state] = Loading(self._new_tables(state))
        loading = self._loading.get(state)
        if loading is None or not loading.add(ordered):
            self._end_loading(state)
            self._put(state, ordered.keys.to_list(), ordered.values.to_list())
        self._count(state, ordered, 1)

    def replay(self, state: str, put: StateRows, removed: Ragged) -> None:
        """Apply changes of a log: write the entries ``put`` and delete the keys ``removed``. The statistics are not
        updated, because those that :meth:`open_existing` received already include the changes."""
        self._check_open(state)
        for window in windows(put):
            ordered = window.take(byte_order(window.keys))
            self._put(state, ordered.keys.to_list(), ordered.values.to_list())
        self._delete(state, removed.take(byte_order(removed)).to_list())

    def scan(self, state: str) -> StateScan:
        self._check_open(state)
        self._leases.take()
        try:
            if self._statistics[state].total_entries >= _FLUSHED_TO_SCAN:
                with rocksdb_errors(self.directory, f"flushing state {state!r}"):
                    self._families[state].flush()
            return scan_state(self._stored(state), self._leases.give_back)
        except BaseException:
            self._leases.give_back()
            raise

    def keys_with(self, state: str, prefixes: Ragged, prefix_of: Callable[[Ragged], Ragged]) -> Ragged:
        self._check_open(state)
        if self._statistics[state].total_entries > SCANNED_PER_KEY * len(prefixes):
            return keys_by_seek(self._stored(state), prefixes.take(byte_order(prefixes)).to_list())
        with contextlib.closing(self.scan(state)) as scan:
            return concat([having_prefix(rows.keys, prefixes, prefix_of) for rows in scan])

    def timers_until(self, state: str, until_ms: int) -> Ragged:
        self._check_open(state)
        most = self._statistics[state].total_entries // SCANNED_PER_TIMER
        keys = timers_by_seek(self._stored(state), self._range, self._width, until_ms, most)
        if keys is not None:
            return keys
        with contextlib.closing(self.scan(state)) as scan:
            return concat([due_timers(rows.keys, self._width, until_ms) for rows in scan])

    def count_entries(self, state: str, keys: Ragged, most: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        self._check_open(state)
        order = byte_order(keys)
        sorted_keys, counts = keys.take(order), np.empty(len(keys), np.int64)
        if self._statistics[state].total_entries <= SCANNED_PER_KEY * len(keys):
            counts[order] = count_by_scan(self._stored(state), self._schema, sorted_keys)
        else:
            counts[order] = count_by_seek(self._stored(state), sorted_keys.to_list(), most[order].tolist())
        return counts

    def statistics(self) -> tuple[StateStatistics, ...]:
        return tuple(self._statistics[d.name] for d in self._schema.states)

    def checkpoint(self, checkpoint_id: CheckpointId) -> NativeCheckpoint:
        """Return the frozen files of the database, after a compaction if one pays. The directory of an earlier attempt
        with this id is replaced (R59). Raises CorruptStateError (``corrupt-rocksdb``), RetryableError
        (``rocksdb-io``)."""
        self._leases.take()
        try:
            for state in list(self._loading):
                self._end_loading(state)
            compact_where_it_pays(self._db, self._families, self.directory)
            directory = self._root / f"chk-{checkpoint_id}"
            if directory.exists():
                log.warning("%s exists already, left by an earlier try, and is replaced", directory)
                shutil.rmtree(directory, ignore_errors=True)
        except BaseException:
            self._leases.give_back()
            raise
        log.debug("RocksDB's files of checkpoint %d are linked in %s", checkpoint_id, directory)
        return native_checkpoint(self._db, directory, self._leases.give_back)

    def check_key_groups(self) -> None:
        """Raise CorruptStateError (``restore-mismatch``) if other key groups hold entries than the statistics say. The
        cost is one seek per key group; the number of entries is not checked."""
        for state in self._families:
            self._end_loading(state)
            family = self._families[state]
            with rocksdb_errors(self.directory, f"looking into state {state!r}"):
                check_key_groups(family, state, self._statistics[state], self._range, self._width)

    def holds(self, name: str, path: str, stream: StreamStateHandle) -> bool:
        """Return whether the file at ``path`` of a native checkpoint is unchanged since the restore and so has the
        bytes of ``stream``. ``name``: RocksDB's name of the file. The file is not read. Raises OSError."""
        restored = self._restored_files.get(name)
        return restored is not None and restored.is_at(path, stream)

    def close(self) -> None:
        """Close the database and remove the working directory. If a scan or a native checkpoint is still open, this
        happens when the last one is released."""
        self._leases.close()

    @property
    def directory(self) -> str:
        """The working directory, which :meth:`close` removes."""
        return str(self._root)

    def _dispose(self) -> None:
        self._families.clear()
        # Compactions in the background would create and remove files while the directory is being removed.
        with contextlib.suppress(Exception):
            self._db.cancel_all_background(True)
        # Closing flushes the memtables, which fails on a full disk; the directory is removed anyway.
        with contextlib.suppress(Exception):
            self._db.close()
        del self._db
        shutil.rmtree(self._root, onerror=_unless_gone)

    def _check_open(self, state: str) -> None:
        self._check_not_closed(state)
        self._end_loading(state)

    def _check_not_closed(self, state: str) -> None:
        if self._leases.closed:
            raise InvalidRequestError(f"state {state!r}: the backend is closed", kind="backend-closed")
        self._schema.state(state)

    def _end_loading(self, state: str) -> None:
        """Write the entries that have been loaded into the state to RocksDB."""
        loading = self._loading.pop(state, None)
        if loading is not None:
            self._versions[state] += 1
            for rows in loading.end(self._families[state]):
                self._put(state, rows.keys.to_list(), rows.values.to_list())

    def _fetch(self, state: str, keys: Ragged) -> RocksDBCookie:
        order = byte_order(keys)
        sorted_keys, version = keys.take(order), self._versions[state]
        if self._statistics[state].total_entries <= SCANNED_PER_KEY * len(keys):
            find = find_and_keep if len(keys) >= new_tables.FEWEST_ENTRIES else find_by_scan
            return RocksDBCookie(order, sorted_keys, *find(self._stored(state), sorted_keys), version)
        key_list = sorted_keys.to_list()
        with rocksdb_errors(self.directory, f"reading {number_of(len(key_list), 'key')} of state {state!r}"):
            values: list[bytes | None] = self._families[state][key_list] if key_list else []
        present = np.flatnonzero(np.fromiter((v is not None for v in values), np.bool_, len(values)))
        old = StateRows(sorted_keys.take(present), from_list([v for v in values if v is not None]))
        return RocksDBCookie(order, sorted_keys, present, old)

    def _stored(self, state: str) -> StoredState:
        return StoredState(self._db, self._families[state], state, self._database, self._families_of_tables)

    def _new_tables(self, state: str) -> NewTables:
        number = list(self._families).index(state)
        return NewTables(state, self._root / f"tables-{number}", self.directory)

    def _put(self, state: str, keys: list[bytes], values: list[bytes]) -> None:
        for start in range(0, len(keys), _BATCH_ROWS):
            batch = self._batch(state)
            stop = start + _BATCH_ROWS
            deque(map(batch.__setitem__, keys[start:stop], values[start:stop]), maxlen=0)
            self._commit(state, batch)

    def _delete(self, state: str, keys: list[bytes]) -> None:
        for start in range(0, len(keys), _BATCH_ROWS):
            batch = self._batch(state)
            deque(map(batch.__delitem__, keys[start : start + _BATCH_ROWS]), maxlen=0)
            self._commit(state, batch)

    def _batch(self, state: str) -> WriteBatch:
        batch = WriteBatch(raw_mode=True)
        batch.set_default_column_family(self._db.get_column_family_handle(state))
        return batch

    def _commit(self, state: str, batch: WriteBatch) -> None:
        with rocksdb_errors(self.directory, f"writing state {state!r}"):
            self._db.write(batch, self._write_options)
        self._versions[state] += 1

    def _count(self, state: str, rows: StateRows, sign: int) -> None:
        if len(rows):
            self._statistics[state] = add_entries(self._statistics[state], rows, self._width, sign)


def _unless_gone(_: Callable[..., object], __: str, error: tuple[type[BaseException], BaseException, object]) -> None:
    """Raise the error again unless a file was not found: RocksDB may remove obsolete files even after it was closed."""
    if not isinstance(error[1], FileNotFoundError):
        raise error[1]


def database_directory(directory: str) -> Path:
    """Return the directory of the database within a backend's working directory."""
    return Path(directory) / "db"
