"""What a diff leaves behind: samples for people, Parquet files for everybody else."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from statelib.errors import InvalidRequestError
from statelib.savepoints.tables.parquet_files import file_name, writing
from statelib.savepoints.tables.parquet_tables import storable


class ChangeFiles:
    """One Parquet file a state, ``<directory>/<state>.parquet``, written batch by batch; overwrites nothing.

    A context: when its body fails, the files are gone again. Raises InvalidRequestError (``target-exists``,
    ``bad-target``)."""

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


class Sample:
    """The first rows of each state, up to ``limit``."""

    def __init__(self, limit: int) -> None:
        if limit < 0:
            raise InvalidRequestError(f"limit {limit}: expected 0 or more", kind="bad-limit")
        self._limit = limit
        self.tables: dict[str, pa.Table] = {}

    def add(self, state: str, table: pa.Table) -> None:
        there = self.tables.get(state)
        room = self._limit - (len(there) if there is not None else 0)
        if room > 0:
            rows = table.slice(0, room)
            self.tables[state] = rows if there is None else pa.concat_tables([there, rows])
