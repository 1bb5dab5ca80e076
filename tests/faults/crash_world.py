"""A deployment that can be reset, on every kind of storage and catalog, and the goals that must hold for it after
any failure: G1 (nothing lost), G2 (nothing left over), G6 (once)."""

import shutil
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from sqlalchemy import create_engine, insert, select

from statelib.catalog.tables.schema import CHECKPOINT, FILE, METADATA
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.verification.snapshots import verify, verify_at
from statelib.storage.names import PUT_PROBE_NAME
from statelib.storage.objects.bucket import Bucket
from statelib.storage.objects.uris import location_if_object, object_location
from statelib.storage.retries import IMPATIENT
from tests.faults.crash_side_data import moments_of
from tests.support.worlds import day, descriptors, new_deployment, own_threads

NAME = PipelineName("shops")
FORK = PipelineName("twins")
STRATEGIES = (
    ("heap", "canonical"),
    ("heap", "full"),
    ("heap", "changelog"),
    ("rocksdb", "full"),
    ("rocksdb", "incremental"),
    ("rocksdb", "changelog"),
)
PIPELINE = """\
name: {name}
source: {{path: "{{data}}/{{start}}-{{end}}", columns: {{shop: string, amount: long}}}}
key: [shop]
states:
  total: {{kind: value, value: {{agg: sum, of: amount}}}}
side_data: [log]
hooks: {{snapshot_state: "tests.faults.crash_side_data:note"}}
backend: {backend}
parallelism: 2
max_parallelism: 8
checkpoint:
  strategy: {strategy}
  local_recovery: {local}
  inline_threshold_bytes: 0
  retain: {{count: 2}}
"""


def events(number: int) -> pa.Table:
    """Return 30 events of a day: every shop's total shows which days were applied to it, and how often."""
    shops = [f"shop-{n % 24}" for n in range(30)]
    return pa.table({"shop": shops, "amount": pa.array([7**number + n for n in range(30)], pa.int64())})


def expected(days: int) -> dict[str, int]:
    """Return the state ``total`` after the first so many days."""
    total: Counter[str] = Counter()
    for number in range(1, days + 1):
        for row in events(number).to_pylist():
            total[row["shop"]] += row["amount"]
    return dict(total)


def write_pipeline(deployment: Deployment, name: str, backend: str, strategy: str) -> None:
    text = PIPELINE.format(name=name, backend=backend, strategy=strategy, local="true")
    (Path(deployment.pipelines_directory) / f"{name}.yaml").write_text(text)


class World:
    """A deployment in ``root``, an empty directory. ``storage_root``: '' for a directory below it. ``catalog_url``:
    '' for SQLite."""

    def __init__(
        self, root: Path, backend: str, strategy: str, *, storage_root: str = "", catalog_url: str = ""
    ) -> None:
        self.root = root / "world"
        self._kept = root / "kept"
        (self.root / "pipelines").mkdir(parents=True)
        deployment = new_deployment(self.root, self.root, self.root / "pipelines")
        url = catalog_url or deployment.catalog_url
        self.deployment = replace(deployment, storage_root=storage_root or deployment.storage_root, catalog_url=url)
        for name in (NAME, FORK):
            write_pipeline(self.deployment, name, backend, strategy)
        self._objects: dict[str, bytes] = {}
        self._rows: list[tuple[Any, list[dict[str, Any]]]] = []

    def keep(self) -> None:
        """Keep a copy of this world. :meth:`again` returns to it from now on."""
        shutil.rmtree(self._kept, ignore_errors=True)
        shutil.copytree(self.root, self._kept)
        if location_if_object(self.deployment.storage_root):
            bucket = self._bucket()
            self._objects = {each.key: bucket.read(each.key, 1 << 30) for each in bucket.list("")}
        if not self.deployment.catalog_url.startswith("sqlite"):
            engine = create_engine(self.deployment.catalog_url)
            with engine.connect() as connection:
                tables = METADATA.sorted_tables
                self._rows = [(t, [dict(r._mapping) for r in connection.execute(select(t))]) for t in tables]
            engine.dispose()

    def again(self) -> Deployment:
        shutil.rmtree(self.root)
        shutil.copytree(self._kept, self.root)
        if location_if_object(self.deployment.storage_root):
            bucket = self._bucket()
            keys = {each.key for each in bucket.list("")}
            for name in keys - self._objects.keys():
                bucket.delete(name)
            for name in self._objects.keys() - keys:
                bucket.put(name, len(self._objects[name]), lambda data=self._objects[name]: iter([data]))
        if self._rows:
            engine = create_engine(self.deployment.catalog_url)
            with engine.begin() as connection:
                for table, _ in reversed(self._rows):
                    connection.execute(table.delete())
                for table, rows in self._rows:
                    if rows:
                        connection.execute(insert(table), rows)
            engine.dispose()
        return self.deployment

    def _bucket(self) -> Bucket:
        return Bucket(object_location(self.deployment.storage_root).bucket_uri, IMPATIENT)


@dataclass(frozen=True)
class Holdings:
    """The files or objects that exist, and those that should exist. Temporary files count, and so do directories of a
    file system."""

    there: set[str]
    needed: set[str]


