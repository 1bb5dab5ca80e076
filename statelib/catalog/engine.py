"""Connections to the catalog's database, and its transactions on SQLite and on PostgreSQL."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    DataError,
    IntegrityError,
    InterfaceError,
    NoSuchModuleError,
    NotSupportedError,
    ProgrammingError,
)
from sqlalchemy.pool import NullPool

from statelib.crash_points import crash_point
from statelib.errors import ConflictError, CorruptStateError, InvalidRequestError, RetryableError, StatelibError
from statelib.extras import extras_named

BUSY_TIMEOUT_MS = 30_000
"""How long a transaction waits for a lock that another transaction holds, on either kind of database."""
IDLE_TIMEOUT_MS = 20_000
"""PostgreSQL ends a transaction that sends no statement for this long, because its process is stopped or cut off.
Shorter than :data:`BUSY_TIMEOUT_MS`, so that a process that waits for the same row gets it at its first try."""
_DENIED = (InvalidRequestError, "catalog-denied", "check the owner and mode of the file and of its directory")
_DAMAGED = (CorruptStateError, "catalog-damaged", "restore a backup, or move it away: statelib catalog rebuild")
_SQLITE: dict[int, tuple[type[StatelibError], str, str]] = {
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_READONLY: _DENIED,
    sqlite3.SQLITE_PERM: _DENIED,
    sqlite3.SQLITE_FULL: (RetryableError, "catalog-full", "free some space, then run the task again"),
}
_OTHER = (RetryableError, "catalog-unavailable", "run the task again; if it stays, look at the database itself")
_READ_ONLY = "statelib_read_only"
_EXPECTED = "expected sqlite:////absolute/path.db or postgresql+<driver>://user@host/database"


class Transaction(Protocol):
    """A function that opens a transaction of one catalog: :func:`transaction` with the engine filled in."""

    def __call__(self, writes: str = "", *, read_only: bool = False) -> AbstractContextManager[Connection]: ...


def open_engine(url: str) -> Engine:
    """Return an engine for a SQLite file or a PostgreSQL database. It does not connect yet.

    There is no pool: a task makes few transactions, and a connection must not be shared
    with a forked process. Raises InvalidRequestError: ``bad-catalog-url``, ``no-database-driver``;
    NotFoundError: ``missing-extra`` if the driver belongs to the extra ``postgres``, which is not installed.
    """
    parsed = _parse(url)
    try:
        with extras_named():
            engine = create_engine(parsed, poolclass=NullPool, hide_parameters=True)
    except NoSuchModuleError as error:
        raise InvalidRequestError(f"catalog URL: {error}: {_EXPECTED}", kind="bad-catalog-url") from error
    except ModuleNotFoundError as error:
        raise InvalidRequestError(
            f"catalog URL {shown(parsed)}: module {error.name!r} is not installed",
            kind="no-database-driver",
            hint=f"pip install {error.name}",
        ) from error
    if parsed.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    else:
        event.listen(engine, "begin", _begin_postgresql)
    return engine


def database_file(url: str) -> str | None:
    """Return the path of a SQLite catalog, None for a server. Raises InvalidRequestError (``bad-catalog-url``)."""
    return _file_of(_parse(url))


def file_stamp(engine: Engine) -> tuple[int, ...]:
    """Return a value that changes when the file of a SQLite catalog is replaced, emptied or removed: (device, inode, 1
    if it has content), or (0,) without a file. The stamp of a server's catalog is always ()."""
    path = _file_of(engine.url)
    if path is None:
        return ()
    try:
        status = os.stat(path)
    except OSError:
        return (0,)
    return status.st_dev, status.st_ino, int(status.st_size > 0)


def check_whole(connection: Connection) -> None:
    """Raise CorruptStateError (``catalog-damaged``) if a SQLite file ends within a page. SQLite itself notices this
    only when it reads that page. Call it after a query in the same transaction: then nobody writes to the file."""
    if connection.dialect.name != "sqlite":
        return
    page = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
    *_, file = connection.exec_driver_sql("PRAGMA database_list").first() or ("",)
    size = os.path.getsize(file) if file else 0
    if size % page:
        cls, kind, hint = _DAMAGED
        where = shown(connection.engine.url)
        raise cls(f"catalog {where}: expected whole pages of {page} bytes, found {size}", kind=kind, hint=hint)


def shown(url: URL) -> str:
    """Return the URL as messages may show it: without the password, and without the query, which may hold one too."""
    return url.set(query={}).render_as_string(hide_password=True)


