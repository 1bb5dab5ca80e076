"""Tables of a column family that are written in key order and in columns, and that RocksDB then takes in whole."""

import contextlib
import shutil
from pathlib import Path
from typing import BinaryIO

from rocksdict import IngestExternalFileOptions, Rdict

from statelib.backends.rocksdb.database import machine_error, rocksdb_errors
from statelib.errors import RetryableError
from statelib.formats.sst.table_writer import TableWriter
from statelib.serializers.entries.rows import StateRows, windows

FEWEST_ENTRIES = 4096
"""The number of entries below which writing tables costs more than writing the entries to RocksDB."""
TABLE_BYTES = 64 * 1024 * 1024
"""The size in bytes from which a table takes no more entries. It is RocksDB's default."""


class NewTables:
    """The tables of one state, in a directory of their own, which :meth:`discard` removes.

    ``database``: the directory of the database, for errors. The methods raise RetryableError (``rocksdb-io``) and
    CorruptStateError (``corrupt-rocksdb``)."""

    def __init__(self, state: str, directory: Path, database: str) -> None:
        self._state, self._directory, self._database = state, directory, database
        self._paths: list[str] = []
        self._file: BinaryIO | None = None
        self._writer: TableWriter | None = None

    def add(self, rows: StateRows) -> None:
        """Write entries in key order, behind those before them."""
        try:
            for window in windows(rows):
                self._add(window)
        except OSError as error:
            raise self._error(error) from error

    def finish(self) -> None:
        """Write the end of the last table. No more entries may be added."""
        try:
            self._end_table()
        except OSError as error:
            raise self._error(error) from error

    def take_in(self, family: Rdict) -> None:
        """Hand the finished tables over to the column family of the state, which has no entries."""
        if self._paths:
            options = IngestExternalFileOptions()
            options.set_move_files(True)
            options.set_allow_global_seqno(False)
            with rocksdb_errors(self._database, f"taking in the tables of state {self._state!r}"):
                family.ingest_external_file(self._paths, options)
        self.discard()

    def discard(self) -> None:
        """Remove what is left of the directory. A second call does nothing."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # what is not written yet may be what did not fit
                self._file.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _error(self, error: OSError) -> RetryableError:
        return machine_error(self._database, f"writing tables of state {self._state!r}", error)

    def _add(self, rows: StateRows) -> None:
        if self._writer is None:
            self._directory.mkdir(exist_ok=True)
            self._paths.append(str(self._directory / f"{len(self._paths)}.sst"))
            self._file = open(self._paths[-1], "wb")  # noqa: SIM115 - the table stays open until it is full
            self._writer = TableWriter(self._file.write, self._state)
        self._writer.add(rows)
        if self._writer.size_bytes >= TABLE_BYTES:
            self._end_table()

    def _end_table(self) -> None:
        if self._writer is not None and self._file is not None:
            self._writer.finish()
            self._file.close()
        self._writer = self._file = None
