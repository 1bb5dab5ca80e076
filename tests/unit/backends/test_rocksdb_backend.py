"""Tests of what only the RocksDB backend has: its directory, its leases, its native checkpoints."""

import os
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend, database_directory
from statelib.backends.rocksdb.database import FILE_NAME
from statelib.backends.rocksdb.leases import Leases
from statelib.backends.rocksdb.reading.stored import key_group_bounds, scan_stored
from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange, all_key_groups
from statelib.model.state import EVENT_TIMERS, KeyedStateSchema, StateDescriptor, StateKind, timers_descriptor
from statelib.model.types import LONG
from statelib.serializers.columns.arrow import number_array
from statelib.serializers.entries.keys import encode_keys, key_groups, prefixed_keys
from statelib.serializers.entries.values import value_arrow_type
from statelib.serializers.scalars.windows import MOMENT
from statelib.testing.keyed_samples import entries, fill, put, sample_schema
from statelib.wire.ragged import from_list

SCHEMA = sample_schema()
STATES = [d.name for d in SCHEMA.states]
UID = "5a7b0000-0000-0000-0000-000000000000"
ONE = CheckpointId(1)


@pytest.fixture
def backend(tmp_path: Path) -> RocksDBKeyedStateBackend:
    backend = RocksDBKeyedStateBackend(SCHEMA, all_key_groups(SCHEMA.max_parallelism), str(tmp_path / "backend"), UID)
    fill(backend, 40)
    return backend


def test_a_directory_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    with pytest.raises(InvalidRequestError) as caught:
        RocksDBKeyedStateBackend(SCHEMA, all_key_groups(SCHEMA.max_parallelism), str(tmp_path), UID)
    assert caught.value.kind == "directory-not-empty"
    assert [p.name for p in tmp_path.iterdir()] == ["precious"]


