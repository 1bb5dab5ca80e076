"""Row P12: bytes of an incremental RocksDB snapshot after updates of 1 % of the keys, all in a few key groups, against
those of a full one of the same state. In process; what both refer to is the same database."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa

from statelib.backends.keys.order import byte_order
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import BYTES, LONG
from statelib.serializers.entries.keys import encode_keys, key_groups
from statelib.serializers.entries.rows import StateRows
from statelib.serializers.entries.values import encode_values
from statelib.snapshots.strategies.rocksdb.full import RocksDBFullSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.incremental import RocksDBIncrementalSnapshotStrategy
from statelib.snapshots.strategy import SnapshotResult, take_snapshot
from statelib.storage.closeables import CloseableRegistry
from statelib.testing.checkpoint_chain import CheckpointChain
from tests.benchmarks.measure import Ratio

ROWS = ("P12",)
KEYS = 2_000_000
VALUE_BYTES = 50
STATE = StateDescriptor("blobs", StateKind.VALUE, BYTES)
SCHEMA = KeyedStateSchema(LONG, 128, (STATE,))
UID = "5a7b0000-0000-0000-0000-000000000000"


def run(_: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    keys = pa.array(np.arange(max(int(KEYS * scale), 10_000)))
    groups = key_groups(SCHEMA, keys)
    encoded = encode_keys(SCHEMA, STATE, keys, groups)
    order = byte_order(encoded)
    random = np.random.default_rng(0)
    backend = RocksDBKeyedStateBackend(SCHEMA, KeyGroupRange(0, 127), str(root / "working"), UID)
    backend.load(STATE.name, StateRows(encoded, encode_values(STATE, _blobs(random, len(keys)))).take(order))
    chain = CheckpointChain(root / "chain")
    full, incremental = RocksDBFullSnapshotStrategy(backend, UID), RocksDBIncrementalSnapshotStrategy(backend, UID)
    _take(incremental, chain, 1)
    incremental.notify_checkpoint_complete(CheckpointId(1))
    ours, theirs = [], []
    for number in range(runs):
        at = (number * 7919) % (len(keys) * 99 // 100)
        touched = encoded.take(order[at : at + len(keys) // 100])
        backend.write(backend.read(STATE.name, touched), STATE.name, _blobs(random, len(touched)))
        ours.append(_bytes(_take(incremental, chain, 2 + 2 * number)))
        theirs.append(_bytes(_take(full, chain, 3 + 2 * number)))
        incremental.notify_checkpoint_complete(CheckpointId(2 + 2 * number))
    for strategy in (full, incremental):
        strategy.close()
    count = backend.statistics()[0].total_entries
    backend.close()
    note = f"{len(keys):,} keys, neighbours are updated" if count == len(keys) else f"INVALID, {count} keys"
    what = "incremental snapshot after updates of 1 %"
    return [Ratio("P12", what, "full snapshot of the same", "≤ 1/20", "MB", tuple(ours), tuple(theirs), note=note)]


def _blobs(random: np.random.Generator, count: int) -> pa.Array:
    """Return values that do not compress."""
    data = pa.py_buffer(random.bytes(count * VALUE_BYTES))
    offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(VALUE_BYTES))
    return pa.Array.from_buffers(pa.binary(), count, [None, offsets, data])


def _take(strategy: object, chain: CheckpointChain, number: int) -> SnapshotResult:
    return take_snapshot(strategy, CheckpointId(number), chain.streams(number), CloseableRegistry())  # type: ignore[arg-type]


def _bytes(result: SnapshotResult) -> float:
    return sum(stream.size_bytes for stream in result.streams) / 1e6
