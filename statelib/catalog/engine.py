"""Connections to the catalog's database, and what a transaction means on each kind of it."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, IntegrityError, InterfaceError, NoSuchModuleError, OperationalError
from sqlalchemy.pool import NullPool

from statelib.errors import ConflictError, InvalidRequestError, RetryableError

BUSY_TIMEOUT_MS = 30_000
_READ_ONLY = "statelib_read_only"
_EXPECTED = "expected sqlite:////absolute/path.db or postgresql+<driver>://user@host/database"


def open_engine(url: str) -> Engine:
    """An engine for a SQLite file or a PostgreSQL database; connects to nothing yet.

    There is no pool: a task makes a handful of transactions, and a connection must not be shared
    with a forked process. Raises InvalidRequestError: ``bad-catalog-url``, ``no-database-driver``.
    """
    parsed = _parse(url)
    try:
        engine = create_engine(parsed, poolclass=NullPool, hide_parameters=True)
    except NoSuchModuleError as error:
        raise InvalidRequestError(f"catalog URL: {error}: {_EXPECTED}", kind="bad-catalog-url") from error
    except ModuleNotFoundError as error:
        raise InvalidRequestError(
            f"catalog URL {parsed.render_as_string(hide_password=True)}: module {error.name!r} is not installed",
            kind="no-database-driver",
            hint=f"pip install {error.name}",
        ) from error
    if parsed.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except (ArgumentError, NoSuchModuleError) as error:
        # The text is not shown: it may hold a password in a place where no parser finds it.
        raise InvalidRequestError(f"catalog URL cannot be parsed: {_EXPECTED}", kind="bad-catalog-url") from error
    if backend not in ("sqlite", "postgresql"):
        raise InvalidRequestError(f"catalog URL is for {backend!r}: {_EXPECTED}", kind="bad-catalog-url")
    if backend == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise InvalidRequestError(
            f"catalog URL is for a database in memory, which ends with each task: {_EXPECTED}", kind="bad-catalog-url"
        )
    return parsed


def _prepare_sqlite(connection: object, _record: object) -> None:
    # The driver must not begin transactions by itself: its deferred BEGIN lets two writers read
    # the same epoch before either writes.
    connection.isolation_level = None  # type: ignore[attr-defined]
    cursor = connection.cursor()  # type: ignore[attr-defined]
    cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    read_only = connection.get_execution_options().get(_READ_ONLY, False)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")


@contextmanager
def transaction(engine: Engine, *, read_only: bool = False) -> Iterator[Connection]:
    """One transaction: committed when the block ends, rolled back when it raises.

    ``read_only`` lets SQLite readers pass a writer. Raises RetryableError
    (``catalog-unavailable``) when the database cannot be reached or stays locked, and
    ConflictError (``catalog-conflict``) when it refuses a row that somebody else made first.
    """
    try:
        with engine.connect() as connection:
            connection.execution_options(**{_READ_ONLY: read_only})
            with connection.begin():
                yield connection
    except IntegrityError as error:
        raise ConflictError(f"the catalog refused a row: {error.orig}", kind="catalog-conflict") from error
    except (OperationalError, InterfaceError) as error:
        where = engine.url.render_as_string(hide_password=True)
        raise RetryableError(f"catalog {where}: {error.orig}", kind="catalog-unavailable") from error
