"""A restore or snapshot that is impossible ends in an error with its own name, and leaves nothing: no file, no
directory, no open file. Source: requirements R26 to R29, R49."""

import gc
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.errors import CorruptStateError, InvalidRequestError, NotFoundError, StatelibError, UnsupportedError
from statelib.flows.checkpoint.steps import begin
from statelib.model.handles import (
    IncrementalRemoteKeyedStateHandle,
    InMemoryChangelogStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    RelativeFileStateHandle,
)
from statelib.model.ids import CheckpointId
from statelib.restore.entries import iter_entries
from statelib.restore.live.keyed import restore_heap, restore_rocksdb
from statelib.restore.plan import RestoreSource
from statelib.snapshots.strategies.rocksdb.full import RocksDBFullSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.incremental import RocksDBIncrementalSnapshotStrategy
from statelib.testing.keyed_samples import fill, sample_schema
from statelib.testing.stored_snapshots import KEY_GROUPS, UID, Stored, stored_canonical, stored_heap, stored_rocksdb
from tests.support.tours import Tours, Way, events
from tests.support.worlds import day, publish_here

FORMS: dict[str, Callable[[Path], Stored]] = {
    "canonical": lambda root: stored_canonical(root / "storage", compressed=False),
    "canonical, compressed": lambda root: stored_canonical(root / "storage", compressed=True),
    "heap": lambda root: stored_heap(root / "storage", compressed=False),
    "heap, compressed": lambda root: stored_heap(root / "storage", compressed=True),
    "rocksdb": lambda root: stored_rocksdb(root / "storage", root / "backend"),
}

Damage = Callable[[Stored], KeyedStateHandle]
"""A function that damages the stored files, or returns another handle of them."""


@dataclass(frozen=True)
class Case:
    """A stored snapshot, a change to it, the backend that then restores it, and the expected error. ``says``: a part
    of the message."""

    what: str
    form: str
    damage: Damage
    readers: str
    error: type[StatelibError]
    kind: str
    says: str = "."


def untouched(stored: Stored) -> KeyedStateHandle:
    return stored.source.handle


def as_heap(stored: Stored) -> KeyedStateHandle:
    """Change the handle to that of a heap stream."""
    handle = stored.source.handle
    assert isinstance(handle, KeyGroupsSavepointStateHandle)
    return KeyGroupsStateHandle(handle.key_group_range, handle.offsets, handle.stream)


def as_canonical(stored: Stored) -> KeyedStateHandle:
    handle = stored.source.handle
    assert isinstance(handle, KeyGroupsStateHandle)
    return KeyGroupsSavepointStateHandle(handle.key_group_range, handle.offsets, handle.stream)


def as_rocksdb(stored: Stored) -> KeyedStateHandle:
    """Use a stream as the meta stream of a database without files: its header is valid."""
    handle = stored.source.handle
    assert isinstance(handle, (KeyGroupsStateHandle, KeyGroupsSavepointStateHandle))
    return IncrementalRemoteKeyedStateHandle(1, UID, handle.key_group_range, 0, handle.stream, (), (), "id")


def meta_as_canonical(stored: Stored) -> KeyedStateHandle:
    handle = stored.source.handle
    assert isinstance(handle, IncrementalRemoteKeyedStateHandle)
    offsets = tuple(range(len(handle.key_group_range)))
    return KeyGroupsSavepointStateHandle(handle.key_group_range, offsets, handle.meta)


def meta_as_heap(stored: Stored) -> KeyedStateHandle:
    handle = meta_as_canonical(stored)
    assert isinstance(handle, KeyGroupsSavepointStateHandle)
    return KeyGroupsStateHandle(handle.key_group_range, handle.offsets, handle.stream)


def other_words(old: bytes, new: bytes) -> Damage:
    """Change the header of a stream."""

    def damage(stored: Stored) -> KeyedStateHandle:
        path = stored.path("")
        data = path.read_bytes()
        assert old in data
        assert len(old) == len(new)
        path.write_bytes(data.replace(old, new))
        return stored.source.handle

    return damage


