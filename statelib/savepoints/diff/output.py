"""The two outputs for the entries that differ: a sample of rows for people, and Parquet files for programs."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from statelib.errors import InvalidRequestError
from statelib.savepoints.tables.parquet_files import file_name, writing
from statelib.savepoints.tables.parquet_tables import storable


class ChangeFiles:
    """A context that writes one Parquet file per state, ``<directory>/<state>.parquet``, batch by batch.

    ``paths``: the files so far. If the body of the context fails, these files are removed.

    Raises InvalidRequestError (``target-exists``, ``bad-target``); no existing file is overwritten."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._writers: dict[Path, pq.ParquetWriter] = {}
        self.paths: list[Path] = []

    def __enter__(self) -> "ChangeFiles":
        with writing(self._directory):
            self._directory.mkdir(parents=True, exist_ok=True)
        return self

    def add(self, state: str, table: pa.Table) -> None:
        path, table = self._directory / file_name(state), storable(table)
        with writing(path):
            if path not in self._writers:
                path.open("xb").close()
                self.paths.append(path)
                self._writers[path] = pq.ParquetWriter(path, table.schema, compression="zstd")
            self._writers[path].write_table(table)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for path, writer in self._writers.items():
            with writing(path):
                writer.close()
        for path in self.paths if kind is not None else ():
            path.unlink()


class ChangeSample:
    """The first rows of each state that differ. ``limit``: the most rows per state. ``tables``: the rows, by state.

    Raises InvalidRequestError (``bad-limit``)."""

    def __init__(self, limit: int) -> None:
        if limit < 0:
            raise InvalidRequestError(f"limit {limit}: expected 0 or more", kind="bad-limit")
        self._limit = limit
        self.tables: dict[str, pa.Table] = {}

    def add(self, state: str, table: pa.Table) -> None:
        sampled = self.tables.get(state)
        room = self._limit - (len(sampled) if sampled is not None else 0)
        if room > 0:
            rows = table.slice(0, room)
            self.tables[state] = rows if sampled is None else pa.concat_tables([sampled, rows])
