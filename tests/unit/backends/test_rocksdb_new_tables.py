"""Many entries are written to tables that RocksDB takes in whole: those of a state of which most changes, and those
that are loaded in key order into a new state."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from statelib.backends.keyed import StateScan
from statelib.backends.keys.order import byte_order
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend, database_directory
from statelib.backends.rocksdb.reading import entries as reading
from statelib.backends.rocksdb.reading.stored import scan_stored
from statelib.backends.rocksdb.writing import new_tables
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange, all_key_groups
from statelib.serializers.entries.rows import StateRows, statistics_of
from statelib.serializers.entries.values import encode_values
from statelib.testing.keyed_samples import entries, got, put, sample_schema, scanned, serialized
from statelib.wire.ragged import from_list

SCHEMA = sample_schema()
STATES = [d.name for d in SCHEMA.states]
ALL = all_key_groups(SCHEMA.max_parallelism)
UID = "5a7b0000-0000-0000-0000-000000000000"
SEEDS = range(25)


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RocksDBKeyedStateBackend]:
    monkeypatch.setattr(new_tables, "FEWEST_ENTRIES", 20)
    backend = RocksDBKeyedStateBackend(SCHEMA, ALL, str(tmp_path / "backend"), UID)
    yield backend
    backend.close()


def levels(backend: RocksDBKeyedStateBackend) -> list[int]:
    """Return the level of each table. Only a table that was taken in whole, or merged, is above level 0."""
    return sorted(file["level"] for file in backend._db.live_files())


def names(count: int, first: int = 0) -> list[str]:
    return [f"key-{number}" for number in range(first, first + count)]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_changes_leave_what_a_dict_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: RocksDBKeyedStateBackend, seed: int
) -> None:
    random = Random(seed)
    monkeypatch.setattr(new_tables, "TABLE_BYTES", random.choice([200, 64 << 20]))
    monkeypatch.setattr(reading, "KEPT_BYTES", random.choice([0, 1_000, 1 << 20]))
    expected: dict[str, float] = {}
    frozen: list[tuple[list[tuple[bytes, bytes]], StateScan]] = []
    for _ in range(12):
        if random.random() < 0.3:
            frozen.append((sorted(entries(backend, "means").items()), backend.scan("means")))
        keys = [f"key-{random.randrange(90)}" for _ in range(random.choice([1, 30, 70]))]
        changed = {key: random.choice([None, random.random(), random.random()]) for key in keys}
        changed = {key: value for key, value in changed.items() if value is not None or key in expected}
        put(backend, "means", list(changed), list(changed.values()))
        expected.update({key: value for key, value in changed.items() if value is not None})
        expected = {key: value for key, value in expected.items() if changed.get(key, value) is not None}
        if random.random() < 0.2:
            backend.checkpoint(CheckpointId(1)).release()
    assert got(backend, "means", list(expected)) == list(expected.values())
    assert len(entries(backend, "means")) == len(expected)
    actual = statistics_of(scanned(backend, "means"), 1, ALL)
    assert backend.statistics()[STATES.index("means")].digests.tolist() == actual.digests.tolist()
    for before, scan in frozen:
        rows = [pair for part in scan for pair in zip(part.keys.to_list(), part.values.to_list(), strict=True)]
        assert rows == before


def test_most_entries_are_written_at_once_and_few_are_not(backend: RocksDBKeyedStateBackend) -> None:
    put(backend, "means", names(100), [0.5] * 100)
    put(backend, "means", names(60, 50), [1.5] * 60)
    assert levels(backend) == [6]
    put(backend, "means", names(40), [2.5] * 40)
    put(backend, "means", names(19, 200), [2.5] * 19)
    backend.checkpoint(CheckpointId(1)).release()
    assert levels(backend) == [0, 6]
    assert got(backend, "means", ["key-39", "key-40", "key-50", "key-109", "key-218"]) == [2.5, 0.5, 1.5, 1.5, 2.5]


def test_entries_that_are_only_in_memory_are_part_of_what_is_written(backend: RocksDBKeyedStateBackend) -> None:
    put(backend, "means", names(19), [0.5] * 19)
    put(backend, "means", names(30, 10), [1.5] * 30)
    assert levels(backend) == [6]
    assert got(backend, "means", ["key-0", "key-9", "key-10", "key-39"]) == [0.5, 0.5, 1.5, 1.5]


def test_other_entries_that_were_written_since_the_read_are_kept(backend: RocksDBKeyedStateBackend) -> None:
    put(backend, "means", names(40), [0.5] * 40)
    read = backend.read("means", serialized(SCHEMA, "means", names(30)))
    put(backend, "means", names(10, 30), [1.5] * 10)
    backend.write(read, "means", pa.array([2.5] * 30))
    assert got(backend, "means", ["key-29", "key-30", "key-39"]) == [2.5, 1.5, 1.5]
    read = backend.read("means", serialized(SCHEMA, "means", names(25)))
    put(backend, "means", names(30, 25), [3.5] * 30)
    backend.write(read, "means", pa.array([4.5] * 25))
    assert got(backend, "means", ["key-0", "key-25", "key-54"]) == [4.5, 3.5, 3.5]


def test_a_state_may_lose_all_its_entries_at_once(backend: RocksDBKeyedStateBackend) -> None:
    put(backend, "means", names(50), [0.5] * 50)
    put(backend, "means", names(50), [None] * 50)
    assert levels(backend) == []
    assert entries(backend, "means") == {}
    put(backend, "means", ["key-1"], [1.5])
    assert got(backend, "means", ["key-0", "key-1"]) == [None, 1.5]


def test_a_backend_continues_with_the_tables_of_a_native_checkpoint(
    backend: RocksDBKeyedStateBackend, tmp_path: Path
) -> None:
    put(backend, "means", names(50), [0.5] * 50)
    checkpoint = backend.checkpoint(CheckpointId(1))
    put(backend, "means", names(40), [1.5] * 40)
    frozen = {
        key
        for state, rows in scan_stored(str(checkpoint.directory), STATES, KeyGroupRange(0, 127), 128)
        for key in rows.keys.to_list()
        if STATES[state] == "means"
    }
    assert frozen == set(serialized(SCHEMA, "means", names(50)).to_list())
    later = backend.checkpoint(CheckpointId(2))
    assert sum(name.endswith(".sst") for name, _ in later.files) == 1
    directory = tmp_path / "next"
    shutil.copytree(later.directory, database_directory(str(directory)))
    following = RocksDBKeyedStateBackend.open_existing(SCHEMA, ALL, str(directory), UID, backend.statistics())
    put(following, "means", names(30, 30), [2.5] * 30)
    assert got(following, "means", ["key-0", "key-29", "key-30", "key-49", "key-59"]) == [1.5, 1.5, 2.5, 2.5, 2.5]
    assert len(entries(following, "means")) == 60
    following.close()
    checkpoint.release()
    later.release()


def test_deletions_behind_the_tables_do_not_come_back(backend: RocksDBKeyedStateBackend) -> None:
    put(backend, "means", names(100), [0.5] * 100)
    put(backend, "means", names(10), [None] * 10)
    backend._families["means"].flush()
    put(backend, "means", names(60, 40), [1.5] * 60)
    assert levels(backend) == [6]
    assert got(backend, "means", ["key-0", "key-9", "key-10", "key-40"]) == [None, None, 0.5, 1.5]


def rows_of(names: list[str], value: float) -> StateRows:
    """Return entries of the state ``means`` in key order."""
    keys = serialized(SCHEMA, "means", names)
    values = encode_values(SCHEMA.state("means"), pa.array([value] * len(names)))
    return StateRows(keys, values).take(byte_order(keys))


def test_many_entries_loaded_in_key_order_are_taken_in_whole(
    backend: RocksDBKeyedStateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_tables, "TABLE_BYTES", 200)
    rows = rows_of(names(200), 0.5)
    for start, stop in ((0, 10), (10, 90), (90, 90), (90, 200)):
        backend.load("means", rows.slice(start, stop))
    assert len(entries(backend, "means")) == 200
    assert backend.statistics()[STATES.index("means")].total_entries == 200
    assert len(levels(backend)) > 1
    assert set(levels(backend)) == {6}


@pytest.mark.parametrize("count", [5, 60])
def test_entries_that_are_loaded_after_greater_ones_are_not_lost(backend: RocksDBKeyedStateBackend, count: int) -> None:
    rows = rows_of(names(2 * count), 0.5)
    backend.load("means", rows.slice(count, 2 * count))
    backend.load("means", rows.slice(0, count))
    assert entries(backend, "means") == dict(zip(rows.keys.to_list(), rows.values.to_list(), strict=True))
    assert (6 in levels(backend)) == (count == 60)


@pytest.mark.parametrize("count", [5, 60])
def test_loaded_entries_are_in_a_native_checkpoint(backend: RocksDBKeyedStateBackend, count: int) -> None:
    backend.load("means", rows_of(names(count), 0.5))
    checkpoint = backend.checkpoint(CheckpointId(1))
    stored = scan_stored(str(checkpoint.directory), STATES, KeyGroupRange(0, 127), 128)
    assert sum(len(rows) for _, rows in stored) == count
    checkpoint.release()


def test_a_backend_that_is_closed_while_entries_are_loaded_leaves_nothing(tmp_path: Path) -> None:
    backend = RocksDBKeyedStateBackend(SCHEMA, ALL, str(tmp_path / "backend"), UID)
    backend.load("means", rows_of(names(5_000), 0.5))
    backend.load("totals", StateRows(from_list([]), from_list([])))
    assert list((tmp_path / "backend").glob("tables-*/0.sst"))
    backend.close()
    assert list(tmp_path.iterdir()) == []
