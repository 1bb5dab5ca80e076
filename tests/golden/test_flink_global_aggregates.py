"""A SQL aggregate without GROUP BY keeps its state under a key without fields."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statelib.flows.savepoint.bootstrap import made_of
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.savepoints.tables.parquet_files import export_parquet
from statelib.savepoints.writing.new_savepoint import NewSavepoint
from statelib.savepoints.writing.rewritten_savepoint import OperatorChange, rewrite
from statelib.serializers.entries.keys import key_groups
from statelib.serializers.type_text import parse_type
from tests.golden.flink_fixtures import ROOT, opened

UID = "6_group-aggregate"


@pytest.fixture
def aggregate() -> Checkpoint:
    folder = ROOT / "2.3.0" / "sql-globalagg-hashmap"
    return opened(folder, next(path.name for path in folder.glob("savepoint-*") if "52bb9b" in path.name))


def test_the_key_is_a_column_of_empty_rows(aggregate: Checkpoint) -> None:
    table = aggregate.to_arrow("distinctAcc_0")
    assert table["key"].to_pylist() == [{}] * 5
    assert key_groups(aggregate.schema(), table["key"].combine_chunks()).tolist() == table["key_group"].to_pylist()


def test_parquet_files_omit_such_a_column_and_can_be_read_back(aggregate: Checkpoint, tmp_path: Path) -> None:
    (path,) = export_parquet(aggregate, "distinctAcc_0", tmp_path / "out")
    table = pq.read_table(path)
    assert table.column_names == ["key_group", "user_key", "value"]
    change = OperatorChange(put={aggregate.schema().state("distinctAcc_0"): table.slice(0, 2)})
    again = open_checkpoint(rewrite(aggregate, NewSavepoint(str(tmp_path), "again"), changes={UID: change}))
    table_read = again.to_arrow("distinctAcc_0").sort_by("user_key")
    assert table_read.equals(aggregate.to_arrow("distinctAcc_0").slice(0, 2).sort_by("user_key"))
    assert again.to_arrow("accState").equals(aggregate.to_arrow("accState"))


def test_rows_without_fields_are_built_from_no_column() -> None:
    rows = pa.table({"a": [1, 2, 3]})
    assert made_of(parse_type("rowdata<>"), (), rows, "key").to_pylist() == [{}] * 3
