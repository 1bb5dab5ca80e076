"""RocksDB merges tables of a state before a native checkpoint, if it is worth while, and never during one."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from statelib.backends.rocksdb import compaction
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.backends.rocksdb.compaction import FEW, MANY
from statelib.backends.rocksdb.writing import new_tables
from statelib.errors import CorruptStateError
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import all_key_groups
from statelib.testing.keyed_samples import all_entries, put, sample_schema

SCHEMA = sample_schema()
UID = "5a7b0000-0000-0000-0000-000000000000"


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RocksDBKeyedStateBackend]:
    monkeypatch.setattr(new_tables, "FEWEST_ENTRIES", 1_000_000)
    backend = RocksDBKeyedStateBackend(SCHEMA, all_key_groups(SCHEMA.max_parallelism), str(tmp_path / "backend"), UID)
    yield backend
    backend.close()


def flush(backend: RocksDBKeyedStateBackend, number: int, keys: int = 3) -> None:
    """Flush one table with ``keys`` keys of the state ``means``."""
    put(backend, "means", [f"key-{number}-{key}" for key in range(keys)], [float(number)] * keys)
    backend._families["means"].flush()


def tables(backend: RocksDBKeyedStateBackend) -> tuple[int, int]:
    """Return the number of flushed tables of the state ``means``, and of all other tables of the database."""
    flushed = backend._families["means"].property_int_value("rocksdb.num-files-at-level0") or 0
    return flushed, sum(file["level"] > 0 for file in backend._db.live_files())


def freeze(backend: RocksDBKeyedStateBackend, number: int = 1) -> None:
    backend.checkpoint(CheckpointId(number)).release()


def test_nothing_is_compacted_between_checkpoints(backend: RocksDBKeyedStateBackend) -> None:
    for number in range(MANY + FEW):
        flush(backend, number)
    time.sleep(0.5)
    assert tables(backend) == (MANY + FEW, 0)


@pytest.mark.parametrize(("flushed", "left"), [(FEW - 1, (FEW - 1, 0)), (FEW, (0, 1)), (MANY, (0, 1))])
def test_a_few_tables_are_merged_if_the_rest_of_the_state_is_small(
    backend: RocksDBKeyedStateBackend, flushed: int, left: tuple[int, int]
) -> None:
    for number in range(flushed):
        flush(backend, number)
    before = all_entries(backend)
    freeze(backend)
    assert tables(backend) == left
    assert all_entries(backend) == before


def test_small_tables_beside_a_large_one_are_merged_only_if_there_are_many(backend: RocksDBKeyedStateBackend) -> None:
    for number in range(FEW):
        flush(backend, number, 5_000)
    freeze(backend)
    assert tables(backend) == (0, 1)
    for number in range(FEW, FEW + MANY):
        flush(backend, number)
        freeze(backend, number)
        assert tables(backend) == ((number - FEW + 1, 1) if number < FEW + MANY - 1 else (0, 1))
    flush(backend, 0)
    for number in range(FEW + MANY):
        flush(backend, number)
    time.sleep(0.2)
    assert tables(backend)[0] == FEW + MANY + 1, "what was begun is over: nothing is compacted meanwhile again"


def test_two_large_tables_are_merged_together_with_the_entries_in_memory(
    backend: RocksDBKeyedStateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "LARGE_BYTES", 100_000)
    for number, left in enumerate([(1, 0), (0, 1), (1, 1), (0, 1)]):
        put(backend, "means", [f"key-{number % 2}-{key}" for key in range(5_000)], [0.5] * 5_000)
        freeze(backend, number)
        assert tables(backend) == left, "half of the rest waits; as much as the rest does not"


def test_a_merge_is_logged_with_the_number_of_tables(
    backend: RocksDBKeyedStateBackend, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "statelib.backends.rocksdb.compaction")
    freeze(backend)
    assert caplog.records == []
    for number in range(FEW):
        flush(backend, number)
    freeze(backend, 2)
    first, last = (record.getMessage() for record in caplog.records)
    assert first == f"merging the {FEW} tables of state 'means'"
    assert last.endswith("{'means': 0}")


def test_a_damaged_table_ends_the_merge_with_an_error(backend: RocksDBKeyedStateBackend) -> None:
    for number in range(FEW):
        flush(backend, number, 2_000)
    victim = max(Path(backend.directory).glob("db/*.sst"))
    data = bytearray(victim.read_bytes())
    data[100:200] = bytes(100)
    victim.write_bytes(data)
    with pytest.raises(CorruptStateError, match=victim.name):
        freeze(backend)
    assert not list(Path(backend.directory).glob("chk-*"))
