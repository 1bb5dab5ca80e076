"""A world in memory in which real flows run, one step of one process at a time, in an order that a seed decides.

Processes are greenlets. Each transaction of the catalog and each request to the storage is one step; before and
after it another process may continue, this one may die, pause for long, or receive no answer, applied or not. The
catalog is the real one on SQLite in memory, the storage the real one of buckets on a dict."""

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet
from obstore.exceptions import AlreadyExistsError, BaseError
from sqlalchemy import Connection, Engine, create_engine, event, select
from sqlalchemy.pool import StaticPool

from statelib.catalog.catalog import Catalog
from statelib.catalog.engine import _begin_sqlite, _prepare_sqlite, transaction
from statelib.catalog.migration import migrate
from statelib.catalog.tables.schema import CHECKPOINT, LEASE, METADATA, REF
from statelib.errors import RetryableError, StatelibError
from statelib.model.checkpoint import SnapshotKind
from statelib.model.ids import AttemptId, Epoch
from statelib.model.record import BeginRequest, CheckpointRecord, CheckpointState, CommitFacts

T = TypeVar("T")
NEEDED = (CheckpointState.COMPLETED, CheckpointState.PENDING)


class DiedError(BaseException):
    """An error that ends a process as SIGKILL would: its calls in ``finally`` have no effect."""


@dataclass
class Process:
    """A process of the world. ``stands_still``: the number of choices of other processes for which it pauses."""

    name: str
    body: greenlet
    dead: bool = False
    stands_still: int = 0
    pending: bool = False
    """Whether the process works on a checkpoint that no other has taken over yet."""


@dataclass(frozen=True)
class Chances:
    """The probabilities at each step: the process dies, or pauses; the answer is lost after the step was applied, or
    the step is refused before."""

    dies: float = 0.006
    stands_still: float = 0.02
    lost: float = 0.01
    refused: float = 0.01
    goes_on: float = 0.6


QUIET = Chances(0, 0, 0, 0, 1)


@dataclass
class World:
    """A world in memory. ``violations``: events that must never happen, recorded when they happen."""

    chance: random.Random
    engine: Engine
    chances: Chances = field(default_factory=Chances)
    objects: dict[str, bytes] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    now_ms: int = 1_700_000_000_000
    in_transaction: bool = False
    take_overs: int = 0
    steps: int = 0
    deaths: int = 0
    violations: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hub = getcurrent()
        self.ids = itertools.count(1)

    def start(self, name: str, body: Callable[[], None]) -> None:
        self.processes.append(Process(name, greenlet(body, self.hub)))

    def run(self) -> None:
        """Run until every process has ended."""
        last: Process | None = None
        while alive := [p for p in self.processes if not p.dead]:
            ready = [p for p in alive if p.stands_still <= 0]
            for process in alive:
                process.stands_still -= 1
            if not ready:
                continue
            if last not in ready or self.chance.random() >= self.chances.goes_on:
                last = self.chance.choice(ready)
            assert last is not None
            last.body.switch()
            last.dead = last.dead or last.body.dead
        self.processes.clear()

    def me(self) -> Process | None:
        return next((p for p in self.processes if p.body is getcurrent()), None)

    def step(self, apply: Callable[[], T], lost: Callable[[], Exception], *, writes: bool = True) -> T:
        self.between()
        fate = self.chance.random()
        if fate < self.chances.refused:
            raise lost()
        done = apply()
        self.between()
        if writes and fate > 1 - self.chances.lost:
            raise lost()
        return done

    def between(self) -> None:
        """Let other processes run, or this process end, at this step. Neither happens within a transaction, which locks
        the database."""
        me = self.me()
        if me is None:
            return
        if me.dead:
            raise DiedError
        self.steps += 1
        self.now_ms += self.chance.randrange(3)
        drawn = self.chance.random()
        if drawn < self.chances.dies:
            me.dead = True
            self.deaths += 1
            raise DiedError
        if not self.in_transaction:
            if drawn > 1 - self.chances.stands_still:
                me.stands_still = self.chance.randrange(1, 200)
            self.hub.switch()

    def attempt(self) -> AttemptId:
        return AttemptId(f"{next(self.ids):024x}{0:08x}")

    def clock(self) -> int:
        return self.now_ms

    def is_needed(self, uri: str) -> str:
        """Return the checkpoint that needs a file, if there is one. It is read without the catalog's own code."""
        directory = uri.rpartition("/")[0]
        refs = select(REF.c.checkpoint_id, CHECKPOINT.c.state).join(
            CHECKPOINT,
            (CHECKPOINT.c.pipeline == REF.c.pipeline) & (CHECKPOINT.c.checkpoint_id == REF.c.checkpoint_id),
        )
        own = select(CHECKPOINT.c.checkpoint_id, CHECKPOINT.c.state).where(CHECKPOINT.c.directory == directory)
        by_directory = own.where(CHECKPOINT.c.state == CheckpointState.COMPLETED)
        statement = by_directory if uri.endswith("/_metadata") else refs.where(REF.c.file_id == uri)
        with self.engine.connect() as connection:
            needed_row = connection.execute(statement.where(CHECKPOINT.c.state.in_(NEEDED))).first()
        return "" if needed_row is None else f"{uri} is deleted, {needed_row[1]} checkpoint {needed_row[0]} needs it"