def _file_of(url: URL) -> str | None:
    return (url.database or "").removeprefix("file:") if url.get_backend_name() == "sqlite" else None


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except (ArgumentError, NoSuchModuleError, ValueError):
        # The message shows neither the URL nor the cause: they may hold a password where no parser finds it.
        raise InvalidRequestError(f"catalog URL cannot be parsed: {_EXPECTED}", kind="bad-catalog-url") from None
    if backend not in ("sqlite", "postgresql"):
        raise InvalidRequestError(f"catalog URL is for {backend!r}: {_EXPECTED}", kind="bad-catalog-url")
    if backend == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise InvalidRequestError(
            f"catalog URL is for a database in memory, which is lost when a task ends: {_EXPECTED}",
            kind="bad-catalog-url",
        )
    if not os.path.isabs(_file_of(parsed) or "/"):
        raise InvalidRequestError(
            f"catalog URL {shown(parsed)}: {parsed.database!r} is a relative path, and would be a different file in "
            f"each working directory: {_EXPECTED}",
            kind="bad-catalog-url",
            hint="write four slashes and the absolute path",
        )
    if backend != "sqlite" and url.count("@") > 1:
        # The parser would take the rest of a password for the host, and messages would show it.
        raise InvalidRequestError(
            f"catalog URL has a second @: {_EXPECTED}",
            kind="bad-catalog-url",
            hint="write %40 for an @ in a name or password",
        )
    return parsed


def _prepare_sqlite(connection: object, _record: object) -> None:
    # The driver must not begin transactions by itself: with its deferred BEGIN, two writers can read
    # the same epoch before either of them writes.
    connection.isolation_level = None  # type: ignore[attr-defined]
    # Bytes that are not UTF-8 become escapes and do not stop a query: the check of the row then names the row.
    connection.text_factory = lambda raw: raw.decode("utf-8", "backslashreplace")  # type: ignore[attr-defined]
    cursor = connection.cursor()  # type: ignore[attr-defined]
    cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    # The commit is the removal of the journal file. With FULL, the file system decides when the removal is durable:
    # after a power cut the journal may exist again, and would undo an acknowledged commit. EXTRA also syncs the
    # directory. The catalog uses a rollback journal, not a write-ahead log: that needs shared memory, which NFS does
    # not have, and a backup would have to copy more than one file.
    cursor.execute("PRAGMA synchronous=EXTRA")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    read_only = connection.get_execution_options().get(_READ_ONLY, False)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")


def _begin_postgresql(connection: Connection) -> None:
    if connection.get_execution_options().get(_READ_ONLY, False):
        # All statements of a reader see one state, as with SQLite. Otherwise the orphan sweep could see a checkpoint
        # that completes between two statements as one that ended without files.
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    connection.exec_driver_sql(
        f"SELECT set_config('lock_timeout', '{BUSY_TIMEOUT_MS}', true), "
        f"set_config('idle_in_transaction_session_timeout', '{IDLE_TIMEOUT_MS}', true)"
    )


@contextmanager
def transaction(engine: Engine, writes: str = "", *, read_only: bool = False) -> Iterator[Connection]:
    """Open a transaction. It is committed when the block ends, and rolled back when the block raises.

    ``writes``: the name of a writing transaction, one of :data:`~statelib.crash_points.TRANSACTIONS`. All statements of
    a ``read_only`` transaction see one state of the catalog; on SQLite it can run while a writer is active. Raises
    RetryableError (``catalog-unavailable``: the database cannot be reached or stays locked; ``catalog-full``);
    ConflictError (``catalog-conflict``: a constraint refuses a row, because another process was first); and for a
    SQLite file CorruptStateError (``catalog-damaged``), InvalidRequestError (``catalog-denied``).
    """
    try:
        with engine.connect() as connection:
            connection.execution_options(**{_READ_ONLY: read_only})
            with connection.begin():
                yield connection
                if writes:
                    crash_point(f"{writes}: before commit")
        if writes:
            crash_point(f"{writes}: committed")
    except IntegrityError as error:
        raise ConflictError(f"the catalog refused a row: {error.orig}", kind="catalog-conflict") from error
    except (DataError, NotSupportedError, ProgrammingError):
        raise  # a defect of statelib, not of the database
    except (DatabaseError, InterfaceError) as error:
        where = shown(engine.url)
        # The lower byte is the kind of error; the upper bytes are details.
        code = getattr(error.orig, "sqlite_errorcode", -1) & 0xFF
        cls, kind, hint = _SQLITE.get(code, _OTHER)
        raise cls(f"catalog {where}: {error.orig}", kind=kind, hint=hint) from error
