"""An empty database becomes a catalog once, whichever process comes first. A database of another version is not
changed."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

import statelib
from statelib.catalog.catalog import Catalog
from statelib.errors import UnsupportedError
from tests.contract.catalog_kit import postgresql, url

__all__ = ["postgresql", "url"]
CREATE = "import sys; from statelib.catalog.catalog import Catalog; Catalog(sys.argv[1], lambda: 0).create_if_empty()"


def create(url: str) -> None:
    Catalog(url, lambda: 0).create_if_empty()


def test_several_processes_at_once_create_one_catalog(url: str) -> None:
    root = Path(next(iter(statelib.__path__))).parent
    others = [subprocess.Popen([sys.executable, "-c", CREATE, url], cwd=root) for _ in range(2)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(create, [url] * 3))
    assert [process.wait(120) for process in others] == [0, 0]
    assert Catalog(url, lambda: 0).list() == []


def test_an_older_catalog_is_not_changed(url: str) -> None:
    create(url)
    with create_engine(url).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    with pytest.raises(UnsupportedError) as refusal:
        create(url)
    assert refusal.value.kind == "catalog-schema-unknown"
    assert "statelib catalog rebuild" in refusal.value.hint
    with create_engine(url).connect() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == "0001"
