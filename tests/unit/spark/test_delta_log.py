"""The rows of a table in Delta, as several tasks read them."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

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
