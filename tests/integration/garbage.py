"""A deployment that makes garbage quickly, storages and processes that fail, and what must be left."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from sqlalchemy import create_engine, select
from worlds import checkpoint_of, new_deployment, publish_here

from statelib.catalog.schema import CHECKPOINT, FILE
from statelib.errors import RetryableError
from statelib.flows.checkpoint import register
from statelib.flows.savepoint import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.storage.removal import FileSystemRemover
from statelib.storage.uris import local_path

TALLY = """\
name: tally
source: {path: "{data}/x", columns: {shop: string, amount: long}}
key: [shop]
states:
  total: {kind: value, value: {agg: sum, of: amount}}
backend: heap
parallelism: 2
checkpoint: {inline_threshold_bytes: 1, retain: {count: 2}}
"""


class KillError(BaseException):
    """Ends a process as SIGKILL would: nobody catches it."""


@dataclass
class Killer:
    """Called with the name of each point, ends everything at the ``at``-th call."""

    at: int
    seen: list[str] = field(default_factory=list)

    def __call__(self, point: str) -> None:
        self.seen.append(point)
        if len(self.seen) > self.at:
            raise KillError(point)


@dataclass(frozen=True)
class FailingRemover(FileSystemRemover):
    """A storage whose ``fail_at``-th removal fails, before or after it happened."""

    fail_at: int
    applied: bool
    calls: list[str]

    def remove_file(self, uri: str, roots: object) -> bool:
        return self._perhaps(uri, lambda: FileSystemRemover.remove_file(self, uri, roots))

    def remove_directory(self, uri: str, roots: object) -> bool:
        return self._perhaps(uri, lambda: FileSystemRemover.remove_directory(self, uri, roots))

    def _perhaps(self, uri: str, remove: Callable[[], bool]) -> bool:
        self.calls.append(uri)
        fails = len(self.calls) == self.fail_at
        done = remove() if self.applied or not fails else False
        if fails:
            raise RetryableError(f"removing {uri}: the storage did not answer", kind="storage-io")
        return done


@dataclass(frozen=True)
class FailingDeployment(Deployment):
    """The same place, reached through a storage that fails."""

    failing: FailingRemover

    def remover(self) -> FailingRemover:
        return self.failing


def tally(root: Path, retain: str = "{count: 2}") -> Deployment:
    pipelines = root / "pipelines"
    pipelines.mkdir(parents=True)
    (pipelines / "tally.yaml").write_text(TALLY.replace("{count: 2}", retain))
    return new_deployment(root, root, pipelines)


def events(number: int) -> pa.Table:
    shops = [f"shop-{n}" for n in range(10)]
    return pa.table({"shop": shops, "amount": pa.array([number] * 10, pa.int64())})


def days(here: Deployment, first: int, last: int) -> None:
    for number in range(first, last + 1):
        checkpoint_of(here, "tally", number, events(number))


def save(here: Deployment, key: str, target: str | None = None) -> int:
    pipeline = here.pipeline("tally")
    begun = begin_savepoint(here, pipeline, format="canonical", target=target, note="", owner="test", key=key)
    publish_here(here, pipeline, begun.checkpoint_id)
    return register(here, pipeline, begun.checkpoint_id).checkpoint_id


def stored(here: Deployment) -> set[str]:
    """All files below the storage's root."""
    return {str(path) for path in Path(here.storage_root).rglob("*") if not path.is_dir()}


def needed(here: Deployment) -> set[str]:
    """Files of living rows, and the metadata of completed and pending checkpoints, below the root."""
    engine = create_engine(here.catalog_url)
    with engine.connect() as connection:
        files = connection.execute(select(FILE.c.file_id).where(FILE.c.state == "LIVE")).scalars().all()
        owners = connection.execute(select(CHECKPOINT.c.directory).where(CHECKPOINT.c.state == "COMPLETED"))
        uris = [*files, *(f"{directory}/_metadata" for directory in owners.scalars())]
    engine.dispose()
    return {path for path in map(local_path, uris) if path.startswith(f"{here.storage_root}/")}


def directories(here: Deployment) -> set[str]:
    return {path.name for path in Path(here.storage_root).glob("*/*") if path.is_dir()}
