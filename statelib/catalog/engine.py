"""Connections to the catalog's database, and what a transaction means on each kind of it."""

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
"""How long a transaction waits for another one's, on either kind of database."""
IDLE_TIMEOUT_MS = 20_000
"""How long PostgreSQL lets a process that holds a pipeline's row stay silent, because it is stopped or cut off. Shorter
than :data:`BUSY_TIMEOUT_MS`, so that whoever waits for the row gets it at its first try."""
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
    """Opens a transaction of one catalog, as :func:`transaction` does."""

    def __call__(self, writes: str = "", *, read_only: bool = False) -> AbstractContextManager[Connection]: ...


def open_engine(url: str) -> Engine:
    """An engine for a SQLite file or a PostgreSQL database; connects to nothing yet.

    There is no pool: a task makes a handful of transactions, and a connection must not be shared
    with a forked process. Raises InvalidRequestError: ``bad-catalog-url``, ``no-database-driver``;
    NotFoundError: ``missing-extra`` for the driver that the extra ``postgres`` brings.
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
    """Return the path of a SQLite catalog, None for a server's; raises as :func:`open_engine`."""
    return _file_of(_parse(url))


def file_stamp(engine: Engine) -> tuple[int, ...]:
    """Return which file a SQLite catalog is at present: a different value once it was replaced, emptied or removed.
    The stamp of a server's catalog is always the same."""
    path = _file_of(engine.url)
    if path is None:
        return ()
    try:
        found = os.stat(path)
    except OSError:
        return (0,)
    return found.st_dev, found.st_ino, int(found.st_size > 0)


def check_whole(connection: Connection) -> None:
    """Raise CorruptStateError (``catalog-damaged``) where a SQLite file ends within a page, which SQLite itself notices
    only when it reads that page. To be called after something was read: then nobody writes to the file."""
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
    """Of a URL what messages may show: no password, and no query, which may hold one too."""
    return url.set(query={}).render_as_string(hide_password=True)


def _file_of(url: URL) -> str | None:
    return (url.database or "").removeprefix("file:") if url.get_backend_name() == "sqlite" else None


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except (ArgumentError, NoSuchModuleError, ValueError):
        # Neither the text nor the cause is shown: they may hold a password in a place where no parser finds it.
        raise InvalidRequestError(f"catalog URL cannot be parsed: {_EXPECTED}", kind="bad-catalog-url") from None
    if backend not in ("sqlite", "postgresql"):
        raise InvalidRequestError(f"catalog URL is for {backend!r}: {_EXPECTED}", kind="bad-catalog-url")
    if backend == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise InvalidRequestError(
            f"catalog URL is for a database in memory, which ends with each task: {_EXPECTED}", kind="bad-catalog-url"
        )
    if not os.path.isabs(_file_of(parsed) or "/"):
        raise InvalidRequestError(
            f"catalog URL {shown(parsed)}: {parsed.database!r} is relative, and would be another file in each "
            f"directory that a process runs in: {_EXPECTED}",
            kind="bad-catalog-url",
            hint="write four slashes and the whole path",
        )
    if backend != "sqlite" and url.count("@") > 1:
        # The rest of a password would be taken for a host, and shown as one.
        raise InvalidRequestError(
            f"catalog URL has a second @: {_EXPECTED}",
            kind="bad-catalog-url",
            hint="write %40 for an @ in a name or password",
        )
    return parsed


def _prepare_sqlite(connection: object, _record: object) -> None:
    # The driver must not begin transactions by itself: its deferred BEGIN lets two writers read
    # the same epoch before either writes.
    connection.isolation_level = None  # type: ignore[attr-defined]
    # Bytes that are no text are shown as such, and stop no query: the row that has them is named when it is read.
    connection.text_factory = lambda raw: raw.decode("utf-8", "backslashreplace")  # type: ignore[attr-defined]
    cursor = connection.cursor()  # type: ignore[attr-defined]
    cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    # FULL would leave the removal of the journal, which is the commit, to the file system: after a power cut the
    # journal may be there again, and undoes what was acknowledged. EXTRA syncs the directory as well. The journal
    # stays one to roll back: a write-ahead log needs memory that NFS does not share, and more than one file to copy.
    cursor.execute("PRAGMA synchronous=EXTRA")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    read_only = connection.get_execution_options().get(_READ_ONLY, False)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")


def _begin_postgresql(connection: Connection) -> None:
    if connection.get_execution_options().get(_READ_ONLY, False):
        # As SQLite's readers: else each statement sees what was committed before it, and the orphan sweep would
        # take a checkpoint that completes between two of them for one that has ended without its files.
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    connection.exec_driver_sql(
        f"SELECT set_config('lock_timeout', '{BUSY_TIMEOUT_MS}', true), "
        f"set_config('idle_in_transaction_session_timeout', '{IDLE_TIMEOUT_MS}', true)"
    )


@contextmanager
def transaction(engine: Engine, writes: str = "", *, read_only: bool = False) -> Iterator[Connection]:
    """One transaction: committed when the block ends, rolled back when it raises.

    ``writes``: which of :data:`~statelib.crash_points.TRANSACTIONS` it is, unless it is ``read_only``: that sees one
    state of the catalog, however many statements it has, and lets SQLite's readers pass a writer. Raises RetryableError
    (``catalog-unavailable``) when the database cannot be reached or stays locked, ``catalog-full``; ConflictError
    (``catalog-conflict``) when it refuses a row that somebody else made first; and of a SQLite file
    CorruptStateError (``catalog-damaged``), InvalidRequestError (``catalog-denied``).
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
        raise  # a mistake of ours
    except (DatabaseError, InterfaceError) as error:
        where = shown(engine.url)
        # The lower byte; the others tell more of the same.
        code = getattr(error.orig, "sqlite_errorcode", -1) & 0xFF
        cls, kind, hint = _SQLITE.get(code, _OTHER)
        raise cls(f"catalog {where}: {error.orig}", kind=kind, hint=hint) from error
