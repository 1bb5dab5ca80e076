"""RocksDB's native checkpoint: a directory of hard links to the files of the database at one moment."""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from rocksdict import Checkpoint, Rdict

from statelib.backends.rocksdb.database import CONFIG_FILE, rocksdb_errors
from statelib.crash_points import crash_point


class NativeCheckpoint:
    """The files of a frozen database. ``files``: (RocksDB's file name, local path), sorted by name."""

    def __init__(self, directory: Path, release: Callable[[], None]) -> None:
        self.directory = directory
        self._release = release
        self._lock = threading.Lock()
        self._released = False
        self.files = tuple((p.name, str(p)) for p in sorted(directory.iterdir()) if _belongs(p))

    def release(self) -> None:
        """Remove the directory and release the database. Any thread may call it; a second call does nothing."""
        with self._lock:
            again, self._released = self._released, True
        if not again:
            try:
                shutil.rmtree(self.directory)
                crash_point("native checkpoint: removed")
            finally:
                self._release()


def native_checkpoint(db: Rdict, directory: Path, release: Callable[[], None]) -> NativeCheckpoint:
    """Flush the memtables, link all files into ``directory``, which must not exist, and return them.

    If this fails, the directory is removed and ``release`` is called (requirement R49). Raises CorruptStateError
    (``corrupt-rocksdb``), RetryableError (``rocksdb-io``)."""
    try:
        with rocksdb_errors(str(directory), "taking a native checkpoint"):
            crash_point("native checkpoint: before")
            Checkpoint(db).create_checkpoint(str(directory))
            crash_point("native checkpoint: linked")
        return NativeCheckpoint(directory, release)
    except BaseException:
        try:
            # RocksDB links into a directory with the suffix .tmp and renames it at the end.
            for leftover in (directory, directory.with_name(f"{directory.name}.tmp")):
                shutil.rmtree(leftover, ignore_errors=True)
        finally:
            release()
        raise


def _belongs(path: Path) -> bool:
    """Return whether a file is part of the snapshot: not the library's config file, nor an empty write-ahead log."""
    return path.name != CONFIG_FILE and not (path.suffix == ".log" and path.stat().st_size == 0)