def sst_of(stored: Stored) -> tuple[Path, IncrementalRemoteKeyedStateHandle, str]:
    handle = stored.source.handle
    assert isinstance(handle, IncrementalRemoteKeyedStateHandle)
    name, stream = next((n, s) for n, s in handle.private if n.endswith(".sst"))
    assert isinstance(stream, RelativeFileStateHandle)
    return stored.directory / stream.path, handle, name


def truncated_sst(stored: Stored) -> KeyedStateHandle:
    path, handle, _ = sst_of(stored)
    os.truncate(path, path.stat().st_size - 10)
    return handle


def truncated_sst_of_that_size(stored: Stored) -> KeyedStateHandle:
    """Truncate an SST file, and record the new size in the metadata."""
    path, handle, wanted = sst_of(stored)
    size = path.stat().st_size - 10
    os.truncate(path, size)
    files = [(n, replace(s, size_bytes=size) if n == wanted else s) for n, s in handle.private]
    return replace(handle, private=tuple(files))


def gone_sst(stored: Stored) -> KeyedStateHandle:
    path, handle, _ = sst_of(stored)
    path.unlink()
    return handle


def unknown_handle(stored: Stored) -> KeyedStateHandle:
    """Use a part of a log outside of a log, which Flink never does."""
    return InMemoryChangelogStateHandle(stored.source.handle.key_group_range, 0, 0, ())


ALL = "heap rocksdb reading"
UNKNOWN_TYPE = other_words(b"StringSerializer$StringSerializerSnapshot", b"StrangSerializer$StrangSerializerSnapshot")
UNKNOWN_STATE = other_words(b"REDUCING", b"REDUCEST")
CASES = [
    Case(
        "canonical bytes under a heap handle",
        "canonical",
        as_heap,
        "heap reading",
        CorruptStateError,
        "unexpected-key-group",
    ),
    Case(
        "canonical under heap",
        "canonical, compressed",
        as_heap,
        "heap reading",
        CorruptStateError,
        "unexpected-key-group",
    ),
    Case("heap bytes under a canonical handle", "heap", as_canonical, ALL, CorruptStateError, "truncated-group"),
    Case("heap under canonical", "heap, compressed", as_canonical, ALL, CorruptStateError, "bad-compression"),
    Case("canonical under a RocksDB handle", "canonical", as_rocksdb, ALL, CorruptStateError, "corrupt-rocksdb"),
    Case(
        "RocksDB's meta stream under a canonical handle",
        "rocksdb",
        meta_as_canonical,
        ALL,
        CorruptStateError,
        "truncated",
    ),
    Case("RocksDB's meta stream under a heap handle", "rocksdb", meta_as_heap, "heap", CorruptStateError, "truncated"),
    Case("a heap handle into RocksDB", "heap", untouched, "rocksdb", InvalidRequestError, "backend-changed"),
    Case("RocksDB into heap", "rocksdb", untouched, "checkpoint", InvalidRequestError, "no-scratch-directory"),
    Case("an unsupported type", "canonical", UNKNOWN_TYPE, ALL, UnsupportedError, "unknown-serializer"),
    Case("an unsupported type", "heap", UNKNOWN_TYPE, "heap reading", UnsupportedError, "unknown-serializer"),
    Case("an unsupported state", "canonical", UNKNOWN_STATE, ALL, UnsupportedError, "unknown-state-kind", "means"),
    Case("an unsupported state", "heap", UNKNOWN_STATE, "heap", UnsupportedError, "unknown-state-kind", "means"),
    Case("an unsupported handle", "canonical", unknown_handle, "reading", UnsupportedError, "unsupported-handle"),
    Case("a truncated SST file", "rocksdb", truncated_sst, ALL, CorruptStateError, "size-mismatch"),
    Case("one of that size", "rocksdb", truncated_sst_of_that_size, ALL, CorruptStateError, "corrupt-rocksdb"),
    Case("a missing SST file", "rocksdb", gone_sst, ALL, NotFoundError, "missing-file"),
]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a directory in which temporary directories are also created."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    gc.freeze()  # This makes the search for leftovers quick.
    yield tmp_path
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.what} ({case.form})")
def test_an_impossible_restore_has_its_error_and_leaves_nothing(world: Path, case: Case) -> None:
    stored = FORMS[case.form](world)
    handle = case.damage(stored)
    for checked in (False, True):
        statistics = stored.source.statistics if checked else None
        source = replace(stored.source, handle=handle, statistics=statistics)
        for name in case.readers.split():
            before = left_behind(world)
            with pytest.raises(case.error, match=case.says) as caught:
                READERS[name](source, world)
            assert caught.value.kind == case.kind
            assert left_behind(world) == before, name