class SimulatedCatalog(Catalog):
    """The real catalog, whose transactions are steps of the world."""

    def __init__(self, world: World) -> None:
        super().__init__("sqlite:////simulated/nothing-is-written-here.db", world.clock)
        self._engine = world.engine
        self._world = world

    def begin(self, request: BeginRequest, locate: Callable[[Any], str]) -> CheckpointRecord:
        record = super().begin(request, locate)
        world = self._world
        if request.kind is SnapshotKind.CHECKPOINT and record.state is CheckpointState.PENDING:
            overtaken = [p for p in world.processes if p.pending and not p.dead and p is not world.me()]
            world.take_overs += len(overtaken)
            for process in overtaken:
                process.pending = False
            if (me := world.me()) is not None:
                me.pending = True
        return record

    def commit(self, *arguments: Any) -> CheckpointRecord:
        committed = super().commit(*arguments)
        if (me := self._world.me()) is not None:
            me.pending = False
        return committed

    def _commit(
        self, connection: Connection, record: CheckpointRecord, epoch: Epoch, facts: CommitFacts
    ) -> CheckpointRecord:
        committed = super()._commit(connection, record, epoch, facts)
        self._world.violations += [
            f"{record.checkpoint_id} is registered without {file.path}"
            for file in facts.files
            if file.path.removeprefix("gs://sim/") not in self._world.objects
        ]
        newest = connection.execute(select(LEASE.c.epoch).where(LEASE.c.pipeline == record.pipeline)).scalar_one()
        if record.kind is SnapshotKind.CHECKPOINT and newest != epoch:
            self._world.violations.append(f"{record.checkpoint_id} commits in epoch {epoch}, the newest is {newest}")
        return committed

    @contextmanager
    def _transaction(self, writes: str = "", *, read_only: bool = False) -> Iterator[Connection]:
        world = self._world
        world.between()
        fate = world.chance.random()
        if fate < world.chances.refused:
            raise _unavailable()
        world.in_transaction = True
        try:
            with transaction(world.engine, writes, read_only=read_only) as connection:
                yield connection
        finally:
            world.in_transaction = False
        world.between()
        if not read_only and fate > 1 - world.chances.lost:
            raise _unavailable()


class SimulatedStore:
    """A replacement for obstore over the dict of a world, with the calls that :mod:`statelib.storage.objects.bucket`
    makes."""

    def __init__(self) -> None:
        self.world: World | None = None

    def _step(self, apply: Callable[[World], T], *, writes: bool = True) -> T:
        world = self.world
        assert world is not None
        return world.step(lambda: apply(world), lambda: BaseError("no answer"), writes=writes)

    def put(self, _store: object, key: str, data: Any, *, mode: str = "overwrite", **_how: Any) -> None:
        whole = data if isinstance(data, bytes) else b"".join(data)

        def apply(world: World) -> None:
            if mode == "create" and key in world.objects:
                raise AlreadyExistsError(key)
            name = key.rpartition("/")[2]
            if not name.startswith(".") and world.objects.get(key, whole) != whole:
                world.violations.append(f"{key} is overwritten with other bytes")
            world.objects[key] = whole

        self._step(apply)

    def head(self, _store: object, key: str) -> dict[str, Any]:
        return self._step(lambda world: _meta(key, world), writes=False)

    def get(self, _store: object, key: str, options: Any = None) -> "Got":
        return self._step(lambda world: Got(_meta(key, world), world.objects[key], options), writes=False)

    def delete(self, _store: object, keys: str | list[str]) -> None:
        def apply(world: World) -> None:
            for key in [keys] if isinstance(keys, str) else keys:
                if problem := world.is_needed(f"gs://sim/{key}"):
                    world.violations.append(problem)
                world.objects.pop(key, None)

        self._step(apply)

    def list(self, _store: object, prefix: str | None, chunk_size: int) -> list[list[dict[str, Any]]]:
        def apply(world: World) -> list[dict[str, Any]]:
            return [_meta(key, world) for key in sorted(world.objects) if key.startswith(f"{prefix}/")]

        return [self._step(apply, writes=False)]

    def list_with_delimiter(self, _store: object, prefix: str) -> dict[str, Any]:
        def apply(world: World) -> set[str]:
            below = [key for key in world.objects if key.startswith(f"{prefix}/")]
            return {f"{prefix}/{rest.partition('/')[0]}" for key in below if "/" in (rest := key[len(prefix) + 1 :])}

        return {"common_prefixes": sorted(self._step(apply, writes=False))}


@dataclass(frozen=True)
class Got:
    meta: dict[str, Any]
    data: bytes
    options: Any

    def stream(self, min_chunk_size: int) -> Iterator[bytes]:
        yield self.data

    def bytes(self) -> bytes:
        start, stop = (self.options or {}).get("range", (0, len(self.data)))
        return self.data[start:stop]


def _meta(key: str, world: World) -> dict[str, Any]:
    if key not in world.objects:
        raise FileNotFoundError(key)
    when = datetime.fromtimestamp(world.now_ms / 1000, UTC)
    return {"path": key, "size": len(world.objects[key]), "last_modified": when}


def _unavailable() -> StatelibError:
    return RetryableError("catalog: the answer is lost", kind="catalog-unavailable")


def memory_engine() -> Engine:
    """Return a migrated catalog in memory: one connection, which all processes share."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    migrate(engine)
    return engine


def emptied(engine: Engine) -> Engine:
    with engine.begin() as connection:
        for table in reversed(METADATA.sorted_tables):
            connection.execute(table.delete())
    return engine
