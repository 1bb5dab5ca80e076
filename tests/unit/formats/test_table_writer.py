"""Tables that are written in columns: RocksDB finds every entry in them, whatever its key and value."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from rocksdict import IngestExternalFileOptions, Rdict

from statelib.backends.rocksdb.database import open_writable
from statelib.formats.sst import written_blocks
from statelib.formats.sst.sorted_table import Table, open_table
from statelib.formats.sst.table_writer import TableWriter
from statelib.serializers.entries.rows import StateRows
from statelib.wire.ragged import from_list

Entries = list[tuple[bytes, bytes]]


def written(path: Path, *parts: Entries) -> Table:
    """Write a table part by part, and open it with the reader in columns."""
    with path.open("wb") as file:
        writer = TableWriter(file.write, "sums")
        for part in parts:
            writer.add(StateRows(from_list([key for key, _ in part]), from_list([value for _, value in part])))
        writer.finish()
    data = path.read_bytes()
    table = open_table(lambda offset, length: data[offset : offset + length], len(data), path.name)
    assert table is not None
    assert table.readable
    return table


def read_in_columns(table: Table) -> Entries:
    entries = table.read(list(table.blocks()))
    assert not entries.deleted.any()
    assert not entries.sequence.any()
    return list(zip(entries.keys.to_list(), entries.values.to_list(), strict=True))


def taken_in(path: Path) -> Rdict:
    """Return a database that has taken the table into a family without entries."""
    db = open_writable(str(path.parent / "db"), ["sums"], create=True)
    options = IngestExternalFileOptions()
    options.set_allow_global_seqno(False)
    db.get_column_family("sums").ingest_external_file([str(path)], options)
    return db


def read_by_rocksdb(db: Rdict) -> Iterator[tuple[bytes, bytes]]:
    iterator = db.get_column_family("sums").iter()
    iterator.seek_to_first()
    while iterator.valid():
        yield iterator.key(), iterator.value()
        iterator.next()
    iterator.status()


def random_entries(random: Random) -> Entries:
    """Return entries in key order. The lengths of keys and values, and what the keys have in common, differ by seed."""
    fixed, shared = random.random() < 0.4, random.choice([0, 3, 8, 11, 40])
    longest, largest = random.choice([2, 9, 30]), random.choice([0, 20, 130, 20_000])
    keys = set()
    for _ in range(random.choice([1, 15, 16, 17, 700])):
        start = bytes([random.randrange(2)]) * random.choice([shared, shared, 0])
        keys.add((b"" if fixed else start) + random.randbytes(longest if fixed else random.randint(1, longest)))
    return [(key, random.randbytes(7 if fixed else random.randint(0, largest))) for key in sorted(keys)]


def cut(entries: Entries, random: Random) -> list[Entries]:
    """Return the entries in parts, of which some are empty."""
    bounds = sorted(random.randrange(len(entries) + 1) for _ in range(random.choice([0, 0, 3])))
    return [entries[a:b] for a, b in pairwise([0, *bounds, len(entries)])]


@pytest.mark.parametrize("seed", range(40))
def test_both_readers_find_every_entry(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    entries = random_entries(random)
    table = written(tmp_path / "new.sst", *cut(entries, random))
    assert (table.family, table.entries) == ("sums", len(entries))
    assert read_in_columns(table) == entries
    db = taken_in(tmp_path / "new.sst")
    assert list(read_by_rocksdb(db)) == entries
    family = db.get_column_family("sums")
    for key, value in random.sample(entries, min(len(entries), 50)):
        assert family[key] == value
        assert family.get(key + b"\0") is dict(entries).get(key + b"\0")
    family.compact_range(None, None)
    assert list(read_by_rocksdb(db)) == entries
    (live,) = db.live_files()
    assert (live["start_key"], live["end_key"]) == (entries[0][0], entries[-1][0])
    del family
    db.close()


def test_blocks_have_the_size_of_rocksdbs_own(tmp_path: Path) -> None:
    entries = [(b"key-%06d" % n, b"value %d" % n) for n in range(20_000)]
    ours = written(tmp_path / "new.sst", entries)
    sizes = [block.length for block in ours.blocks()]
    assert (tmp_path / "new.sst").stat().st_size < sum(len(key) + len(value) for key, value in entries) / 2
    assert max(sizes) < written_blocks.BLOCK_BYTES + 200
    assert len(sizes) * written_blocks.BLOCK_BYTES < 2 * 20_000 * len(b"\0\1\11" + bytes(8) + b"value 12345")


@pytest.mark.parametrize(
    "keys",
    [
        [b"a" * 8 + b"\0", b"a" * 8 + b"\0\0"],
        [b"", b"\0", b"\0" * 9],
        [b"\xff" * 20, b"\xff" * 28],
        [b"\0" * 8, b"\0" * 7 + b"\1", b"\xff" * 8],
        [b"a" + b"\0" * 7, b"a" + b"\xff" * 7],
    ],
)
def test_keys_whose_beginnings_are_alike_or_differ_in_each_bit(tmp_path: Path, keys: Sequence[bytes]) -> None:
    entries = [(key, b"x") for key in keys]
    assert read_in_columns(written(tmp_path / "new.sst", entries)) == entries
    db = taken_in(tmp_path / "new.sst")
    assert list(read_by_rocksdb(db)) == entries
    db.close()
