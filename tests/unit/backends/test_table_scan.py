"""Tables of RocksDB read in columns: what RocksDB itself reads, whatever they look like; damage is named."""

import random
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    ChecksumType,
    DataBlockIndexType,
    DBCompressionType,
    Options,
    Rdict,
    SstFileWriter,
    WriteBatch,
)

from statelib.backends.keyed import StateScan
from statelib.backends.rocksdb.database import family_options, open_writable, without_wal
from statelib.backends.rocksdb.reading import table_scan
from statelib.backends.rocksdb.reading.scan import RocksDBScan
from statelib.backends.rocksdb.reading.table_scan import TableScan, tables_of
from statelib.backends.rocksdb.writing import new_tables
from statelib.backends.rocksdb.writing.new_tables import NewTables
from statelib.errors import CorruptStateError
from statelib.formats.sst.sorted_table import Table, open_table
from statelib.serializers.entries.rows import StateRows
from statelib.wire.ragged import from_list

SEEDS = range(12)
Entries = list[tuple[bytes, bytes]]
Change = Callable[[Options, BlockBasedOptions], None]


def block(change: Callable[[BlockBasedOptions], None]) -> Change:
    return lambda _, options: change(options)


def two_levels(options: BlockBasedOptions) -> None:
    options.set_index_type(BlockBasedIndexType.two_level_index_search())
    options.set_metadata_block_size(64)


FORMS: dict[str, Change] = {
    "as statelib writes": lambda *_: None,
    "tiny blocks": block(lambda o: o.set_block_size(64)),
    "two-level index": block(two_levels),
    "index in stretches": block(lambda o: o.set_index_block_restart_interval(8)),
    "a restart at each key": block(lambda o: o.set_block_restart_interval(1)),
    "long stretches": block(lambda o: o.set_block_restart_interval(100)),
    "hash index in blocks": block(lambda o: o.set_data_block_index_type(DataBlockIndexType.binary_and_hash())),
    "CRC-32C": block(lambda o: o.set_checksum_type(ChecksumType.crc32c())),
    "XXH3": block(lambda o: o.set_checksum_type(ChecksumType.xxh3())),
    "index as in format 2": block(lambda o: o.set_format_version(2)),
    "not compressed": lambda options, _: options.set_compression_type(DBCompressionType.none()),
}
OTHERS: dict[str, Change] = {
    "LZ4": lambda options, _: options.set_compression_type(DBCompressionType.lz4()),
    "format 6": block(lambda o: o.set_format_version(6)),
    "checksum of another kind": block(lambda o: o.set_checksum_type(ChecksumType.xxhash())),
}


def formed(directory: Path, change: Change) -> Rdict:
    """Return a database with the families ``a`` and ``b`` whose tables are written with these options."""
    options, table = family_options(), BlockBasedOptions()
    table.set_block_size(512)
    table.set_format_version(5)
    table.set_checksum_type(ChecksumType.xxhash64())
    change(options, table)
    options.set_block_based_table_factory(table)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    return Rdict(str(directory), options, column_families={"a": options, "b": options})


def put(db: Rdict, entries: dict[bytes, bytes], deleted: list[bytes] | None = None) -> None:
    batch = WriteBatch(raw_mode=True)
    batch.set_default_column_family(db.get_column_family_handle("a"))
    for key, value in entries.items():
        batch[key] = value
    for key in deleted or []:
        batch.delete(key)
    db.write(batch, without_wal())


def some(chance: random.Random, count: int) -> dict[bytes, bytes]:
    """Return entries of a state: keys of one length or of many, values of every size."""
    if chance.random() < 0.5:
        keys = [b"\x01" + chance.randrange(3 * count).to_bytes(8, "big") for _ in range(count)]
    else:
        keys = [
            b"\x01" + b"long" * chance.choice([0, 0, 0, 50]) + b"%d" % chance.randrange(count) for _ in range(count)
        ]
    return {key: chance.randbytes(chance.choice([0, 1, 8, 8, 8, 300])) for key in keys}


def entries(scan: StateScan) -> Entries:
    return [entry for rows in scan for entry in zip(rows.keys.to_list(), rows.values.to_list(), strict=True)]


def compared(db: Rdict, directory: Path, first: bytes = b"", stop: bytes | None = None) -> Entries:
    """Return the entries, after asserting that both ways of reading give the same ones."""
    family = db.get_column_family("a")
    tables = tables_of(db, family, "a", str(directory), {})
    assert tables is not None
    stored_entries = entries(TableScan(tables, first=first, stop=stop))
    assert stored_entries == entries(RocksDBScan(family, str(directory), first=first, stop=stop))
    return stored_entries


@pytest.mark.parametrize("form", FORMS)
def test_both_readers_give_the_same_entries_for_each_supported_table_format(tmp_path: Path, form: str) -> None:
    db = formed(tmp_path / "db", FORMS[form])
    family = db.get_column_family("a")
    for seed in range(3):
        put(db, some(random.Random(seed), 700))
        family.flush()
    assert len(compared(db, tmp_path / "db")) > 700


