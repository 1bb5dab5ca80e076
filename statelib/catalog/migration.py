"""Bring a catalog to this version's schema, and refuse to work on any other one."""

import threading
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from statelib.catalog.engine import check_whole, shown, transaction
from statelib.errors import InvalidRequestError, UnsupportedError

REVISION = "0007"
"""The newest migration; a test holds it equal to the newest file in ``migrations/versions``."""
_KNOWN = ("0001", "0002", "0003", "0004", "0005", "0006", REVISION)
_LOCK = 0x57A7E11B
_HAS_VERSION = text("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'alembic_version'")
_ONE_THREAD = threading.Lock()


def migrate(engine: Engine) -> None:
    """Create or upgrade the tables in one transaction; costs one query when there is nothing to do.

    Several processes and threads may call it at once. Raises UnsupportedError (``catalog-schema-unknown``)
    for a catalog of a newer statelib.
    """
    with transaction(engine, read_only=True) as connection:
        if _revision(connection) == REVISION:
            return
    from alembic import command
    from alembic.config import Config

    # Alembic keeps what it works on in global variables.
    with _ONE_THREAD, transaction(engine, "catalog migrate") as connection:
        if connection.dialect.name == "postgresql":
            # SQLite's BEGIN IMMEDIATE lets one process in at a time already.
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        _refuse_unknown(engine, _revision(connection))
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def is_empty(engine: Engine) -> bool:
    """Whether no catalog was ever made in this database; it may hold other tables."""
    with transaction(engine, read_only=True) as connection:
        return _revision(connection) is None


def check_revision(connection: Connection) -> None:
    """Raise unless the schema is exactly this version's: InvalidRequestError
    (``catalog-not-migrated``) where it is absent or older, UnsupportedError
    (``catalog-schema-unknown``) where it is not one of ours, CorruptStateError (``catalog-damaged``)
    where its file was cut."""
    found = _revision(connection)
    check_whole(connection)
    _refuse_unknown(connection.engine, found)
    if found != REVISION:
        where = shown(connection.engine.url)
        raise InvalidRequestError(
            f"catalog {where}: expected schema {REVISION}, found {found or 'none'}",
            kind="catalog-not-migrated",
            hint="statelib catalog migrate",
        )


def _revision(connection: Connection) -> str | None:
    if connection.dialect.name == "sqlite":
        # Asked in every transaction, and in a tenth of the inspector's time.
        there = bool(connection.execute(_HAS_VERSION).first())
    else:
        there = inspect(connection).has_table("alembic_version")
    if not there:
        return None
    row = connection.execute(text("SELECT version_num FROM alembic_version")).first()
    return None if row is None else str(row[0])


def _refuse_unknown(engine: Engine, found: str | None) -> None:
    if found is not None and found not in _KNOWN:
        where = shown(engine.url)
        raise UnsupportedError(
            f"catalog {where}: expected schema {REVISION} or older, found {found}",
            kind="catalog-schema-unknown",
            hint="use the statelib version that migrated it, or a newer one",
        )
