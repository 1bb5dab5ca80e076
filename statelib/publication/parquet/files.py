"""The Parquet files of one commit: written in parts of bounded size, and durable when they are complete."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from statelib.crash_points import crash_point
from statelib.storage.filesystem.failures import storage_errors

Complete = Callable[[str], None]
"""A function that is called with the name of each file when it is complete."""
PART_BYTES = 256 << 20
"""A part that is larger than this is not continued."""


@dataclass(frozen=True)
class PartFile:
    """One complete file. ``rows``: the number of its rows."""

    name: str
    rows: int
    size_bytes: int


class PartWriter:
    """Writes rows into numbered files of a directory. There is at least one file, so that readers find the columns."""

    def __init__(self, directory: str, prefix: str, schema: pa.Schema, complete: Complete) -> None:
        self._directory = directory
        self._prefix = prefix
        self._schema = schema
        self._complete = complete
        self._file: BinaryIO | None = None
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0
        self.parts: list[PartFile] = []

    def write(self, table: pa.Table) -> None:
        """Append rows. Their columns are those of the schema, in the same order."""
        writer = self._opened()
        if len(table):
            writer.write_table(table.cast(self._schema))
            self._rows += len(table)
        assert self._file is not None
        if self._file.tell() >= PART_BYTES:
            self._finish_part()

    def finish(self) -> list[PartFile]:
        """Complete the files, and return them."""
        if not self.parts:
            self._opened()
        if self._writer is not None:
            self._finish_part()
        return self.parts

    def close(self) -> None:
        """Close the file that is not complete, if there is one. It stays where it is."""
        if self._writer is not None and self._file is not None:
            with suppress(OSError):  # the error that ended the writing is raised already
                self._writer.close()
            self._file.close()

    def _opened(self) -> pq.ParquetWriter:
        if self._writer is None:
            self._file = open(self._path(), "xb")  # noqa: SIM115 - closed with the part
            self._writer = pq.ParquetWriter(self._file, self._schema, compression="zstd", store_decimal_as_integer=True)
            self._rows = 0
        return self._writer

    def _path(self) -> str:
        return f"{self._directory}/{self._name()}"

    def _name(self) -> str:
        return f"{self._prefix}{len(self.parts):05}.parquet"

    def _finish_part(self) -> None:
        assert self._writer is not None
        assert self._file is not None
        self._writer.close()
        size_bytes = self._file.tell()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self.parts.append(PartFile(self._name(), self._rows, size_bytes))
        self._writer = self._file = None
        crash_point("publication: file durable")
        self._complete(self.parts[-1].name)


@contextmanager
def part_writer(
    directory: str, prefix: str, schema: pa.Schema, complete: Complete = lambda _name: None
) -> Iterator[PartWriter]:
    """Yield a writer of the files ``<prefix>00000.parquet``, ``<prefix>00001.parquet``, … of a directory."""
    writer = PartWriter(directory, prefix, schema, complete)
    with storage_errors(f"writing {directory}"):
        try:
            yield writer
        finally:
            writer.close()
