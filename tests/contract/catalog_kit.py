"""Helpers of the catalog's tests: databases to run on, and short functions for requests and facts."""

import itertools
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import Select, create_engine, text

from statelib.catalog.catalog import Catalog
from statelib.model.checkpoint import DataInterval, EventCounts, FileRecord, SnapshotKind
from statelib.model.ids import AttemptId, CheckpointId, PipelineName
from statelib.model.key_groups import KeyGroupRange
from statelib.model.record import BeginRequest, CheckpointRecord, CommitFacts
from tests.support.postgresql_server import DATABASE_USER, NoServer, postgresql_server

PIPE = PipelineName("flights")
DAY_MS = 86_400_000
_ticks = itertools.count(1_000)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """Yield the socket directory of a database cluster for this session."""
    with ExitStack() as stack:
        try:
            directory = stack.enter_context(postgresql_server())
        except NoServer as reason:
            pytest.skip(str(reason))
        yield directory


def new_database(directory: str) -> str:
    """Return the URL of a new, empty database of the cluster with this socket directory."""
    name = f"t{uuid.uuid4().hex}"
    server = f"postgresql+psycopg://{DATABASE_USER}@"
    admin = create_engine(f"{server}/postgres?host={directory}", isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    admin.dispose()
    return f"{server}/{name}?host={directory}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a new, empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/catalog.db"
    return new_database(request.getfixturevalue("postgresql"))


@pytest.fixture
def catalog(url: str) -> Catalog:
    made = Catalog(url, clock)
    made.migrate()
    return made


def rows(url: str, statement: Select) -> list[tuple]:
    """Return the rows of a query, without the catalog's own code."""
    engine = create_engine(url)
    with engine.connect() as connection:
        records = [tuple(row) for row in connection.execute(statement)]
    engine.dispose()
    return records


def clock() -> int:
    return next(_ticks)


def locate(checkpoint_id: CheckpointId) -> str:
    return f"file:/state/flights/chk-{checkpoint_id}"


def day(number: int) -> DataInterval:
    return DataInterval(number * DAY_MS, (number + 1) * DAY_MS)


def request(
    number: int | None, key: str | None = None, pipeline: PipelineName = PIPE, owner: str = "run-1"
) -> BeginRequest:
    """Return the request for a checkpoint of day ``number``, or for a savepoint if it is None."""
    kind = SnapshotKind.SAVEPOINT if number is None else SnapshotKind.CHECKPOINT
    interval = None if number is None else day(number)
    return BeginRequest(pipeline, kind, interval, "full", 2, owner, key or f"day-{number}")


def attempt(number: int) -> AttemptId:
    return AttemptId(f"{number:032x}")


def facts(number: int, files: tuple[FileRecord, ...] | None = None) -> CommitFacts:
    """Return the facts of attempt ``number``, with one file of that attempt."""
    own = FileRecord(f"file:/state/{attempt(number)}-0-0", 10 + number, 0xF0000000 + number, 0, KeyGroupRange(0, 127))
    return CommitFacts(
        attempt(number), 7, 70, EventCounts(9, 8, 1), "file:/docs", 0xFFFFFFFF, 60, (own,) if files is None else files
    )


def complete(catalog: Catalog, number: int, pipeline: PipelineName = PIPE, key: str | None = None) -> CheckpointRecord:
    """Begin and commit the checkpoint of day ``number``."""
    record = catalog.begin(request(number, key, pipeline), locate)
    unique = record.checkpoint_id * 1000 + record.epoch + (0 if pipeline == PIPE else 500_000)
    return catalog.commit(pipeline, record.checkpoint_id, record.epoch, facts(unique))
