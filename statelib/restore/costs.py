"""The estimated costs of two ways to read a stored state: as a whole, and only the entries that events touch."""

import math
from dataclasses import dataclass

from statelib.backends.rocksdb.database import IMMUTABLE_SUFFIX
from statelib.model.handles import ChangelogStateBackendHandleImpl, IncrementalRemoteKeyedStateHandle, log_streams
from statelib.restore.stored.rocksdb_files import files_to_copy

REQUEST_BYTES = 160 * 1024
"""The bytes that cost as much to read one after the other as one more request, in processor time: the row P22 measures
both. Waiting for a bucket has about the same price, with 16 requests under way."""
_BLOCK_BYTES = 3 * 1024
"""The usual size of a stored block, which has 4 KiB before it is compressed."""
_INDEX_PART = 1 / 100
"""The usual size of the index of a table, as a part of the table."""


@dataclass(frozen=True)
class ReadingCosts:
    """Two costs in bytes: the bytes to read, plus :data:`REQUEST_BYTES` per request. ``whole``: of the whole state.
    ``touched``: of single entries."""

    whole: int
    touched: int

    @property
    def favours_touched(self) -> bool:
        """Whether single entries cost clearly less: less than half, because the number of blocks is an estimate."""
        return 2 * self.touched < self.whole


def reading_costs(handle: ChangelogStateBackendHandleImpl, keys: int, states: int) -> ReadingCosts:
    """Return the costs for a change log over one RocksDB database.

    ``keys``: the number of keys that the run touches. Each is looked up in all ``states``. They are taken to be spread
    evenly over the state."""
    (files,) = handle.materialized
    assert isinstance(files, IncrementalRemoteKeyedStateHandle), "only RocksDB's tables have an index"
    streams = files_to_copy(files, with_options=False)
    tables = [stream.size_bytes for name, stream in streams if name.endswith(IMMUTABLE_SUFFIX)]
    log = sum(stream.size_bytes for stream in log_streams(handle)) + len(handle.log) * REQUEST_BYTES
    rest = sum(stream.size_bytes for _, stream in streams) - sum(tables)
    blocks = sum(tables) / _BLOCK_BYTES
    read_blocks = blocks * -math.expm1(-keys * states / blocks) if blocks else 0
    indexes = sum(tables) * _INDEX_PART + 2 * len(tables) * REQUEST_BYTES
    return ReadingCosts(
        whole=log + rest + sum(tables) + len(streams) * REQUEST_BYTES,
        touched=log + rest + round(indexes + read_blocks * (_BLOCK_BYTES + REQUEST_BYTES)),
    )
