"""The memory that a snapshot and a restore use beyond that of the backend. Each is measured in a process of its own.

`python -m tests.benchmarks.memory --mebibytes 2048 --directory DIR`: byte strings of 1 to 4 KiB, 90 % of them in one
key group.
Peaks are the kernel's (VmHWM, reset before what is measured), so nothing between two samples is missed. What
RocksDB takes itself is counted, memtables (two of 64 MiB per state) and block cache; of the heap, what its columns take
is not (`own`).
"""

import argparse
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import BYTES, LONG
from statelib.restore.live.keyed import restore_heap, restore_rocksdb
from statelib.restore.plan import RestoreSource
from statelib.serializers.entries.keys import encode_keys, key_groups
from statelib.serializers.entries.rows import StateRows
from statelib.serializers.entries.values import encode_values
from statelib.snapshots.strategies.canonical import CanonicalSnapshotStrategy
from statelib.snapshots.strategies.heap_native import HeapNativeSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.full import RocksDBFullSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.incremental import RocksDBIncrementalSnapshotStrategy
from statelib.snapshots.strategy import SnapshotStrategy, take_snapshot
from statelib.storage.closeables import CloseableRegistry
from statelib.testing.checkpoint_chain import CheckpointChain

MIB = 1 << 20
SCHEMA = KeyedStateSchema(LONG, 16, (StateDescriptor("blobs", StateKind.VALUE, BYTES),))
RANGE = KeyGroupRange(0, 15)
SKEWED_GROUP = 5
UID = "00000000-0000-0000-0000-00000000babe"
_BATCH = 1000

STEPS = (
    "build",
    "snapshot rocksdb-full from rocksdb-first",
    "snapshot rocksdb-incremental from rocksdb-full",
    "snapshot rocksdb-canonical from rocksdb-incremental",
    "restore rocksdb from rocksdb-canonical",
    "restore rocksdb from rocksdb-full",
    "restore half rocksdb from rocksdb-full",
    "snapshot heap-canonical from rocksdb-canonical",
    "snapshot heap-native from heap-canonical",
    "restore heap from heap-native",
    "restore heap from rocksdb-full",
)


@dataclass(frozen=True)
class Measured:
    """A measurement in mebibytes. ``state``: keys and values; ``peak``: the growth of the process; ``own``: the
    backend's part of it."""

    step: str
    state: float
    peak: float
    own: float

    @property
    def beyond(self) -> float:
        return self.peak - self.own


