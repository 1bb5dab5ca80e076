"""Flink's RocksDB files read in columns: the same entries as RocksDB itself reads from them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from statelib.backends.keyed import StateScan
from statelib.backends.rocksdb.database import column_families, open_readable
from statelib.backends.rocksdb.reading.scan import RocksDBScan
from statelib.backends.rocksdb.reading.table_scan import TableScan, tables_of
from statelib.model.handles import IncrementalRemoteKeyedStateHandle, materialized_parts
from statelib.model.state import StateKind
from statelib.restore.stored.rocksdb_files import materialise
from statelib.serializers.entries.rows import join_rows
from tests.golden.flink_fixtures import ROOT, opened

SNAPSHOTS = [
    (about.parent, snapshot["path"])
    for about in sorted(ROOT.glob("*/*rocksdb*/about.json"))
    for snapshot in json.loads(about.read_text())["snapshots"]
]


def directories(folder: Path, path: str, into: Path) -> Iterator[tuple[Path, set[str]]]:
    """Yield each RocksDB database of a snapshot, and its list states, to which Flink appends without reading them."""
    for operator in opened(folder, path).each_operator():
        reader = operator.reader()
        for handle in operator.handles():
            for part in materialized_parts(handle):
                if isinstance(part, IncrementalRemoteKeyedStateHandle):
                    place = into / str(len(list(into.iterdir())))
                    materialise(part, reader, place, with_options=True)
                    yield place, {d.name for d in operator.schema().states if d.kind is StateKind.LIST}


def entries(scan: StateScan) -> list[tuple[bytes, bytes]]:
    rows = join_rows(list(scan))
    return list(zip(rows.keys.to_list(), rows.values.to_list(), strict=True))


@pytest.mark.parametrize(("folder", "path"), SNAPSHOTS, ids=lambda value: str(value)[-40:])
def test_tables_read_in_columns_have_the_entries_that_rocksdb_reads(tmp_path: Path, folder: Path, path: str) -> None:
    for directory, merged in directories(folder, path, tmp_path):
        names = sorted(column_families(str(directory)))
        db = open_readable(str(directory), names)
        for name in names:
            family = db.get_column_family(name)
            tables = tables_of(db, family, name, str(directory), {})
            if tables is None:
                assert name in merged, "only what is kept as merge operands is left to RocksDB"
            else:
                assert entries(TableScan(tables)) == entries(RocksDBScan(family, str(directory)))
        db.close()
