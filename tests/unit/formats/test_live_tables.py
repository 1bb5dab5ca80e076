"""The MANIFEST of RocksDB names the tables that RocksDB itself lists, and damage is detected."""

from pathlib import Path

import pytest

from statelib.backends.rocksdb.database import open_writable, without_wal
from statelib.errors import CorruptStateError
from statelib.formats.sst.live_tables import LiveTable, live_tables


def written(directory: Path, rounds: int) -> list[LiveTable]:
    """Write a database with merged and unmerged tables, and return its tables as RocksDB lists them."""
    db = open_writable(str(directory), ["a", "b"], create=True)
    families = {name: db.get_column_family(name) for name in ("a", "b")}
    options = without_wal()
    for number in range(rounds):
        for name, family in families.items():
            for key in range(number, number + 20):
                family.put(bytes([key % 251, key // 251]), f"{name} {number}".encode(), write_opt=options)
            family.flush()
        if number % 3 == 2:
            families["a"].compact_range(None, None)
    listed = [(str(f["name"]).lstrip("/"), f["size"], f["start_key"], f["end_key"]) for f in db.live_files()]
    del families
    db.close()
    return [LiveTable("", *table) for table in sorted(listed)]


def manifest(directory: Path) -> Path:
    return directory / (directory / "CURRENT").read_text().strip()


@pytest.mark.parametrize("rounds", [1, 2, 7, 200])
def test_the_tables_are_those_that_rocksdb_lists(tmp_path: Path, rounds: int) -> None:
    expected = written(tmp_path / "db", rounds)
    tables = live_tables(manifest(tmp_path / "db").read_bytes(), "MANIFEST")
    assert sorted((t.file, t.size_bytes, t.smallest, t.largest) for t in tables) == [
        (t.file, t.size_bytes, t.smallest, t.largest) for t in expected
    ]
    assert {t.family for t in tables} == {"a", "b"}


def test_reserved_space_behind_the_last_record_is_skipped(tmp_path: Path) -> None:
    written(tmp_path / "db", 2)
    data = manifest(tmp_path / "db").read_bytes()
    assert live_tables(data + bytes(4096), "MANIFEST") == live_tables(data, "MANIFEST")


def test_every_flipped_bit_is_detected(tmp_path: Path) -> None:
    written(tmp_path / "db", 1)
    data = bytearray(manifest(tmp_path / "db").read_bytes())
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 4
        with pytest.raises(CorruptStateError) as caught:
            live_tables(bytes(damaged), "MANIFEST")
        assert caught.value.kind == "corrupt-rocksdb"


def test_a_cut_inside_of_a_record_is_detected(tmp_path: Path) -> None:
    written(tmp_path / "db", 1)
    data = manifest(tmp_path / "db").read_bytes()
    with pytest.raises(CorruptStateError):
        live_tables(data[:-1], "MANIFEST")
