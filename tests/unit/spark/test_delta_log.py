"""The rows of a table in Delta, as several tasks read them."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from statelib.errors import UnsupportedError
from statelib.spark.events.tables.delta_log import DeltaLog


def test_pieces_have_each_row_once_if_the_log_is_summed_up_in_between(tmp_path: Path) -> None:
    for number in range(6):
        write_deltalake(tmp_path, pa.table({"number": [number]}), mode="append")

    def piece(number: int) -> list[int]:
        return [n for batch in DeltaLog(str(tmp_path), {}, 5).rows(number, 2) for n in batch["number"].to_pylist()]

    first = piece(0)
    DeltaTable(tmp_path).create_checkpoint()
    (checkpoint,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    actions = pq.read_table(checkpoint)
    pq.write_table(actions.take(pa.array(range(len(actions))[::-1])), checkpoint)  # Spark writes them in no order
    assert sorted(first + piece(1)) == list(range(6))


@pytest.mark.parametrize("settings", [{}, {"delta.enableChangeDataFeed": "false"}], ids=["not set", "set"])
def test_a_new_column_of_a_table_without_a_feed_is_no_damage(tmp_path: Path, settings: dict[str, str]) -> None:
    write_deltalake(tmp_path, pa.table({"number": [1]}), configuration=settings)
    write_deltalake(tmp_path, pa.table({"number": [2], "other": [3]}), mode="append", schema_mode="merge")
    with pytest.raises(UnsupportedError, match=r"changed columns .* while it had no change data feed"):
        list(DeltaLog(str(tmp_path), {}).changes([1]))


def test_a_partition_that_the_package_does_not_find_is_no_damage(tmp_path: Path) -> None:
    for number in range(2):
        write_deltalake(tmp_path, pa.table({"n": [number], "city": ["New York"]}), partition_by=["city"], mode="append")
    log = DeltaLog(str(tmp_path), {})
    assert sorted(n for batch in log.rows(0, 1) for n in batch["n"].to_pylist()) == [0, 1]
    with pytest.raises(UnsupportedError, match="partitions whose values have other characters") as caught:
        list(log.changes([1]))
    assert caught.value.kind == "source-features"


@pytest.mark.parametrize("feed", ["true", "false"])
def test_an_empty_text_is_null_in_a_column_of_partitions_whether_commits_or_the_table_are_read(
    tmp_path: Path, feed: str
) -> None:
    """A commit must delete the row that a first run has read from the whole table."""
    rows = pa.table({"n": [1, 2], "shop": ["", "a"]})
    write_deltalake(tmp_path, rows, partition_by=["shop"], configuration={"delta.enableChangeDataFeed": feed})
    write_deltalake(tmp_path, rows, mode="append")
    DeltaTable(tmp_path).delete("n = 1")
    log = DeltaLog(str(tmp_path), {})
    shops = {row["shop"] for batch in log.changes([1, 2]) for row in batch.to_pylist() if row["n"] == 1}
    assert shops == {None}
    assert {row["shop"] for batch in DeltaLog(str(tmp_path), {}, 1).rows(0, 1) for row in batch.to_pylist()} == {
        None,
        "a",
    }
