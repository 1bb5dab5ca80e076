"""RocksDB's native checkpoint: a directory of hard links that freezes the database of one moment."""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from rocksdict import Checkpoint, Rdict

from statelib.backends.rocksdb.database import CONFIG_FILE, rocksdb_errors
from statelib.crash_points import crash_point


class NativeCheckpoint:
    """The files of a frozen database. ``files``: (RocksDB's file name, local path), sorted by name.

    :meth:`release` removes the directory and gives the database back, once, from any thread."""

    def __init__(self, directory: Path, release: Callable[[], None]) -> None:
        self.directory = directory
        self._release = release
        self._lock = threading.Lock()
        self._released = False
        self.files = tuple((p.name, str(p)) for p in sorted(directory.iterdir()) if _belongs(p))

    def release(self) -> None:
        with self._lock:
            again, self._released = self._released, True
        if not again:
            try:
                shutil.rmtree(self.directory)
                crash_point("native checkpoint: removed")
            finally:
                self._release()


def native_checkpoint(db: Rdict, directory: Path, release: Callable[[], None]) -> NativeCheckpoint:
    """Flush the memtables and link all files into ``directory``, which must not exist.

    The directory is removed and ``release`` called when that fails (requirement R49)."""
    try:
        with rocksdb_errors(str(directory), "taking a native checkpoint"):
            crash_point("native checkpoint: before")
            Checkpoint(db).create_checkpoint(str(directory))
            crash_point("native checkpoint: linked")
        return NativeCheckpoint(directory, release)
    except BaseException:
        try:
            for left in (directory, directory.with_name(f"{directory.name}.tmp")):  # RocksDB's own name while it links
                shutil.rmtree(left, ignore_errors=True)
        finally:
            release()
        raise


def _belongs(path: Path) -> bool:
    """The library's own note stays out, and so does the empty log of a database that writes none."""
    return path.name != CONFIG_FILE and not (path.suffix == ".log" and path.stat().st_size == 0)
