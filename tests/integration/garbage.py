"""A deployment that makes garbage quickly, storages and processes that fail, and what must be left."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
from sqlalchemy import create_engine, select

from statelib.catalog.tables.schema import CHECKPOINT, FILE
from statelib.errors import RetryableError
from statelib.flows.checkpoint.steps import register
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.storage.objects.bucket import Bucket
from statelib.storage.objects.uris import location_if_object
from statelib.storage.places import PlacedRemover
from statelib.storage.registry import PLACES
from statelib.storage.retries import IMPATIENT
from statelib.storage.uris import local_path
from tests.support.worlds import checkpoint_of, new_deployment, publish_here

TALLY = """\
name: tally
source: {path: "{data}/{start}-{end}", columns: {shop: string, amount: long}}
key: [shop]
states:
  total: {kind: value, value: {agg: sum, of: amount}}
backend: heap
parallelism: 2
checkpoint: {inline_threshold_bytes: 1, retain: {count: 2}}
"""


class KillError(BaseException):
    """An error that ends a process as SIGKILL would: no code catches it."""


@dataclass
class Killer:
    """A function that is called with the name of each crash point, and raises KillError at the ``at``-th call."""

    at: int
    seen: list[str] = field(default_factory=list)

    def __call__(self, point: str) -> None:
        self.seen.append(point)
        if len(self.seen) > self.at:
            raise KillError(point)


@dataclass(frozen=True)
class FailingRemover(PlacedRemover):
    """A storage whose ``fail_at``-th removal fails, before or after the removal."""

    fail_at: int
    applied: bool
    calls: list[str]

    def remove_file(self, uri: str, roots: Sequence[str]) -> bool:
        return self._perhaps(uri, lambda: PlacedRemover.remove_file(self, uri, roots))

    def remove_files(self, uris: Sequence[str], roots: Sequence[str]) -> None:
        self._perhaps(uris[0], lambda: bool(PlacedRemover.remove_files(self, uris, roots)))

    def remove_directory(self, uri: str, roots: Sequence[str]) -> bool:
        return self._perhaps(uri, lambda: PlacedRemover.remove_directory(self, uri, roots))

    def _perhaps(self, uri: str, remove: Callable[[], bool]) -> bool:
        self.calls.append(uri)
        fails = len(self.calls) == self.fail_at
        done = remove() if self.applied or not fails else False
        if fails:
            raise RetryableError(f"removing {uri}: the storage did not answer", kind="storage-io")
        return done


@dataclass(frozen=True)
class FailingDeployment(Deployment):
    """A deployment whose storage fails when files are removed."""

    failing: FailingRemover = field(kw_only=True)

    def remover(self) -> FailingRemover:
        return self.failing


def failing_remover(deployment: Deployment, fail_at: int, applied: bool) -> FailingRemover:
    return FailingRemover(PLACES, deployment.root_uri(), fail_at, applied, [])


def tally(root: Path, retain: str = "{count: 2}", storage_root: str = "") -> Deployment:
    pipelines = root / "pipelines"
    pipelines.mkdir(parents=True)
    (pipelines / "tally.yaml").write_text(TALLY.replace("{count: 2}", retain))
    deployment = new_deployment(root, root, pipelines)
    return replace(deployment, storage_root=storage_root or deployment.storage_root)


def events(number: int) -> pa.Table:
    shops = [f"shop-{n}" for n in range(10)]
    return pa.table({"shop": shops, "amount": pa.array([number] * 10, pa.int64())})


def days(deployment: Deployment, first: int, last: int) -> None:
    for number in range(first, last + 1):
        checkpoint_of(deployment, "tally", number, events(number))


def save(deployment: Deployment, key: str, target: str | None = None) -> int:
    pipeline = deployment.pipeline("tally")
    begun = begin_savepoint(deployment, pipeline, format="canonical", target=target, note="", owner="test", key=key)
    publish_here(deployment, pipeline, begun.checkpoint_id)
    return register(deployment, pipeline, begun.checkpoint_id).checkpoint_id


def stored(deployment: Deployment) -> set[str]:
    """Return the URIs of all files below the storage's root, temporary ones included."""
    root = deployment.root_uri()
    return {f"{root}/{file.path}" for file in deployment.remover().list_files(root)}


def needed(deployment: Deployment) -> set[str]:
    """Return the files of living rows, and the metadata of completed and pending checkpoints, below the root."""
    engine = create_engine(deployment.catalog_url)
    with engine.connect() as connection:
        files = connection.execute(select(FILE.c.file_id).where(FILE.c.state == "LIVE")).scalars().all()
        owners = connection.execute(select(CHECKPOINT.c.directory).where(CHECKPOINT.c.state == "COMPLETED"))
        uris = [*files, *(f"{directory}/_metadata" for directory in owners.scalars())]
    engine.dispose()
    return {uri for uri in uris if uri.startswith(f"{deployment.root_uri()}/")}


def directories(deployment: Deployment) -> set[str]:
    """Return the names of the directories of checkpoints and savepoints; on object storages those of the objects in
    their place."""
    root, remover = deployment.root_uri(), deployment.remover()
    below = (remover.list_directories(parent) for parent in remover.list_directories(root))
    return {uri.rpartition("/")[2] for parent in below for uri in parent}


def put_file(deployment: Deployment, path: str, text: str) -> str:
    """Put a file below the storage's root, as somebody else may do, and return its URI."""
    uri = f"{deployment.root_uri()}/{path}"
    put_bytes(uri, text.encode())
    return uri


def put_bytes(uri: str, data: bytes) -> None:
    """Write a file or an object, wherever its URI leads."""
    location = location_if_object(uri)
    if location is not None:
        Bucket(location.bucket_uri, IMPATIENT).put(location.key, len(data), lambda: iter([data]))
    else:
        Path(local_path(uri)).parent.mkdir(parents=True, exist_ok=True)
        Path(local_path(uri)).write_bytes(data)


def bytes_at(uri: str) -> bytes:
    """Read a file or an object, wherever its URI leads."""
    location = location_if_object(uri)
    if location is not None:
        return Bucket(location.bucket_uri, IMPATIENT).read(location.key, 1 << 30)
    return Path(local_path(uri)).read_bytes()


def is_there(deployment: Deployment, directory: str) -> bool:
    return directory in deployment.remover().list_directories(directory.rpartition("/")[0])
