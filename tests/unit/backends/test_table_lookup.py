"""Entries looked up in RocksDB's tables: those that RocksDB itself finds, from no more blocks than needed."""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from rocksdict import Rdict

from statelib.backends.rocksdb.reading.table_lookup import TableLookup
from statelib.backends.rocksdb.reading.table_scan import Placed, TableScan, tables_of
from statelib.errors import CorruptStateError
from statelib.formats.sst.sorted_table import Table
from statelib.serializers.entries.rows import StateRows
from statelib.wire.ragged import Ragged, from_list
from tests.unit.backends.test_table_scan import FORMS, Entries, entries, formed, put, some


def tables(db: Rdict, directory: Path) -> list[Placed]:
    placed = tables_of(db, db.get_column_family("a"), "a", str(directory), {})
    assert placed is not None
    return placed


def pairs(rows: StateRows) -> Entries:
    return list(zip(rows.keys.to_list(), rows.values.to_list(), strict=True))


def first_bytes(keys: Ragged, length: int) -> Ragged:
    return from_list([key[:length] for key in keys.to_list()])


@pytest.mark.parametrize("form", FORMS)
def test_a_lookup_gives_what_a_scan_gives_for_each_supported_table_format(tmp_path: Path, form: str) -> None:
    chance = random.Random(form)
    db = formed(tmp_path, FORMS[form])
    written: list[bytes] = []
    for seed in range(4):
        new = some(random.Random(seed), 700)
        put(db, new, chance.sample(written, len(written) // 5))
        db.get_column_family("a").flush()
        written += new
    placed = tables(db, tmp_path)
    stored = dict(entries(TableScan(placed)))
    with ThreadPoolExecutor(3) as threads:
        for count in (1, 7, 300):
            wanted = {*chance.sample(written, count), b"\x01", b"\x02absent", *(key + b"\0" for key in written[:5])}
            rows = TableLookup(placed, threads.map).find(from_list(chance.sample(sorted(wanted), len(wanted))))
            assert pairs(rows) == sorted((key, stored[key]) for key in wanted & stored.keys())
    assert pairs(TableLookup(placed).find(from_list([]))) == []
    assert pairs(TableLookup([]).find(from_list([b"\x01"]))) == []


@pytest.mark.parametrize("seed", range(6))
def test_all_entries_with_some_prefixes_are_found(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    db = formed(tmp_path, FORMS["tiny blocks"])
    prefixes = [b"\x01" + bytes(chance.choices(b"\x00a\xff", k=3)) for _ in range(20)]
    for _ in range(3):
        new = {chance.choice(prefixes) + chance.randbytes(chance.choice([0, 1, 9])): b"v" * 9 for _ in range(400)}
        put(db, new, chance.sample(sorted(new), 40))
        db.get_column_family("a").flush()
    placed = tables(db, tmp_path)
    wanted = sorted({*chance.sample(prefixes, 5), b"\x01zzz", b"\x00\xff\xff\xff"})
    rows = TableLookup(placed).find_prefixed(from_list(wanted), lambda keys: first_bytes(keys, 4))
    assert pairs(rows) == [entry for entry in entries(TableScan(placed)) if entry[0][:4] in wanted]


def test_only_the_blocks_that_may_hold_a_key_are_read(tmp_path: Path) -> None:
    db = formed(tmp_path, FORMS["as statelib writes"])
    keys = [b"\x01" + number.to_bytes(8, "big") for number in range(20_000)]
    chance = random.Random(1)
    put(db, {key: chance.randbytes(40) for key in keys})
    db.get_column_family("a").flush()
    read: list[int] = []

    def counting(table: Table) -> Table:
        inner = table._read

        def reads(offset: int, length: int) -> bytes:
            read.append(length)
            return inner(offset, length)

        return replace(table, _read=reads)

    placed = [(smallest, largest, counting(table)) for smallest, largest, table in tables(db, tmp_path)]
    assert len(TableLookup(placed).find(from_list([keys[10], keys[9_000], keys[19_990]]))) == 3
    assert len(read) == 3
    assert sum(read) < 3 * 2_000
    read.clear()
    assert len(TableLookup(placed).find(from_list(keys[500:700]))) == 200
    assert len(read) == 1, "neighbouring blocks are read at once"


def test_a_damaged_block_is_named(tmp_path: Path) -> None:
    db = formed(tmp_path, FORMS["not compressed"])
    put(db, {b"\x01" + number.to_bytes(8, "big"): b"value" for number in range(5_000)})
    db.get_column_family("a").flush()
    ((smallest, largest, table),) = tables(db, tmp_path)

    def damaged(offset: int, length: int) -> bytes:
        data = bytearray(table._read(offset, length))
        data[len(data) // 2] ^= 1
        return bytes(data)

    lookup = TableLookup([(smallest, largest, replace(table, _read=damaged))])
    with pytest.raises(CorruptStateError, match="checksum does not match"):
        lookup.find(from_list([b"\x01" + (700).to_bytes(8, "big")]))
