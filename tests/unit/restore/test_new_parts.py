"""The key groups that a checkpoint may have changed, by its tables that its base does not have."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.model.handles import ByteStreamStateHandle, IncrementalRemoteKeyedStateHandle, RelativeFileStateHandle
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import LONG
from statelib.restore.plan import RestoreSource
from statelib.restore.stored.new_parts import merged_key_groups, written_key_groups
from statelib.serializers.entries.keys import encode_keys, key_groups
from statelib.storage.filesystem.reader import DirectoryReader

ALL = KeyGroupRange(0, 127)
SCHEMA = KeyedStateSchema(LONG, 128, tuple(StateDescriptor(name, StateKind.VALUE, LONG) for name in ("a", "b")))
KEYS = np.arange(100)
GROUPS = key_groups(SCHEMA, pa.array(KEYS))
FIRST = int(GROUPS[0])


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[RocksDBKeyedStateBackend]:
    opened = RocksDBKeyedStateBackend(SCHEMA, ALL, str(tmp_path / "db"), "uid")
    yield opened
    opened.close()


def put(backend: RocksDBKeyedStateBackend, state: str, keys: npt.NDArray[np.int64], value: int | None) -> None:
    """Write a value of some keys, or remove them."""
    rows = encode_keys(SCHEMA, SCHEMA.state(state), pa.array(keys), key_groups(SCHEMA, pa.array(keys)))
    removed = pa.array([value is None] * len(keys))
    backend.write(backend.read(state, rows), state, pa.array([value] * len(keys), pa.int64()), removed)


def snapshot(backend: RocksDBKeyedStateBackend, directory: Path) -> RestoreSource:
    """Take a native checkpoint in a directory."""
    directory.mkdir()
    checkpoint = backend.checkpoint(CheckpointId(1))
    files = tuple(
        (name, RelativeFileStateHandle(shutil.copy(path, directory / name).name, Path(path).stat().st_size))
        for name, path in checkpoint.files
    )
    checkpoint.release()
    meta = ByteStreamStateHandle("meta", b"")
    handle = IncrementalRemoteKeyedStateHandle(1, "uid", ALL, 0, meta, (), files, "handle")
    return RestoreSource(handle, DirectoryReader(str(directory), None), SCHEMA, backend.statistics())


def seen_and_changed(base: RestoreSource, now: RestoreSource) -> tuple[set[int], set[int], set[int]]:
    """Return the key groups with entries in new tables, those of merged handles, and those that have changed."""
    assert isinstance(base.handle, IncrementalRemoteKeyedStateHandle)
    assert base.statistics is not None
    assert now.statistics is not None
    earlier = {stream for _, stream in base.handle.private}
    written = written_key_groups(now, lambda stream: stream in earlier)
    pairs = zip(base.statistics, now.statistics, strict=True)
    changed = {int(group) for old, new in pairs for group in np.flatnonzero(old.digests != new.digests)}
    return written, merged_key_groups([base.handle], [now.handle]), changed


def test_a_new_table_shows_which_key_groups_have_changed(backend: RocksDBKeyedStateBackend, tmp_path: Path) -> None:
    put(backend, "a", KEYS, 1)
    base = snapshot(backend, tmp_path / "base")
    put(backend, "a", KEYS[GROUPS == FIRST], None)
    written, merged, changed = seen_and_changed(base, snapshot(backend, tmp_path / "now"))
    assert (written, merged) == (changed, set())


def test_the_last_entries_of_a_key_group_may_vanish_in_a_merge(
    backend: RocksDBKeyedStateBackend, tmp_path: Path
) -> None:
    put(backend, "b", KEYS, 1)
    for number in range(4):
        put(backend, "a", KEYS, number)
        base = snapshot(backend, tmp_path / f"base-{number}")
    put(backend, "a", KEYS[GROUPS == FIRST], None)
    put(backend, "a", KEYS[GROUPS != FIRST][:30], 9)
    written, merged, changed = seen_and_changed(base, snapshot(backend, tmp_path / "now"))
    assert FIRST in changed - written, "its deletions are gone with its entries"
    assert changed <= written | merged
