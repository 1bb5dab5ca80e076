"""Row P11: a full native snapshot of RocksDB against ``cp -r`` of the same files and an fsync of each.

Wall seconds: both sides move the same bytes and wait for the same disk. A turn of ours is the whole
strategy, freezing the database, uploading its files, checksums and fsync included; ``cp`` copies the files
of one such frozen database. Both write to the same file system, to new files, removed after the turn.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa

from statelib.backends.keys.order import byte_order
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.model.ids import AttemptId, CheckpointId, PipelineName
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import BYTES, LONG
from statelib.serializers.entries.keys import encode_keys, key_groups
from statelib.serializers.entries.rows import StateRows
from statelib.serializers.entries.values import encode_values
from statelib.snapshots.strategies.rocksdb.full import RocksDBFullSnapshotStrategy
from statelib.snapshots.strategy import take_snapshot
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.filesystem.storage import FileSystemCheckpointStorage
from tests.benchmarks.measure import Contender, Ratio, take_turns

ROWS = ("P11",)
BYTES_OF_STATE = 300_000_000
VALUE_BYTES = 200
WARMUPS = 1
CHUNK = 100_000
STATE = StateDescriptor("blobs", StateKind.VALUE, BYTES)
SCHEMA = KeyedStateSchema(LONG, 128, (STATE,))
ATTEMPT = AttemptId("0" * 32)


def run(_: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    """Return the only ratio of this file."""
    backend = RocksDBKeyedStateBackend(SCHEMA, KeyGroupRange(0, 127), str(root / "working"), "bench")
    _fill(backend, int(BYTES_OF_STATE * scale) // VALUE_BYTES)
    frozen = backend.checkpoint(CheckpointId(10**9))
    files = [Path(path) for _, path in frozen.files]
    size = sum(file.stat().st_size for file in files)
    copy = root / "copy"
    snapshots = Snapshots(backend, root)
    contenders = {
        "snapshot": Contender(snapshots.take, after=snapshots.remove),
        "cp": Contender(lambda _: _copy(files[0].parent, copy), after=lambda _: shutil.rmtree(copy)),
    }
    figures = take_turns(contenders, runs, WARMUPS, "wall s")
    frozen.release()
    backend.close()
    note = f"{size / 1e6:.0f} MB in {len(files)} files"
    ours, theirs = figures["snapshot"], figures["cp"]
    return [Ratio("P11", "RocksDB full snapshot", "cp -r and fsync", "≤ 1.1", "wall s", ours, theirs, note=note)]


class Snapshots:
    def __init__(self, backend: RocksDBKeyedStateBackend, root: Path) -> None:
        self._backend = backend
        self._storage = FileSystemCheckpointStorage(str(root / "state"), PipelineName("bench"))
        self._directory = root / "state" / "bench"

    def take(self, number: int) -> None:
        """Take a snapshot, all but its ``_metadata``."""
        checkpoint = CheckpointId(number + 1)
        reference = self._storage.initialize_location(checkpoint)
        streams = self._storage.resolve_checkpoint_storage_location(checkpoint, reference, ATTEMPT, 0)
        strategy = RocksDBFullSnapshotStrategy(self._backend, "bench")
        take_snapshot(strategy, checkpoint, streams, CloseableRegistry())
        strategy.close()

    def remove(self, _: int) -> None:
        shutil.rmtree(self._directory)


def _fill(backend: RocksDBKeyedStateBackend, entries: int) -> None:
    """Write values that do not compress, so that files are as large as their content."""
    random = np.random.default_rng(0)
    for start in range(0, entries, CHUNK):
        keys = pa.array(np.arange(start, min(start + CHUNK, entries)))
        encoded = encode_keys(SCHEMA, STATE, keys, key_groups(SCHEMA, keys))
        blobs = [random.bytes(VALUE_BYTES) for _ in range(len(keys))]
        rows = StateRows(encoded, encode_values(STATE, pa.array(blobs, pa.binary())))
        backend.load(STATE.name, rows.take(byte_order(encoded)))


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-r", str(source), str(target)], check=True)
    for file in [*target.iterdir(), target]:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