def holdings(deployment: Deployment) -> Holdings:
    root = deployment.root_uri()
    engine = create_engine(deployment.catalog_url)
    with engine.connect() as connection:
        files = set(connection.execute(select(FILE.c.file_id).where(FILE.c.state == "LIVE")).scalars())
        is_kept = CHECKPOINT.c.state.in_((CheckpointState.COMPLETED, CheckpointState.QUARANTINED))
        places = set(connection.execute(select(CHECKPOINT.c.directory).where(is_kept)).scalars())
    engine.dispose()
    places = {place for place in places if place.startswith(f"{root}/")}
    needed = {uri for uri in files if uri.startswith(f"{root}/")} | {f"{place}/_metadata" for place in places}
    # A fork may need files of checkpoints that are deleted otherwise.
    parents = {uri.rpartition("/")[0] for uri in needed}
    location = location_if_object(root)
    if location is not None:
        objects = Bucket(location.bucket_uri, IMPATIENT).list(location.key)
        begun = {place for place in parents | places if place.rpartition("/")[2].startswith(("chk-", "savepoint-"))}
        stand_ins = {f"{place}/.location" for place in begun} | {f"{root}/{PUT_PROBE_NAME}"}
        return Holdings({f"{location.bucket_uri}/{f.key}" for f in objects}, needed | stand_ins)
    base = Path(root.removeprefix("file://"))
    # A pipeline keeps its own directory and those of files that outlive a checkpoint, empty or not.
    always = {
        f"{root}/{d.relative_to(base)}"
        for d in [*base.glob("*"), *base.glob("*/shared"), *base.glob("*/taskowned")]
        if d.is_dir()
    }
    return Holdings({f"{root}/{p.relative_to(base)}" for p in base.rglob("*")}, needed | parents | always)


def problems(deployment: Deployment, days: int) -> list[tuple[str, str]]:
    """Return (goal, problem) for each problem of a world that has recovered and been cleaned up. ``days``: the
    number of days that must have been applied."""
    records = deployment.catalog().list()
    wrong = [("G1", text) for r in records if r.state is CheckpointState.COMPLETED for text in lost(deployment, r)]
    wrong += [
        ("G1", text) for text in verify_at(abroad(deployment), own=True, scratch=deployment.work_directory).problems
    ]
    head = deployment.catalog().head(NAME)
    lineage = [] if head.head is None else deployment.catalog().lineage(NAME, head.head)
    applied = [r.interval for r in reversed(lineage) if r.interval]
    if applied[-1:] != [day(days)] or len(set(applied)) != len(applied):
        wrong.append(("G6", f"the head's history is {applied}, expected it to end with day {days}, each day once"))
    done = Counter((r.pipeline, r.key) for r in records if r.completed_at_ms is not None)
    wrong += [("G6", f"{key} was completed {count} times") for key, count in done.items() if count > 1]
    held = holdings(deployment)
    wrong += [("G1", f"{uri} is missing") for uri in sorted(held.needed - held.there)]
    wrong += [("G2", f"{uri} is left over") for uri in sorted(held.there - held.needed)]
    return wrong + [("G2", f"{path} is left over") for path in left_on_disk(deployment)]


def abroad(deployment: Deployment) -> str:
    """Return the directory of the savepoint that lies outside the storage."""
    place = f"{deployment.root_uri()}-abroad"
    metadata = next(f.path for f in deployment.remover().list_files(place) if f.path.endswith("/_metadata"))
    return f"{place}/{metadata.removesuffix('/_metadata')}"


def lost(deployment: Deployment, record: CheckpointRecord) -> list[str]:
    """Return the problems of a completed checkpoint: damaged files, or state that its days do not give."""
    opened = resolve(deployment, f"{record.pipeline}/{record.checkpoint_id}")
    problem_list = list(verify(opened, scratch=deployment.work_directory).problems)
    position = opened.position()
    applied = 0 if position is None or position.interval is None else number_of(position.interval.end_ms)
    if not problem_list and content(deployment, opened) != expected(applied):
        problem_list.append(f"{record.pipeline}/{record.checkpoint_id} does not hold the state of {applied} days")
    if not problem_list and noted(opened) != {day(number).end_ms - 1 for number in range(1, applied + 1)}:
        problem_list.append(f"{record.pipeline}/{record.checkpoint_id} does not hold the side data of {applied} days")
    return problem_list


def noted(opened: Checkpoint) -> set[int]:
    """Return the times that the side data of all subtasks contain, one for each day."""
    records = opened.manifest.side_data if opened.manifest else ()
    return set[int]().union(*(moments_of(bytes(opened.reader().read(part.handle))) for part in records))


def number_of(end_ms: int) -> int:
    return (end_ms - day(1).start_ms) // (day(1).end_ms - day(1).start_ms)


def content(deployment: Deployment, opened: Checkpoint) -> dict[str, int]:
    table = opened.to_arrow("total", deployment.work_directory)
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def left_on_disk(deployment: Deployment) -> list[Path]:
    """Return the files and directories that runs left on a worker's own disk and that no run needs."""
    left = unfinished(deployment)
    for pipeline in Path(deployment.work_directory).glob("local-state/*/*"):
        checkpoints = sorted(pipeline.iterdir())
        left += [path for path in checkpoints if not path.name.startswith("chk-")]
        left += checkpoints[:-2]
    return left


def unfinished(deployment: Deployment) -> list[Path]:
    """Return the files and directories that a run removes when it ends by itself."""
    work = Path(deployment.work_directory)
    return [path for path in work.iterdir() if path.name != "local-state"] + list(work.rglob("*.ongoing"))


def leaks(root: Path) -> list[str]:
    """Return the open descriptors below ``root`` and the threads of snapshots that this process still has: T21."""
    held = [target for target in descriptors() if target.startswith(str(root)) and " (deleted)" not in target]
    return own_threads() + held
