"""Worlds on each kind of storage and catalog, and the summary of a test's runs."""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from statelib.testing.crash_points import Place, recorded
from tests.faults.crash_workloads import CENTRAL, WORKLOADS, history, without_catalog
from tests.faults.crash_world import World
from tests.support.figures import record
from tests.support.postgresql_server import DATABASE_USER, NoServer, postgresql_server
from tests.support.s3_endpoint import S3Endpoint

SETTINGS = [(storage, catalog) for storage in ("local", "s3") for catalog in ("sqlite", "postgresql")]
EMPTY = "rebuild"
"""The workload whose world has an empty catalog."""


@dataclass
class Worlds:
    """The worlds of a test: one with its history and, for :data:`EMPTY`, one without a catalog."""

    root: Path
    backend: str = "rocksdb"
    strategy: str = "incremental"
    storage_root: str = ""
    catalog_url: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    _now: tuple[World, bool] | None = None

    def of(self, workload: str) -> World:
        empty = workload == EMPTY
        if self._now is None or (self._now[1] and not empty):
            number = len(list(self.root.iterdir()))
            place = self.root / f"{number}"
            place.mkdir()
            root = f"{self.storage_root}/{number}" if self.storage_root else ""
            new = World(place, self.backend, self.strategy, storage_root=root, catalog_url=self.catalog_url)
            history(new)
            self._now = new, False
        world, emptied = self._now
        if empty and not emptied:
            world.again()
            without_catalog(world)
            self._now = world, True
        return world

    def trace(self, workload: str) -> list[Place]:
        """Return the crash points that a workload reaches, in order."""
        deployment = self.of(workload).again()
        with recorded() as places:
            WORKLOADS[workload](deployment)
        return places


@contextmanager
def worlds(root: Path, storage: str, catalog: str, s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worlds]:
    environment: dict[str, str] = {}
    storage_root = catalog_url = ""
    with ExitStack() as stack:
        if storage == "s3":
            environment = s3.environment | {"AWS_ENDPOINT_URL": s3.direct_url}
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            bucket = f"crash-{root.parent.name.replace('_', '-').lower()}"[:60]
            s3.make_bucket(bucket)
            storage_root = f"s3://{bucket}"
        if catalog == "postgresql":
            try:
                directory = stack.enter_context(postgresql_server())
            except NoServer as reason:
                pytest.skip(str(reason))
            catalog_url = f"postgresql+psycopg://{DATABASE_USER}@/postgres?host={directory}"
            engine = create_engine(catalog_url)
            with engine.connect() as connection:
                connection.execute(text("SELECT 1"))
            engine.dispose()
        yield Worlds(root, storage_root=storage_root, catalog_url=catalog_url, environment=environment)


def spread(every: Sequence[Place], most: int, seed: int) -> list[Place]:
    """Return so many of the places, each crash point at least once if possible."""
    chance = random.Random(seed)
    first = [place for place in every if place.nth == 0]
    later = [place for place in every if place.nth]
    chance.shuffle(first)
    chance.shuffle(later)
    return (first + later)[:most]


@dataclass
class Tally:
    """The number of runs of a test, and what was wrong after them. ``what`` describes the runs."""

    what: str
    runs: int = 0
    wrong: list[str] = field(default_factory=list)
    broken: dict[str, int] = field(default_factory=dict)

    def add(self, run: str, violations: Sequence[Sequence[str]]) -> None:
        self.runs += 1
        self.wrong += [f"{run}: {goal}: {what_is_wrong}" for goal, what_is_wrong in violations]
        for goal in {goal for goal, _ in violations}:
            self.broken[goal] = self.broken.get(goal, 0) + 1

    def close(self) -> None:
        """Record the figures, good or bad, and fail if one is bad."""
        for goal in ("G1", "G2", "G6"):
            record(goal, self.what, self.runs, self.broken.get(goal, 0))
        assert not self.wrong, f"{len(self.wrong)} in {self.runs} runs:\n" + "\n".join(self.wrong[:40])


ORDER = [name for name in WORKLOADS if name != EMPTY] + [EMPTY]
"""The workload that needs another world comes last."""
CENTRAL_ORDER = [name for name in ORDER if name in CENTRAL]
