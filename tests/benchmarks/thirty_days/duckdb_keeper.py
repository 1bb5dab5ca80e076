"""DuckDB: an upsert into a table with a primary key in a database file."""

import shutil
from pathlib import Path

import duckdb

from tests.benchmarks.thirty_days.keeper import Mode

TABLE = (
    "CREATE TABLE IF NOT EXISTS state (key BIGINT PRIMARY KEY, events BIGINT, amount DOUBLE, text VARCHAR, ts BIGINT)"
)
UPSERT = """
INSERT INTO state
SELECT key, count(*), sum(amount), arg_max(text, ts), max(ts) FROM read_parquet(?) GROUP BY key
ON CONFLICT (key) DO UPDATE SET
    events = state.events + excluded.events,
    amount = state.amount + excluded.amount,
    text = CASE WHEN excluded.ts > state.ts THEN excluded.text ELSE state.text END,
    ts = greatest(state.ts, excluded.ts)
"""


class DuckDbFile:
    """A database file. DuckDB writes only to a file system, so a cold day copies the file from the storage to the host
    and back."""

    def __init__(self, root: Path, mode: Mode) -> None:
        self._stored = self._file = root / "state.duckdb"
        if mode == "cold":
            (root / "local").mkdir(exist_ok=True)
            self._file = root / "local" / "state.duckdb"
            if self._stored.exists():
                shutil.copyfile(self._stored, self._file)
        self._database = duckdb.connect(str(self._file))
        self._database.execute(TABLE)

    def day(self, number: int, batch: Path) -> None:
        self._database.execute(UPSERT, [str(batch / "*.parquet")])

    def export(self, target: Path) -> None:
        self._database.execute("COPY state TO ? (FORMAT parquet)", [str(target / "state.parquet")])

    def close(self) -> None:
        self._database.close()
        if self._file != self._stored:
            shutil.copyfile(self._file, self._stored)