def measure(directory: Path, mebibytes: int, steps: tuple[str, ...] = STEPS) -> Iterator[Measured]:
    """Measure each step in a new process, one after the other; ``directory`` is new."""
    directory.mkdir(parents=True)
    for step in steps:
        command = [sys.executable, "-m", "tests.benchmarks.memory", "--directory", str(directory), "--step", step]
        command += ["--mebibytes", str(mebibytes)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        if done.stdout:
            yield Measured(**json.loads(done.stdout))


def _step(directory: Path, step: str, mebibytes: int) -> Measured | None:
    match step.split():
        case ["build"]:
            _build(directory, mebibytes)
            return None
        case ["snapshot", form, "from", before]:
            return _snapshot(directory, step, form, _load(directory, before))
        case ["restore", backend, "from", before]:
            return _restore(directory, step, backend, _load(directory, before), RANGE)
        case ["restore", "half", backend, "from", before]:
            half = KeyGroupRange(RANGE.start, SKEWED_GROUP)
            return _restore(directory, step, backend, _load(directory, before), half)
    raise ValueError(step)


def _build(directory: Path, mebibytes: int) -> None:
    backend = RocksDBKeyedStateBackend(SCHEMA, RANGE, str(directory / "live"), UID)
    for rows in _entries(mebibytes * MIB):
        backend.load("blobs", rows)
    _take(directory, "rocksdb-first", RocksDBFullSnapshotStrategy(backend, UID), backend)
    backend.close()


def _entries(size_bytes: int) -> Iterator[StateRows]:
    """Return entries of which 90 % are in one key group; half of each value is noise, half can be compressed."""
    random = np.random.default_rng(20260101)
    first = 0
    while size_bytes > 0:
        keys = np.arange(first, first + 16 * _BATCH)
        first += len(keys)
        groups = key_groups(SCHEMA, pa.array(keys))
        keys = np.concatenate([keys[groups == SKEWED_GROUP], keys[groups != SKEWED_GROUP][: _BATCH // 9]])
        lengths = random.integers(512, 2048, len(keys)).tolist()
        values = pa.array([random.bytes(length) + bytes(length) for length in lengths], pa.binary())
        column = pa.array(keys)
        rows = StateRows(
            encode_keys(SCHEMA, SCHEMA.states[0], column, key_groups(SCHEMA, column)),
            encode_values(SCHEMA.states[0], values),
        )
        yield rows
        size_bytes -= len(rows.keys.data) + len(rows.values.data)


def _take(directory: Path, name: str, strategy: SnapshotStrategy[Any], backend: KeyedStateBackend) -> None:
    """Take a checkpoint in a storage of its own, and record how it is read."""
    chain = CheckpointChain(directory / name)
    result = take_snapshot(strategy, CheckpointId(1), chain.streams(1), CloseableRegistry())
    strategy.close()
    (directory / f"{name}.source").write_bytes(pickle.dumps(chain.source(1, result, backend)))


def _strategy(form: str, backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
    if form == "heap-native" and isinstance(backend, HeapKeyedStateBackend):
        return HeapNativeSnapshotStrategy(backend, UID)
    if form == "rocksdb-full" and isinstance(backend, RocksDBKeyedStateBackend):
        return RocksDBFullSnapshotStrategy(backend, UID)
    if form == "rocksdb-incremental" and isinstance(backend, RocksDBKeyedStateBackend):
        return RocksDBIncrementalSnapshotStrategy(backend, UID)
    return CanonicalSnapshotStrategy(backend)


def _load(directory: Path, name: str) -> RestoreSource:
    source = pickle.loads((directory / f"{name}.source").read_bytes())
    assert isinstance(source, RestoreSource)
    return source


def _snapshot(directory: Path, step: str, form: str, source: RestoreSource) -> Measured:
    backend = _restored(directory, form.partition("-")[0], source, RANGE)
    size = _size(backend)  # This sorts the keys of the heap, once for all scans.
    peak = _Peak()
    _take(directory, form, _strategy(form, backend), backend)
    grown = peak.mebibytes()
    backend.close()
    return Measured(step, size / MIB, grown, 0)


def _restore(directory: Path, step: str, kind: str, source: RestoreSource, key_groups: KeyGroupRange) -> Measured:
    peak = _Peak()
    backend = _restored(directory, kind, source, key_groups)
    own = backend.size_bytes() if isinstance(backend, HeapKeyedStateBackend) else 0
    grown = peak.mebibytes()
    size = _size(backend)
    backend.close()
    return Measured(step, size / MIB, grown, own / MIB)


def _restored(directory: Path, kind: str, source: RestoreSource, key_groups: KeyGroupRange) -> KeyedStateBackend:
    if kind == "heap":
        return restore_heap(SCHEMA, key_groups, [source], str(directory / "scratch"))
    return restore_rocksdb(SCHEMA, key_groups, [source], str(directory / "live"), UID)


def _size(backend: KeyedStateBackend) -> int:
    return sum(len(rows.keys.data) + len(rows.values.data) for rows in backend.scan("blobs"))


class _Peak:
    """The growth of this process's resident memory since this object was made."""

    def __init__(self) -> None:
        pa.default_memory_pool().release_unused()
        Path("/proc/self/clear_refs").write_text("5")
        self._before = _status("VmRSS")

    def mebibytes(self) -> float:
        return (_status("VmHWM") - self._before) / 1024


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=2048)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--step", help="only this step, in this process")
    asked = parser.parse_args()
    if asked.step:
        measured = _step(asked.directory, asked.step, asked.mebibytes)
        sys.stdout.write(json.dumps(asdict(measured)) if measured else "")
        return
    for row in measure(asked.directory, asked.mebibytes):
        figures = f"state {row.state:6.0f}  peak {row.peak:6.0f}  own {row.own:6.0f}  beyond {row.beyond:6.0f}"
        sys.stdout.write(f"{row.step:52} {figures}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