def test_a_table_of_another_family_is_opened_once(tmp_path: Path) -> None:
    """Its file is gone the second time, which is not noticed."""
    db = formed(tmp_path / "db", FORMS[min(FORMS)])
    put(db, some(random.Random(1), 700))
    other, families = db.get_column_family("b"), dict[str, str]()
    other[b"key"] = b"value"
    other.flush()
    db.get_column_family("a").flush()
    path = str(tmp_path / "db")
    first = tables_of(db, db.get_column_family("a"), "a", path, families)
    assert sorted(families.values()) == ["a", "b"]
    (file,) = (name for name, family in families.items() if family == "b")
    (tmp_path / "db" / file).unlink()
    again = tables_of(db, db.get_column_family("a"), "a", path, families)
    assert first is not None
    assert again is not None
    assert [table.name for *_, table in again] == [table.name for *_, table in first]


@pytest.mark.parametrize("form", OTHERS)
def test_other_table_formats_are_left_to_rocksdb(tmp_path: Path, form: str) -> None:
    db = formed(tmp_path / "db", OTHERS[form])
    put(db, some(random.Random(1), 700))
    family = db.get_column_family("a")
    family.flush()
    assert tables_of(db, family, "a", str(tmp_path / "db"), {}) is None


@pytest.mark.parametrize("seed", SEEDS)
def test_both_readers_agree_on_versions_and_deletions_in_many_tables(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(table_scan, "CHUNK_BYTES", chance.choice([1, 3000, 512 * 1024]))
    db = formed(tmp_path / "db", FORMS["as statelib writes"])
    family, snapshots, keys = db.get_column_family("a"), [], [b"\x01"]
    for _ in range(chance.randrange(1, 6)):
        new = some(chance, chance.choice([3, 100, 900]))
        put(db, new, chance.sample(keys, len(keys) // 4))
        family.flush()
        keys += new
        if chance.random() < 0.5:
            snapshots.append(db.snapshot())  # A snapshot keeps older versions of a key in the table.
        if chance.random() < 0.4:
            family.compact_range(None, None)
    db.get_column_family("b")[b"\x01other"] = b"state"
    compared(db, tmp_path / "db")
    low, high = sorted(chance.sample([*keys, b"\x01", b"\x01zzz", b"\x02"], 2))
    compared(db, tmp_path / "db", low, high)
    compared(db, tmp_path / "db", high, low)
    compared(db, tmp_path / "db", low)


@pytest.mark.parametrize("seed", SEEDS)
def test_tables_written_in_columns_are_merged_with_those_of_rocksdb(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(table_scan, "CHUNK_BYTES", chance.choice([1, 3000, 512 * 1024]))
    monkeypatch.setattr(new_tables, "TABLE_BYTES", chance.choice([5000, 1 << 20]))
    db = formed(tmp_path / "db", FORMS["as statelib writes"])
    family, first = db.get_column_family("a"), some(chance, 900)
    written_in_columns(family, tmp_path, first)
    assert compared(db, tmp_path / "db") == sorted(first.items())
    for _ in range(chance.randrange(3)):
        put(db, some(chance, 300), chance.sample(sorted(first), 200))
        family.flush()
        compared(db, tmp_path / "db")
    compared(db, tmp_path / "db", *sorted(chance.sample([*first, b"\x01", b"\x02"], 2)))


def test_a_table_written_in_columns_is_returned_as_far_as_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key is in it once, so nothing is held back for a newer entry of the same key in the next block."""
    monkeypatch.setattr(table_scan, "CHUNK_BYTES", 1)
    db = formed(tmp_path / "db", FORMS["as statelib writes"])
    family = db.get_column_family("a")
    written_in_columns(family, tmp_path, some(random.Random(1), 900))
    tables = tables_of(db, family, "a", str(tmp_path / "db"), {})
    assert tables is not None
    ((_, _, table),) = tables
    assert [rows.keys.to_list()[-1] for rows in TableScan(tables)] == [block.last for block in table.blocks()]


def written_in_columns(family: Rdict, directory: Path, entries: dict[bytes, bytes]) -> None:
    """Write entries to a family that has none, as tables that RocksDB takes in."""
    tables, pairs = NewTables("a", directory / "new", str(directory)), sorted(entries.items())
    for at in range(0, len(pairs), 100):
        part = pairs[at : at + 100]
        tables.add(StateRows(from_list([key for key, _ in part]), from_list([value for _, value in part])))
    tables.finish()
    tables.take_in(family)


def test_entries_in_memory_and_range_deletions_are_left_to_rocksdb(tmp_path: Path) -> None:
    directory = str(tmp_path / "db")
    db = open_writable(directory, ["a", "b"], create=True)
    family = db.get_column_family("a")
    put(db, {b"\x01a": b"1", b"\x02b": b"2"})
    assert tables_of(db, family, "a", directory, {}) is None, "in memory"
    family.flush()
    assert len(compared(db, tmp_path / "db")) == 2
    family.delete_range(b"\x01", b"\x02", without_wal())
    family.flush()
    assert tables_of(db, family, "a", directory, {}) is None, "a range tombstone"
    assert entries(RocksDBScan(family, directory)) == [(b"\x02b", b"2")]


def test_ingested_tables_are_left_to_rocksdb(tmp_path: Path) -> None:
    """The sequence number of an ingested table is only in RocksDB's MANIFEST."""
    directory = str(tmp_path / "db")
    db = open_writable(directory, ["a", "b"], create=True)
    writer = SstFileWriter(options=family_options())
    writer.open(str(tmp_path / "new.sst"))
    writer[b"\x01a"] = b"1"
    writer.finish()
    family = db.get_column_family("a")
    family.ingest_external_file([str(tmp_path / "new.sst")])
    assert entries(RocksDBScan(family, directory)) == [(b"\x01a", b"1")]
    assert tables_of(db, family, "a", directory, {}) is None


def test_a_scan_can_be_read_after_its_tables_were_removed(tmp_path: Path) -> None:
    db = formed(tmp_path / "db", FORMS["as statelib writes"])
    family = db.get_column_family("a")
    put(db, some(random.Random(1), 900))
    family.flush()
    expected = compared(db, tmp_path / "db")
    tables = tables_of(db, family, "a", str(tmp_path / "db"), {})
    assert tables is not None
    released: list[int] = []
    scan = TableScan(tables, lambda: released.append(1))
    put(db, {}, [key for key, _ in expected])
    family.flush()
    family.compact_range(None, None)
    assert entries(scan) == expected
    scan.close()
    assert released == [1]


@pytest.fixture
def table(tmp_path: Path) -> bytes:
    """Return the bytes of a small table."""
    db = formed(tmp_path / "db", FORMS["as statelib writes"])
    put(db, some(random.Random(4), 30))
    db.get_column_family("a").flush()
    (path,) = (tmp_path / "db").glob("*.sst")
    return path.read_bytes()


def opened(data: bytes) -> Table | None:
    return open_table(lambda offset, length: data[offset : offset + length], len(data), "000007.sst")


@pytest.mark.parametrize("form", FORMS)
def test_the_index_names_each_block_of_a_range(tmp_path: Path, form: str) -> None:
    chosen = Random(form)
    db = formed(tmp_path / "db", FORMS[form])
    put(db, some(chosen, 3_000))
    db.get_column_family("a").flush()
    (path,) = (tmp_path / "db").glob("*.sst")
    table = opened(path.read_bytes())
    assert table is not None
    every = list(table.blocks())
    fewest = len(every)
    for _ in range(100):
        first, stop = sorted(chosen.choice(every).last + bytes(chosen.randrange(2)) for _ in range(2))
        named = list(table.blocks(first, stop))
        begin = every.index(named[0]) if named else 0
        assert every[begin : begin + len(named)] == named
        wanted = [block for block in every if first <= block.last]
        beyond = next((n for n, block in enumerate(wanted) if block.last >= stop), len(wanted))
        assert set(wanted[: beyond + 1]) <= set(named)
        fewest = min(fewest, len(named))
    is_searched = form not in ("index in stretches", "index as in format 2")
    assert (fewest < len(every)) is is_searched


def outcome(data: bytes) -> Entries | str:
    """Return the entries of a table, or the error that refuses it, or ``left`` if it is left to RocksDB."""
    try:
        snapshot = opened(data)
        return "left" if snapshot is None or not snapshot.readable else entries(TableScan([(b"", b"\xff", snapshot)]))
    except CorruptStateError as error:
        return f"{error.kind}: {error}"


def test_every_flipped_bit_of_a_table_is_detected(table: bytes) -> None:
    """The exceptions are bits of filters, which are not read, and bits after whose change the table is left to
    RocksDB."""
    whole, result = outcome(table), opened(table)
    assert len(whole) > 20
    assert result is not None
    flipped = [table[:at] + bytes([table[at] ^ 1 << at % 8]) + table[at + 1 :] for at in range(len(table))]
    outcomes = [outcome(data) for data in flipped]
    refused = [o.startswith("corrupt-rocksdb: RocksDB's table") if isinstance(o, str) else False for o in outcomes]
    last = list(result.blocks())[-1]
    assert all(refused[: last.offset + last.length + 5]), "where the entries lie"
    assert all(o in ("left", whole) or r for o, r in zip(outcomes, refused, strict=True))
    assert outcomes.count("left") <= 13, "magic, version and kind of checksum"


def test_every_truncation_of_a_table_is_detected(table: bytes) -> None:
    for length in range(len(table)):
        result = outcome(table[:length])
        assert isinstance(result, str)
        assert result == "left" or result.startswith("corrupt-rocksdb")
