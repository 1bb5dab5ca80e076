"""Schema versions and catalog URLs: the migrations make what the code expects, and nothing else is worked on."""

import subprocess
import sys
from pathlib import Path
from traceback import format_exception

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text

import statelib.catalog
from statelib.catalog.catalog import Catalog
from statelib.catalog.migration import REVISION
from statelib.catalog.tables.schema import METADATA
from statelib.errors import InvalidRequestError, RetryableError, UnsupportedError
from statelib.model.ids import PipelineName

PIPE = PipelineName("p")
MIGRATIONS = Path(statelib.catalog.__file__).parent / "migrations"


def made(tmp_path: Path) -> tuple[str, Catalog]:
    url = f"sqlite:///{tmp_path}/catalog.db"
    return url, Catalog(url, lambda: 0)


def test_the_migrations_make_the_tables_that_the_code_uses(tmp_path: Path):
    url, catalog = made(tmp_path)
    catalog.migrate()
    with create_engine(url).connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []


def test_the_newest_migration_is_the_one_that_the_code_requires():
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_heads() == [REVISION]


def test_a_catalog_that_was_never_migrated_is_refused_by_name(tmp_path: Path):
    _, catalog = made(tmp_path)
    with pytest.raises(InvalidRequestError, match="expected schema 0009, found none") as refusal:
        catalog.list()
    assert (refusal.value.kind, refusal.value.hint) == ("catalog-not-migrated", "statelib catalog migrate")
    catalog.migrate()
    catalog.migrate()
    assert catalog.list() == []


@pytest.mark.parametrize("revision", ["9999", "0006"], ids=["newer", "before the first release"])
def test_a_catalog_of_an_unknown_version_is_refused(tmp_path: Path, revision: str):
    url, catalog = made(tmp_path)
    catalog.migrate()
    with create_engine(url).begin() as connection:
        connection.execute(text(f"UPDATE alembic_version SET version_num = '{revision}'"))
    for call in (Catalog(url, lambda: 0).list, Catalog(url, lambda: 0).migrate):
        with pytest.raises(UnsupportedError, match=f"found {revision}") as refusal:
            call()
        assert refusal.value.kind == "catalog-schema-unknown"


def test_opening_a_current_catalog_does_not_load_alembic(tmp_path: Path):
    url, catalog = made(tmp_path)
    catalog.migrate()
    code = (
        "import sys; from statelib.catalog.catalog import Catalog\n"
        "Catalog(sys.argv[1], lambda: 0).migrate()\n"
        "assert 'alembic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, url], check=True, cwd=Path(statelib.catalog.__file__).parents[2])


def test_sqlite_waits_for_locks_syncs_fully_and_enforces_foreign_keys(tmp_path: Path):
    from statelib.catalog.engine import open_engine, transaction

    url, _ = made(tmp_path)
    with transaction(open_engine(url)) as connection:
        results = [
            connection.execute(text(f"PRAGMA {p}")).scalar() for p in ("busy_timeout", "synchronous", "foreign_keys")
        ]
    assert results == [30_000, 3, 1]


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("mysql://host/db", "bad-catalog-url"),
        ("not a url", "bad-catalog-url"),
        ("nonsense+driver://x", "bad-catalog-url"),
        ("sqlite://", "bad-catalog-url"),
        ("sqlite:///:memory:", "bad-catalog-url"),
        ("sqlite:///catalog.db", "bad-catalog-url"),
        ("sqlite:///./state/catalog.db", "bad-catalog-url"),
        ("sqlite:///~/catalog.db", "bad-catalog-url"),
        ("sqlite:///file:catalog.db?mode=ro&uri=true", "bad-catalog-url"),
        ("postgresql+nodriver://u:hunter2@host/db", "bad-catalog-url"),
        ("postgresql+psycopg://u:p@hunter2@host/db", "bad-catalog-url"),
        ("postgresql+psycopg://u:p@h:hunter2@host/db", "bad-catalog-url"),
        ("postgresql+psycopg://u:p@h?hunter2@host/db", "bad-catalog-url"),
    ],
)
def test_other_urls_are_refused_without_showing_passwords(url: str, kind: str):
    with pytest.raises(InvalidRequestError) as refusal:
        Catalog(url, lambda: 0)
    assert refusal.value.kind == kind
    assert "hunter2" not in "".join(format_exception(refusal.value))


def test_a_password_in_a_query_is_not_shown():
    catalog = Catalog("postgresql+psycopg://u@127.0.0.1:1/db?password=hunter2&connect_timeout=1", lambda: 0)
    with pytest.raises(RetryableError, match=r"u@127\.0\.0\.1:1/db: ") as refusal:
        catalog.head(PIPE)
    assert "hunter2" not in "".join(format_exception(refusal.value))


def test_a_database_that_cannot_be_reached_is_a_retryable_error(tmp_path: Path):
    catalog = Catalog(f"sqlite:///{tmp_path}/no/such/directory/catalog.db", lambda: 0)
    with pytest.raises(RetryableError, match="unable to open") as refusal:
        catalog.head(PIPE)
    assert refusal.value.kind == "catalog-unavailable"
