"""The processes of a simulation: coordinators whose tasks may be speculative, a cleaner, and a person who restores."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from statelib.coordinator.invariants import history_violations
from statelib.definition.pipeline import Pipeline
from statelib.errors import StatelibError
from statelib.flows.checkpoint import publishing, snapshot_plan
from statelib.flows.checkpoint.publishing import publish
from statelib.flows.checkpoint.snapshot_plan import SnapshotPlan, plan_snapshot
from statelib.flows.checkpoint.steps import abort, begin, register
from statelib.flows.cleanup import garbage
from statelib.flows.cleanup.garbage import collect_garbage, dispose
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.cleanup.retention import retire
from statelib.flows.restore.holding import hold_source, release_source
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import EventCounts, SnapshotKind, SubtaskReport
from statelib.model.handles import IncrementalRemoteKeyedStateHandle
from statelib.model.ids import AttemptId, CheckpointId, PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState, ClaimMode
from statelib.model.state import empty_statistics
from statelib.savepoints.verification.snapshots import wrong_files
from statelib.snapshots.uploads.records import file_records
from statelib.spark.snapshot.subtask.worker import task_attempt
from statelib.storage import registry
from statelib.storage.names import METADATA_NAME
from statelib.storage.objects import bucket as objects_bucket
from statelib.storage.objects.kind import ObjectKind
from statelib.storage.ports.views import CheckpointedStateScope, WrittenStream
from statelib.storage.registry import PLACES
from statelib.storage.retries import Retries, wait_never
from tests.faults.simulated import QUIET, DiedError, SimulatedCatalog, SimulatedStore, World
from tests.support.worlds import day

NAME = PipelineName("sim")
ROOT = "gs://sim/state"
COMPLETED = CheckpointState.COMPLETED
STORE = SimulatedStore()
RETRIES = Retries((0.0,), wait_never)
DEFINITION = {
    "name": NAME,
    "source": {"path": "{data}/{start}-{end}", "columns": {"shop": "string"}},
    "key": ["shop"],
    "states": {"seen": {"kind": "value", "value": {"agg": "count"}}},
    "backend": "rocksdb",
    "max_parallelism": 2,
}
CLEANING: tuple[Callable[[Deployment], object], ...] = (
    lambda deployment: orphans(deployment, NAME, grace_ms=0, dry_run=False, force=True),
    lambda deployment: retire(deployment, NAME),
    lambda deployment: collect_garbage(deployment, NAME),
)


@contextmanager
def simulating() -> Iterator[None]:
    """Use the world of :data:`STORE` for the storage of ``gs:``, for ids and for the clock."""

    def attempt() -> AttemptId:
        assert STORE.world is not None
        return STORE.world.attempt()

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "obstore", STORE)
        patch.setattr(objects_bucket, "open_client", lambda _location, _timeout_s: None)
        patch.setattr(registry, "RETRIES", RETRIES)
        patch.setitem(PLACES._kinds, "gs", ObjectKind(lambda: RETRIES))
        for module in (snapshot_plan, garbage):
            patch.setattr(module, "new_attempt", attempt)
        patch.setattr(publishing, "now_ms", lambda: STORE.world.now_ms if STORE.world else 0)
        yield


@dataclass(frozen=True)
class SimulatedDeployment(Deployment):
    simulated: SimulatedCatalog = field(kw_only=True)
    pipeline_file: Pipeline = field(kw_only=True)

    @staticmethod
    def of(world: World, parallelism: int, retain: int, scratch: str) -> "SimulatedDeployment":
        checkpoint = {"strategy": "incremental", "inline_threshold_bytes": 0, "retain": {"count": retain}}
        pipeline = Pipeline.model_validate({**DEFINITION, "parallelism": parallelism, "checkpoint": checkpoint})
        catalog = SimulatedCatalog(world)
        return SimulatedDeployment("", ROOT, "", "", "", scratch, simulated=catalog, pipeline_file=pipeline)

    def catalog(self) -> Any:
        return self.simulated

    def pipelines(self) -> list[Pipeline]:
        return [self.pipeline_file]


@dataclass
class Simulation:
    """A simulation. ``days``: the last day that each checkpoint has applied, as recorded by the process that began
    it."""

    world: World
    deployment: SimulatedDeployment
    days: dict[int, int] = field(default_factory=dict)
    done: list[int] = field(default_factory=list)
    registered: int = 0
    errors: dict[str, int] = field(default_factory=dict)

    @property
    def pipeline(self) -> Pipeline:
        return self.deployment.pipeline_file

    def process(self, name: str, life: Callable[[], None], lives: int = 3) -> None:
        """Start a process, and start it again when it has died or failed."""

        def body() -> None:
            for _ in range(lives):
                try:
                    life()
                except DiedError:
                    me = self.world.me()
                    assert me is not None
                    me.dead, me.pending = False, False
                except StatelibError as error:
                    self.errors[error.kind] = self.errors.get(error.kind, 0) + 1
                else:
                    return

        self.world.start(name, body)

    # -- coordinators ------------------------------------------------------------------------

    def coordinator(self, rounds: int) -> Callable[[], None]:
        left = rounds

        def life() -> None:
            nonlocal left
            while left:
                left -= 1
                self._round()

        return life

    def _round(self) -> None:
        chance = self.world.chance
        pending = self.deployment.catalog().list(NAME, (CheckpointState.PENDING,))
        if pending and chance.random() < 0.4:  # The task is tried again.
            self.finish(chance.choice(pending).checkpoint_id)
        elif chance.random() < 0.15 and self.deployment.catalog().head(NAME).head is not None:
            begun = begin_savepoint(
                self.deployment,
                self.pipeline,
                format="native",
                target=None,
                note="",
                owner="",
                key=f"{chance.random()}",
            )
            self.finish(begun.checkpoint_id)
        else:
            self.day()

    def day(self) -> None:
        head = self.deployment.catalog().head(NAME).head
        number = 1 + (0 if head is None else self._day_of(self.deployment.catalog().get(NAME, head)))
        begun = begin(self.deployment, self.pipeline, day(number), "somebody")
        if not begun.already_completed:
            self.finish(begun.checkpoint_id)

    def _day_of(self, record: CheckpointRecord) -> int:
        """Return the day of a snapshot: a checkpoint's day follows that of its base, a savepoint's is that of its
        base."""
        number = record.checkpoint_id
        if number not in self.days:
            base = 0 if record.base is None else self._day_of(self.deployment.catalog().get(NAME, record.base))
            self.days[number] = base + (record.kind is SnapshotKind.CHECKPOINT)
            if record.interval is not None and record.interval != day(self.days[number]):
                self.world.violations.append(f"checkpoint {number} applies {record.interval} after day {base}")
        return self.days[number]

    def finish(self, number: CheckpointId) -> None:
        self._day_of(self.deployment.catalog().get(NAME, number))
        try:
            plan = plan_snapshot(self.deployment, self.pipeline, number)
            if plan is not None:
                publish(self.deployment, self.pipeline, plan, 1, self._tasks(plan))
            register(self.deployment, self.pipeline, number)
        except StatelibError as error:
            if self.world.chance.random() < 0.5:
                abort(self.deployment, NAME, number, f"failed: {error.kind}")
            raise
        self.done.append(number)

    def _tasks(self, plan: SnapshotPlan) -> list[SubtaskReport]:
        """Run the tasks. A copy of a task may run beside it, finish at any later time, and be used or not."""
        chance, reports = self.world.chance, []
        for subtask in range(plan.record.parallelism):
            if chance.random() < 0.25:
                self.process(f"late {subtask}", lambda subtask=subtask: self._late(plan, subtask), lives=1)
            if chance.random() < 0.1:
                reports.append(self.task(plan, subtask, 100 + subtask))
            reports.append(self.task(plan, subtask, subtask))
        return reports

    def _late(self, plan: SnapshotPlan, subtask: int) -> None:
        self.task(plan, subtask, 200 + subtask)

    def task(self, plan: SnapshotPlan, subtask: int, number: int) -> SubtaskReport:
        """Take the snapshot of a subtask as RocksDB does: some files of the base, one new file, and a header."""
        attempt, key_groups = task_attempt(plan.attempt, number), plan.layout.ranges[subtask]
        storage = self.deployment.worker_storage(self.pipeline)
        streams = storage.resolve_checkpoint_storage_location(
            plan.record.checkpoint_id, plan.reference, attempt, subtask
        )

        def written(scope: CheckpointedStateScope, data: str) -> WrittenStream:
            stream = streams.create_stream(scope)
            stream.write(data.encode())
            return stream.close_and_get_handle()

        savepoint = plan.record.kind is SnapshotKind.SAVEPOINT
        before = {} if savepoint else plan.previous[subtask].files
        reused = {name: file for name, file in before.items() if self.world.chance.random() < 0.7}
        scope = CheckpointedStateScope.EXCLUSIVE if savepoint else CheckpointedStateScope.SHARED
        new = written(scope, f"data of {attempt}")
        meta = written(CheckpointedStateScope.EXCLUSIVE, f"header of {attempt}")
        name = f"{plan.record.checkpoint_id:06d}.sst"
        shared = ((name, new.handle), *((name, file.handle) for name, file in reused.items()))
        handle = IncrementalRemoteKeyedStateHandle(
            plan.record.checkpoint_id, "0" * 36, key_groups, 1, meta.handle, shared, (), "0" * 36
        )
        return SubtaskReport(
            subtask=subtask,
            key_group_range=key_groups,
            keyed=handle,
            files=file_records((meta, new, *reused.values()), subtask, key_groups),
            statistics=(empty_statistics(key_groups),),
            events=EventCounts(1, 1, 0),
            restored_from="empty",
            sync_ms=0,
            async_ms=0,
            attempt=attempt,
        )

    # -- others ------------------------------------------------------------------------------

    def cleaner(self, rounds: int) -> Callable[[], None]:
        def life() -> None:
            for _ in range(3 * rounds):
                self.world.chance.choice(CLEANING)(self.deployment)

        return life

    def clean(self) -> None:
        for step in CLEANING:
            step(self.deployment)

    def restorer(self) -> Callable[[], None]:
        """Return the life of a task that restores any existing snapshot, and disposes of a savepoint now and then. Each
        try of the task plans anew, with the same key. It often dies before it has said that it was done."""
        wanted: list[CheckpointRecord] = []

        def life() -> None:
            for _ in range(500):
                records = self.deployment.catalog().list(NAME, (COMPLETED,))
                if records:
                    break
                self.world.between()
            else:
                return
            wanted.append(self.world.chance.choice(records))
            chosen = wanted[0]
            if chosen.kind is SnapshotKind.SAVEPOINT and self.world.chance.random() < 0.5:
                dispose(self.deployment, NAME, chosen.checkpoint_id)
                return
            number, none = str(chosen.checkpoint_id), ClaimMode.NO_CLAIM
            plan = replace(plan_restore(self.deployment, self.pipeline, number, None, none), key="restorer")
            hold_source(self.deployment, plan, "restorer")
            opened = resolve(self.deployment, f"{NAME}/{number}")
            files = opened.manifest.files if opened.manifest else ()
            self.world.violations += [f"held, but {text}" for text in wrong_files(opened, files, files)]
            apply_restore(self.deployment, self.pipeline, plan, "restorer")
            if self.world.chance.random() < 0.5:
                raise DiedError
            release_source(self.deployment, plan, "restorer")

        return life

    # -- at the end --------------------------------------------------------------------------

    def recover(self) -> None:
        """Recover without further disturbance: apply the next day, and clean up to the end."""
        self.world.chances = QUIET
        self.day()
        for record in self.deployment.catalog().list(NAME, (CheckpointState.PENDING,)):
            abort(self.deployment, NAME, record.checkpoint_id, "recovery")
        before: dict[str, bytes] = {}
        while before != self.world.objects:
            before = dict(self.world.objects)
            self.clean()

    def check(self) -> list[str]:
        """Return the violations in the present world. The list is empty if there are none."""
        records = {r.checkpoint_id: r for r in self.deployment.catalog().list(NAME)}
        head = self.deployment.catalog().head(NAME)
        violations = self.world.violations + history_violations(head, list(records.values()))
        if head.generation > 1:
            violations.append(f"one wish was restored {head.generation} times")
        history, at = [], head.head
        while at is not None:
            history.append(at)
            at = records[at].base
        days = [self._day_of(records[n]) for n in history if records[n].kind is SnapshotKind.CHECKPOINT]
        if days != list(range(len(days), 0, -1)):
            violations.append(f"the history applies the days {days}")
        newest = [n for n in history if records[n].kind is SnapshotKind.CHECKPOINT][:1]
        violations += [f"{n} of the history is {records[n].state}" for n in newest if records[n].state is not COMPLETED]
        violations += [
            f"{n} was registered, and is {records[n].state}"
            for n in self.done
            if records[n].state in (CheckpointState.PENDING, CheckpointState.ABORTED)
        ]
        return violations + self._storage([r for r in records.values() if r.state is COMPLETED])

    def _storage(self, completed: list[CheckpointRecord]) -> list[str]:
        needed, result = set(), []
        self.registered = len(completed)
        for record in completed:
            opened = resolve(self.deployment, f"{NAME}/{record.checkpoint_id}")
            assert opened.manifest is not None
            result += wrong_files(opened, opened.manifest.files, opened.manifest.files)
            needed |= {PLACES.file_uri(record.directory, f.path) for f in opened.manifest.files}
            needed.add(f"{record.directory}/{METADATA_NAME}")
        keys = self.world.objects
        stored = {f"gs://sim/{key}" for key in keys if not key.rpartition("/")[2].startswith(".")}
        locations = {f"gs://sim/{key}".rpartition("/")[0] for key in keys if key.endswith("/.location")}
        extra = locations - {record.directory for record in completed}
        if stored != needed or extra:
            result.append(f"left {sorted(stored - needed)} {sorted(extra)}, lost {sorted(needed - stored)}")
        return result