def test_closing_succeeds_although_rocksdb_removes_files_meanwhile(
    backend: RocksDBKeyedStateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB may remove the inputs of a finished compaction after the database was closed. This happened once on a
    busy machine."""
    unlink = os.unlink

    def overtaken(name: str, *, dir_fd: int | None = None) -> None:
        unlink(name, dir_fd=dir_fd)
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", overtaken)
    backend.close()
    monkeypatch.undo()
    assert not Path(backend.directory).exists()


def test_a_failure_to_remove_the_directory_is_raised(
    backend: RocksDBKeyedStateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(name: str, *, dir_fd: int | None = None) -> None:
        raise PermissionError(name)

    monkeypatch.setattr(os, "unlink", refused)
    with pytest.raises(PermissionError):
        backend.close()


def test_a_native_checkpoint_contains_only_files_of_rocksdb(backend: RocksDBKeyedStateBackend) -> None:
    checkpoint = backend.checkpoint(ONE)
    names = [name for name, _ in checkpoint.files]
    assert all(FILE_NAME.fullmatch(name) for name in names)
    assert sum(name.endswith(".sst") for name in names) == 4
    assert sum(name.startswith("MANIFEST-") for name in names) == 1
    assert "CURRENT" in names
    checkpoint.release()
    backend.close()


def test_a_native_checkpoint_can_be_read_after_later_writes(backend: RocksDBKeyedStateBackend, tmp_path: Path) -> None:
    before = entries(backend, "means")
    checkpoint = backend.checkpoint(ONE)
    put(backend, "means", ["key-1", "new"], [None, 1.0])
    results = {}
    for state, rows in scan_stored(str(checkpoint.directory), STATES, KeyGroupRange(0, 127), 128):
        if STATES[state] == "means":
            results |= zip(rows.keys.to_list(), rows.values.to_list(), strict=True)
    assert results == before
    checkpoint.release()
    backend.close()
    assert list(tmp_path.iterdir()) == []


def test_a_scan_finds_what_lookups_find(backend: RocksDBKeyedStateBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    held = sorted(entries(backend, "means"))
    keys = [key + suffix for key in held[::3] for suffix in (b"", b"\0")][::-1]
    monkeypatch.setattr("statelib.backends.rocksdb.reading.scan.SCAN_ROWS", 7)
    results = {}
    for per_key in (0, 1000):
        monkeypatch.setattr("statelib.backends.rocksdb.backend.SCANNED_PER_KEY", per_key)
        values = backend.read("means", from_list(keys))
        results[per_key] = (values.present.to_pylist(), values.values.to_pylist())
    assert results[0] == results[1000]
    assert results[0][0] == [key in held for key in keys]
    backend.close()


def test_the_directory_stays_until_the_last_checkpoint_is_released(
    backend: RocksDBKeyedStateBackend, tmp_path: Path
) -> None:
    first, second = backend.checkpoint(ONE), backend.checkpoint(CheckpointId(2))
    backend.close()
    first.release()
    first.release()
    assert not first.directory.exists()
    assert second.directory.exists()
    second.release()
    assert list(tmp_path.iterdir()) == []


def test_files_of_an_earlier_try_are_replaced(backend: RocksDBKeyedStateBackend) -> None:
    left = Path(backend.directory) / "chk-1"
    left.mkdir()
    (left / "000999.sst").write_bytes(b"junk")
    checkpoint = backend.checkpoint(ONE)
    assert "000999.sst" not in [name for name, _ in checkpoint.files]
    checkpoint.release()
    backend.close()


def test_a_failed_checkpoint_releases_the_database(backend: RocksDBKeyedStateBackend, tmp_path: Path) -> None:
    (Path(backend.directory) / "chk-1").write_text("a file where the directory should be")
    with pytest.raises(CorruptStateError):
        backend.checkpoint(ONE)
    backend.close()
    assert list(tmp_path.iterdir()) == []


def test_a_closed_backend_takes_no_checkpoint(backend: RocksDBKeyedStateBackend) -> None:
    backend.close()
    with pytest.raises(InvalidRequestError) as caught:
        backend.checkpoint(ONE)
    assert caught.value.kind == "backend-closed"


def test_a_scan_of_a_damaged_block_raises_an_error_instead_of_ending_early(backend: RocksDBKeyedStateBackend) -> None:
    checkpoint = backend.checkpoint(ONE)
    damaged = next(Path(path) for name, path in checkpoint.files if name.endswith(".sst"))
    data = bytearray(damaged.read_bytes())
    data[20] ^= 1
    damaged.unlink()  # The file is a hard link, so the live database keeps the good file.
    damaged.write_bytes(data)
    with pytest.raises(CorruptStateError, match="chk-1") as caught:
        for _ in scan_stored(str(checkpoint.directory), STATES, None, 128):
            pass
    assert caught.value.kind == "corrupt-rocksdb"
    checkpoint.release()
    backend.close()


@pytest.mark.parametrize("find", ["counting", "entries of keys", "due timers"])
def test_a_seek_into_a_damaged_block_raises_an_error_although_others_follow(tmp_path: Path, find: str) -> None:
    """RocksDB forgets the error of an iterator at its next seek."""
    states = (StateDescriptor("s", StateKind.MAP, LONG, LONG), timers_descriptor(EVENT_TIMERS, "t"))
    schema = KeyedStateSchema(LONG, 128, states)
    backend = RocksDBKeyedStateBackend(schema, all_key_groups(128), str(tmp_path / "backend"), UID)
    numbers = pa.array(range(30_000), pa.int64())
    groups, moments = key_groups(schema, numbers), number_array(np.arange(30_000) % 97, MOMENT)
    rows = {
        "s": encode_keys(schema, states[0], numbers, groups, numbers),
        states[1].name: encode_keys(schema, states[1], numbers, groups, timestamps=moments),
    }
    for name, keys in rows.items():
        backend.write(backend.read(name, keys), name, pa.nulls(30_000, value_arrow_type(schema.state(name))))
    backend.checkpoint(ONE).release()
    prefixed = prefixed_keys(schema, states[0], rows["s"]).take(np.arange(0, 30_000, 100))

    def look(backend: RocksDBKeyedStateBackend) -> object:
        if find == "counting":
            return backend.count_entries("s", prefixed, np.full(len(prefixed), 2)).tolist()
        if find == "entries of keys":
            return len(backend.keys_with("s", prefixed, partial(prefixed_keys, schema, states[0])))
        return len(backend.timers_until(states[1].name, 3))

    assert look(backend) == {"counting": [1] * 300, "entries of keys": 300, "due timers": 310 * 4}[find]
    for table in (tmp_path / "backend").rglob("*.sst"):
        damaged = table.stat().st_size // 3
        with table.open("r+b") as file:
            file.seek(damaged)
            file.write(b"damaged" * 30)
    copy = shutil.copytree(tmp_path / "backend", tmp_path / "copy")
    backend.close()
    other = RocksDBKeyedStateBackend.open_existing(schema, all_key_groups(128), str(copy), UID, backend.statistics())
    with pytest.raises(CorruptStateError) as caught:
        look(other)
    assert caught.value.kind == "corrupt-rocksdb"
    other.close()


def test_a_directory_that_is_no_database_is_removed_when_opening_fails(tmp_path: Path) -> None:
    directory = tmp_path / "backend"
    database_directory(str(directory)).mkdir(parents=True)
    (database_directory(str(directory)) / "CURRENT").write_text("MANIFEST-000001\n")
    with pytest.raises(CorruptStateError) as caught:
        RocksDBKeyedStateBackend.open_existing(SCHEMA, all_key_groups(SCHEMA.max_parallelism), str(directory), UID, ())
    assert caught.value.kind == "corrupt-rocksdb"
    assert not directory.exists()


@pytest.mark.parametrize(
    ("key_groups", "max_parallelism", "bounds"),
    [
        (KeyGroupRange(0, 127), 128, (b"\x00", b"\x80")),
        (KeyGroupRange(5, 5), 128, (b"\x05", b"\x06")),
        (KeyGroupRange(255, 255), 300, (b"\x00\xff", b"\x01\x00")),
        (KeyGroupRange(0, 32767), 32768, (b"\x00\x00", b"\x80\x00")),
        (KeyGroupRange(7, 6), 128, (b"\x07", b"\x07")),
    ],
)
def test_the_bounds_of_key_groups_are_the_prefixes_of_their_keys(
    key_groups: KeyGroupRange, max_parallelism: int, bounds: tuple[bytes, bytes]
) -> None:
    assert key_group_bounds(key_groups, max_parallelism) == bounds


def test_the_resource_is_disposed_once_after_the_last_lease_is_released() -> None:
    disposed: list[str] = []
    leases = Leases(lambda: disposed.append("now"))
    leases.take()
    leases.take()
    leases.close()
    leases.close()
    leases.give_back()
    assert disposed == []
    leases.give_back()
    assert disposed == ["now"]
    with pytest.raises(InvalidRequestError):
        leases.take()
