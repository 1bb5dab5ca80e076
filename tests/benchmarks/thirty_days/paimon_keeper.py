"""PyPaimon: a table with a primary key and the merge engine ``aggregation``, in the environment ``.work/rivals``."""

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from pypaimon import CatalogFactory, Schema

from tests.benchmarks.checks import state_of_batch
from tests.benchmarks.state_columns import COLUMNS
from tests.benchmarks.thirty_days.keeper import Mode

NAME = "bench.state"
ROWS = pa.schema(
    [
        pa.field("key", pa.int64(), nullable=False),
        pa.field("events", pa.int64()),
        pa.field("amount", pa.float64()),
        pa.field("text", pa.string()),
        pa.field("ts", pa.int64()),
    ]
)
OPTIONS = {
    "bucket": "2",
    "merge-engine": "aggregation",
    "sequence.field": "ts",
    "fields.events.aggregate-function": "sum",
    "fields.amount.aggregate-function": "sum",
    "fields.text.aggregate-function": "last_value",
}


class PaimonTable:
    """A table to which each day's aggregated events are appended. Readers merge the rows of a key: PyPaimon does not
    compact."""

    def __init__(self, root: Path, mode: Mode) -> None:
        catalog = CatalogFactory.create({"warehouse": str(root / "warehouse")})
        catalog.create_database("bench", True)
        catalog.create_table(NAME, Schema.from_pyarrow_schema(ROWS, primary_keys=["key"], options=OPTIONS), True)
        self._table: Any = catalog.get_table(NAME)

    def day(self, number: int, batch: Path) -> None:
        events = state_of_batch(batch).select(COLUMNS)
        builder = self._table.new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        write.write_arrow(events.collect().to_arrow().cast(ROWS))
        commit.commit(write.prepare_commit())
        write.close()
        commit.close()

    def export(self, target: Path) -> None:
        builder = self._table.new_read_builder()
        rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
        pl.DataFrame(rows).select(COLUMNS).write_parquet(target / "state.parquet")

    def close(self) -> None:
        pass