READERS: dict[str, Callable[[RestoreSource, Path], object]] = {
    "heap": lambda s, root: restore_heap(s.schema, KEY_GROUPS, [s], str(root / "scratch")),
    "rocksdb": lambda s, root: restore_rocksdb(s.schema, KEY_GROUPS, [s], str(root / "restored"), UID),
    "reading": lambda s, root: list(iter_entries(s, None, str(root / "scratch"))),
    "checkpoint": lambda s, root: restore_heap(s.schema, KEY_GROUPS, [s]),
}


def open_file(descriptor: str) -> str:
    """Return the path of an open file; '' if another thread of the process has closed it since."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except FileNotFoundError:
        return ""


def left_behind(root: Path) -> tuple[list[str], list[str]]:
    """Return every path below the root, and every open file there."""
    gc.collect()
    links = map(open_file, os.listdir("/proc/self/fd"))
    return sorted(map(str, root.rglob("*"))), sorted(link for link in links if link.startswith(str(root)))


@pytest.mark.parametrize("strategy", [RocksDBFullSnapshotStrategy, RocksDBIncrementalSnapshotStrategy])
def test_a_failed_native_checkpoint_leaves_nothing(
    world: Path, strategy: type[RocksDBFullSnapshotStrategy | RocksDBIncrementalSnapshotStrategy]
) -> None:
    """One of the database's own files is missing, so that it cannot be linked."""
    backend = RocksDBKeyedStateBackend(sample_schema(), KEY_GROUPS, str(world / "backend"), UID)
    fill(backend, 60)
    taking = strategy(backend, UID)
    taking.prepare(CheckpointId(1)).release()
    before = left_behind(world)
    victim = min((world / "backend").rglob("*.sst"))
    hidden = victim.rename(world / "hidden")
    with pytest.raises(CorruptStateError, match="taking a native checkpoint") as caught:
        taking.prepare(CheckpointId(2))
    assert caught.value.kind == "corrupt-rocksdb"
    hidden.rename(victim)
    assert left_behind(world) == before
    taking.close()
    backend.close()
    assert left_behind(world) == ([str(world / "tmp")], [])


@pytest.mark.parametrize(("backend", "strategy"), [("rocksdb", "incremental"), ("heap", "full"), ("heap", "changelog")])
def test_a_run_with_a_damaged_base_leaves_nothing(tmp_path: Path, world: Path, backend: str, strategy: str) -> None:
    """A subtask that fails leaves no file, no working directory and no local copy."""
    tours = Tours(tmp_path / "tours")
    tours.use(Way(backend, strategy, local_recovery=False))
    tours.run(1)
    pipeline = tours.deployment.pipeline("tours")
    begun = begin(tours.deployment, pipeline, day(2), "test").checkpoint_id
    written = [path for path in Path(tours.deployment.storage_root).rglob("*-*-*") if path.is_file()]
    shared = [path for path in written if path.parent.name == "shared"]  # For RocksDB, these are its SST files.
    victim = max(shared or written, key=lambda path: path.stat().st_size)
    os.truncate(victim, victim.stat().st_size - 10)
    before = left_behind(tmp_path)
    with pytest.raises(CorruptStateError, match=victim.name) as caught:
        publish_here(tours.deployment, pipeline, begun, events(2))
    assert caught.value.kind == "size-mismatch"
    assert left_behind(tmp_path) == before
