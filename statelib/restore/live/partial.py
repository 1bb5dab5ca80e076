"""Restoring a backend that leaves the entries where they are stored until they are asked for.

That is possible for a change log over a RocksDB database. The log is read whole; of the database, its list of tables,
the indexes of tables, and the blocks that may hold a wanted entry are read. A block is proved by its checksum.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from statelib.backends.keys.lookup import find_rows
from statelib.backends.rocksdb.reading.table_lookup import TableLookup
from statelib.backends.wrappers.partial import PartialKeyedStateBackend
from statelib.model.handles import FilePart, StreamStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema
from statelib.restore.changelog.state_changes import NO_CHANGES, StateChanges
from statelib.restore.check import expected_statistics
from statelib.restore.entries import rocksdb_header
from statelib.restore.live.logged import Logged, logged_database, read_plain_log
from statelib.restore.plan import RestoreSource
from statelib.restore.schemas.matching import check_same_schema
from statelib.restore.stored.tables import stored_tables
from statelib.serializers.entries.keys import prefixed_keys
from statelib.serializers.entries.rows import StateRows, join_rows
from statelib.storage.ports.views import StateReader
from statelib.wire.ragged import Ragged, as_arrow

_REQUESTS = 16
"""The number of requests that wait for the storage at the same time."""


def restore_partial(
    schema: KeyedStateSchema, key_group_range: KeyGroupRange, sources: Sequence[RestoreSource]
) -> PartialKeyedStateBackend | None:
    """Return a backend that reads the entries of a change log over RocksDB when they are asked for. Return None if the
    state is not stored so, or if only RocksDB can read one of its tables.

    Raise CorruptStateError, also while entries are read, and what the reader raises."""
    logged = logged_database(schema, key_group_range, sources)
    if logged is None or not logged.source.checksummed:
        return None
    counted = _CountedReader(logged.source.reader)
    logged = replace(logged, source=replace(logged.source, reader=counted))
    entries = _LoggedEntries.opened(schema, logged, counted)
    if entries is None:
        return None
    expected = expected_statistics(logged.source, key_group_range) or ()
    by_name = dict(zip((d.name for d in logged.source.schema.states), expected, strict=True))
    return PartialKeyedStateBackend(schema, key_group_range, entries, [by_name[d.name] for d in schema.states])


class _CountedReader(StateReader):
    """A reader that counts the bytes that it returns: ``size_bytes``."""

    def __init__(self, inner: StateReader) -> None:
        self._inner = inner
        self._lock = Lock()
        self.size_bytes = 0

    def read(self, handle: StreamStateHandle) -> memoryview:
        return self._counted(self._inner.read(handle))

    def read_range(self, handle: StreamStateHandle, start: int, stop: int) -> memoryview:
        return self._counted(self._inner.read_range(handle, start, stop))

    def check_crc(self, handle: StreamStateHandle, crc: int) -> None:
        self._inner.check_crc(handle, crc)

    def locate(self, handle: FilePart) -> object:
        return self._inner.locate(handle)

    def copy_to(self, handle: StreamStateHandle, local_path: str) -> None:
        self._inner.copy_to(handle, local_path)
        self._count(handle.size_bytes)

    def _counted(self, data: memoryview) -> memoryview:
        self._count(data.nbytes)
        return data

    def _count(self, size_bytes: int) -> None:
        with self._lock:
            self.size_bytes += size_bytes


class _LoggedEntries:
    """The :class:`~statelib.backends.wrappers.partial.StoredEntries` of tables and of the changes over them, by name of
    state."""

    def __init__(
        self,
        schema: KeyedStateSchema,
        lookups: Mapping[str, TableLookup],
        changes: Mapping[str, StateChanges],
        threads: ThreadPoolExecutor,
        reader: _CountedReader,
    ) -> None:
        self._schema = schema
        self._lookups = lookups
        self._changes = changes
        self._threads = threads
        self._reader = reader

    @classmethod
    def opened(cls, schema: KeyedStateSchema, logged: Logged, reader: _CountedReader) -> "_LoggedEntries | None":
        """Read the log and open the tables. Return None if only RocksDB can read one of them."""
        stored = logged.source.schema
        check_same_schema(stored, rocksdb_header(logged.files, reader, schema.max_parallelism).schema)
        changes = {stored.states[i].name: logs for i, logs in read_plain_log(logged).changes.items()}
        tables = stored_tables(logged.files, reader)
        threads = ThreadPoolExecutor(_REQUESTS, thread_name_prefix="statelib-lookup")
        lookups = {d.name: tables.lookup(d.name, threads.map) for d in schema.states}
        readable = {name: lookup for name, lookup in lookups.items() if lookup is not None}
        if len(readable) < len(lookups):
            threads.shutdown()
            return None
        return cls(schema, readable, changes, threads, reader)

    @property
    def size_bytes(self) -> int:
        return self._reader.size_bytes

    def find(self, state: str, keys: Ragged) -> StateRows:
        put = self._changes.get(state, NO_CHANGES).put
        rows = find_rows(put.keys, keys)
        below = self._lookups[state].find(keys.take(self._unchanged(state, keys)))
        return join_rows([put.take(rows[rows >= 0]), below])

    def find_prefixed(self, state: str, prefixes: Ragged) -> StateRows:
        prefix_of = partial(prefixed_keys, self._schema, self._schema.state(state))
        below = self._lookups[state].find_prefixed(prefixes, prefix_of)
        put = self._changes.get(state, NO_CHANGES).put
        is_wanted = pc.is_in(as_arrow(prefix_of(put.keys)), value_set=as_arrow(prefixes))
        wanted = np.flatnonzero(is_wanted.to_numpy(zero_copy_only=False))
        return join_rows([put.take(wanted), below.take(self._unchanged(state, below.keys))])

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    def _unchanged(self, state: str, keys: Ragged) -> npt.NDArray[np.int64]:
        """Return the numbers of the keys that the log neither puts nor removes."""
        changes = self._changes.get(state, NO_CHANGES)
        hidden = (find_rows(changes.put.keys, keys) >= 0) | (find_rows(changes.gone, keys) >= 0)
        return np.flatnonzero(~hidden)
