"""A bucket that accepts requests and never answers: the page reports this after one try, and tasks try again."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, update

from statelib.catalog.tables.schema import CHECKPOINT
from statelib.flows.views.anatomy import Portrait, portrait
from statelib.model.ids import CheckpointId, PipelineName
from statelib.storage.registry import RETRIES, hurried, patience
from tests.integration.shop import open_shop

DIRECTORY = "s3://silent/state/sales/chk-1"


class Silent:
    """A server that accepts connections and never answers. ``asked``: the connections that were made; each is held
    open."""

    def __init__(self) -> None:
        self.asked: list[socket.socket] = []
        self.listening = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                self.asked.append(self.listening.accept()[0])
            except OSError:
                return


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Silent]:
    server = Silent()
    address = f"http://127.0.0.1:{server.listening.getsockname()[1]}"
    credentials = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
    for name, value in {**credentials, "AWS_ENDPOINT_URL": address, "STATELIB_ALLOW_HTTP": "true"}.items():
        monkeypatch.setenv(name, value)
    yield server
    server.listening.close()
    for connection in server.asked:
        connection.close()


def test_the_page_tries_once_and_shows_the_content_of_the_catalog(silent: Silent, tmp_path: Path) -> None:
    from statelib_airflow.api.threads import reading

    deployment = open_shop(tmp_path)
    engine = create_engine(deployment.catalog_url)
    with engine.begin() as connection:
        moved = update(CHECKPOINT).where(CHECKPOINT.c.pipeline == "sales", CHECKPOINT.c.checkpoint_id == 1)
        connection.execute(moved.values(directory=DIRECTORY))
    engine.dispose()

    @reading
    def route() -> Portrait:
        return portrait(deployment, PipelineName("sales"), CheckpointId(1))

    async def answered() -> Portrait:
        return await route()

    result = asyncio.run(answered())
    assert result.entry.entries
    assert result.problem is not None
    assert f"reading {DIRECTORY}/_metadata: no whole answer came" in result.problem
    assert len(silent.asked) == 1


def test_the_short_limit_for_pages_ends_with_its_block() -> None:
    with hurried():
        assert patience().delays_s == ()
    assert patience() is RETRIES
