"""Errors of the k-th call to a file system, a bucket or a database: before it was applied, or after."""

import errno
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import obstore
import pytest
from obstore.exceptions import GenericError
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from statelib.storage.filesystem import data_files, descriptors, publish, removal
from statelib.storage.local import store as local_store
from statelib.storage.local import streams as local_streams

KINDS = ("EIO", "ENOSPC", "timeout", "503", "lost, applied", "lost, not applied")
FILE_CALLS = ("open", "write", "fsync", "link", "unlink", "rmdir", "mkdir", "close")
OBJECT_CALLS = ("put", "delete", "head", "get", "list", "copy", "list_with_delimiter")
_WITH_FILES = (data_files, descriptors, local_store, local_streams, publish, removal)


class Failing:
    """A counter of calls, of which number ``at`` (from 0; None: none) fails in the way of ``kind``."""

    def __init__(self, at: int | None, kind: str) -> None:
        self.at, self.kind = at, kind
        self.calls: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, name: str, call: Callable[..., Any], error: Callable[[str], Exception]) -> Callable[..., Any]:
        """Make the call and count it."""

        def counted(*arguments: Any, **options: Any) -> Any:
            with self._lock:
                number = len(self.calls)
                self.calls.append(name)
            if number != self.at:
                return call(*arguments, **options)
            if self.kind == "lost, applied" or name == "os.close":  # A failing close has closed the file.
                done = call(*arguments, **options)
                if name == "os.open":  # A failing open leaves the created file, but nothing open.
                    os.close(done)
            raise error(self.kind)

        return counted


class _Some:
    """A module of which some functions are replaced."""

    def __init__(self, module: Any, functions: dict[str, Callable[..., Any]]) -> None:
        self._module = module
        self.__dict__.update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


@contextmanager
def failing(at: int | None, kind: str) -> Iterator[list[str]]:
    """Let every call to storage and catalog go through the counter, and yield the names of the calls, in order."""
    failure = Failing(at, kind)
    with pytest.MonkeyPatch.context() as patch:
        files = _Some(os, {name: failure(f"os.{name}", getattr(os, name), _of_files) for name in FILE_CALLS})
        for module in _WITH_FILES:
            patch.setattr(module, "os", files)
        objects = {name: failure(f"obstore.{name}", getattr(obstore, name), _of_objects) for name in OBJECT_CALLS}
        patch.setitem(sys.modules, "obstore", _Some(obstore, objects))
        for name in ("do_commit", "do_execute"):
            patch.setattr(SQLiteDialect_pysqlite, name, _of_dialect(failure, name))
        yield failure.calls


def _of_dialect(failure: Failing, name: str) -> Callable[..., Any]:
    call = getattr(SQLiteDialect_pysqlite, name)
    return failure(f"database.{name}", call, lambda kind: sqlite3.OperationalError(f"{kind}: disk I/O error"))


def _of_files(kind: str) -> OSError:
    number = {"ENOSPC": errno.ENOSPC, "timeout": errno.ETIMEDOUT}.get(kind, errno.EIO)
    return OSError(number, os.strerror(number))


def _of_objects(kind: str) -> GenericError:
    message = "Server returned non-2xx status code: 503 Service Unavailable" if kind == "503" else "operation timed out"
    return GenericError(message)
