"""Upgrade a catalog to this version's schema, and refuse to work with any other schema."""

import threading
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from statelib.catalog.engine import check_whole, shown, transaction
from statelib.errors import InvalidRequestError, UnsupportedError

REVISION = "0009"
"""The newest migration; a test holds it equal to the newest file in ``migrations/versions``."""
_REVISIONS = ("0007", "0008", REVISION)
"""All released revisions, oldest first."""
_LOCK = 0x57A7E11B
_HAS_VERSION = text("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'alembic_version'")
_ONE_THREAD = threading.Lock()


def migrate(engine: Engine) -> None:
    """Create or upgrade the tables in one transaction. Costs one query when there is nothing to do.

    Several processes and threads may call it at once. Raises UnsupportedError (``catalog-schema-unknown``)
    for a catalog of a newer statelib.
    """
    with transaction(engine, read_only=True) as connection:
        if _revision(connection) == REVISION:
            return
    from alembic import command
    from alembic.config import Config

    # Alembic keeps the present migration in global variables.
    with _ONE_THREAD, transaction(engine, "catalog migrate") as connection:
        if connection.dialect.name == "postgresql":
            # On SQLite, BEGIN IMMEDIATE already admits one process at a time.
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        _refuse_unknown(engine, _revision(connection))
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def is_empty(engine: Engine) -> bool:
    """Return whether no catalog was ever created in this database. It may hold other tables."""
    with transaction(engine, read_only=True) as connection:
        return _revision(connection) is None


def check_revision(connection: Connection) -> None:
    """Raise an error unless the schema is exactly this version's: InvalidRequestError
    (``catalog-not-migrated``) if it is absent or older, UnsupportedError
    (``catalog-schema-unknown``) if no version of statelib up to this one made it, CorruptStateError
    (``catalog-damaged``) if the file was cut."""
    revision = _revision(connection)
    check_whole(connection)
    _refuse_unknown(connection.engine, revision)
    if revision != REVISION:
        where = shown(connection.engine.url)
        raise InvalidRequestError(
            f"catalog {where}: expected schema {REVISION}, found {revision or 'none'}",
            kind="catalog-not-migrated",
            hint="statelib catalog migrate",
        )


def _revision(connection: Connection) -> str | None:
    if connection.dialect.name == "sqlite":
        # Every transaction runs this query; the inspector takes ten times as long.
        has_version = bool(connection.execute(_HAS_VERSION).first())
    else:
        has_version = inspect(connection).has_table("alembic_version")
    if not has_version:
        return None
    row = connection.execute(text("SELECT version_num FROM alembic_version")).first()
    return None if row is None else str(row[0])


def _refuse_unknown(engine: Engine, revision: str | None) -> None:
    if revision is not None and revision not in _REVISIONS:
        where = shown(engine.url)
        raise UnsupportedError(
            f"catalog {where}: expected schema {REVISION} or older, found {revision}",
            kind="catalog-schema-unknown",
            hint="use the statelib version that migrated it, or a newer one; what was made before the first release is "
            "made anew from the storage: statelib catalog rebuild",
        )
