"""Tables of open formats without Spark: delta-rs and pyiceberg. polars aggregates the events of a day for both."""

from pathlib import Path

import polars as pl
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import In

from tests.benchmarks.checks import state_of_batch
from tests.benchmarks.merging import merge_by_delta, merged
from tests.benchmarks.state_columns import COLUMNS
from tests.benchmarks.thirty_days.keeper import Mode

NAME = "bench.state"


class DeltaTableKeeper:
    """A MERGE by delta-rs, which computes the new values."""

    def __init__(self, root: Path, mode: Mode) -> None:
        self._directory = root / "table"
        self._directory.mkdir(exist_ok=True)

    def day(self, number: int, batch: Path) -> None:
        merge_by_delta(self._directory, _aggregated(batch))

    def export(self, target: Path) -> None:
        files = [path.removeprefix("file://") for path in DeltaTable(str(self._directory)).file_uris()]
        pl.read_parquet(files).select(COLUMNS).write_parquet(target / "state.parquet")

    def close(self) -> None:
        pass


class IcebergTable:
    """An upsert by pyiceberg, which replaces rows: the rows of the day's keys are read first, and polars computes their
    new values. The catalog is SQLite."""

    def __init__(self, root: Path, mode: Mode) -> None:
        (root / "table").mkdir(exist_ok=True)
        self._catalog = SqlCatalog("bench", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}/table")

    def day(self, number: int, batch: Path) -> None:
        changes = _aggregated(batch)
        if not self._catalog.table_exists(NAME):
            self._catalog.create_namespace("bench")
            rows = changes.collect().to_arrow(compat_level=pl.CompatLevel.oldest())
            self._catalog.create_table(NAME, schema=rows.schema).append(rows)
            return
        table = self._catalog.load_table(NAME)
        keys = changes.select("key").collect()["key"].to_list()
        held = pl.DataFrame(table.scan(row_filter=In("key", keys)).to_arrow()).lazy()
        rows = merged(pl.concat([held.select(COLUMNS), changes])).select(COLUMNS).collect().to_arrow()
        table.upsert(rows.cast(table.schema().as_arrow()), join_cols=["key"])

    def export(self, target: Path) -> None:
        rows = self._catalog.load_table(NAME).scan().to_arrow()
        pl.DataFrame(rows).select(COLUMNS).write_parquet(target / "state.parquet")

    def close(self) -> None:
        pass


def _aggregated(batch: Path) -> pl.LazyFrame:
    return state_of_batch(batch).select(COLUMNS)
