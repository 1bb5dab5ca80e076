"""A worker of a soak. It takes checkpoints and savepoints, restores and cleans up by the real flows until it is
killed."""

import os
import random
from collections.abc import Callable
from dataclasses import dataclass

from statelib.errors import ConflictError, CorruptStateError, InvalidRequestError, StatelibError
from statelib.flows.checkpoint.publishing import publish
from statelib.flows.checkpoint.snapshot_plan import plan_snapshot
from statelib.flows.checkpoint.steps import abort, begin, check, register
from statelib.flows.cleanup.garbage import collect_garbage, dispose
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.cleanup.retention import retire
from statelib.flows.restore.holding import hold_source, release_source
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.views.inspection import resolve
from statelib.model.ids import CheckpointId
from statelib.model.record import CheckpointRecord, CheckpointState, ClaimMode, Owner
from statelib.savepoints.opened import Checkpoint
from statelib.spark.snapshot.subtask.worker import Work, snapshot_subtask
from tests.faults.soak_lane import Content, Lane, events_of, table_of
from tests.support.worlds import day, owned

COORDINATOR = {
    "day": 16,
    "again": 1,
    "gate": 0.15,
    "savepoint": 1,
    "restore": 0.8,
    "dispose": 0.8,
    "clean": 1.8,
    "sweep": 0.8,
    "give_up": 0.4,
}
CLEANER = {"clean": 5, "sweep": 3, "dispose": 1, "reread": 2}


@dataclass
class Worker:
    """A worker. ``contended``: others work on the same pipeline at the same time, so that it may be refused or
    overtaken."""

    lane: Lane
    seed: str
    weights: dict[str, float]
    contended: bool = False

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.deployment = self.lane.deployment()
        self.pipeline = self.lane.pipeline()
        self.name = self.lane.name
        self.journal = self.lane.journal
        self.catalog = self.deployment.catalog()
        self.about: tuple[CheckpointId, CheckpointState] | None = None

    def work(self, actions: int) -> None:
        """Continue the pending work of a killed worker, then do random work."""
        if "day" in self.weights and self.chance.random() < 0.5:
            self._try(self.resume)
        for _ in range(actions):
            chosen = self.chance.choices(list(self.weights), list(self.weights.values()))[0]
            self._try(getattr(self, chosen))

    def _try(self, action: Callable[[], None]) -> None:
        self.about = None
        self.journal.read()
        head = self.catalog.head(self.name)
        try:
            action()
        except StatelibError as error:
            if not (self.contended and self._overtaken(error, head.head)):
                raise
            self.journal.write("overtaken", f"{action.__name__}: {error.kind}")

    def _overtaken(self, error: StatelibError, head: CheckpointId | None) -> bool:
        """Return whether an error is explained by another worker. A refusal always is; missing or damaged files only
        if the snapshot concerned or the head has changed."""
        if isinstance(error, (ConflictError, InvalidRequestError)):
            return True
        changed = self.about is not None and self.catalog.get(self.name, self.about[0]).state is not self.about[1]
        return changed or self.catalog.head(self.name).head != head

    # -- what a coordinator does -------------------------------------------------------------

    def day(self) -> None:
        self._day(self._applied() + 1, gate=False)

    def gate(self) -> None:
        self._day(self._applied() + 1, gate=True)

    def _applied(self) -> int:
        """Return the last day that the pipeline has applied."""
        head = self.catalog.head(self.name).head
        self.journal.read()  # The worker that made it the head has recorded it before.
        return self.journal.day(head)

    def _day(self, number: int, gate: bool) -> None:
        begun = begin(self.deployment, self.pipeline, day(number), f"worker {os.getpid()}")
        if begun.already_completed:
            return
        self._begun(begun.checkpoint_id)
        self.finish(begun.checkpoint_id, gate)

    def again(self) -> None:
        """Repeat a run that was successful."""
        number = self._applied()
        if number == 0:
            return
        begun = begin(self.deployment, self.pipeline, day(number), "again")
        if begun.already_completed and self.journal.day(begun.checkpoint_id) == number:
            return
        if not self.contended:
            raise AssertionError(f"day {number} was applied already, and checkpoint {begun.checkpoint_id} was begun")
        self._begun(begun.checkpoint_id)
        self.finish(begun.checkpoint_id, gate=False)

    def resume(self) -> None:
        """Make the next try of a task whose worker was killed."""
        pending = self.catalog.list(self.name, (CheckpointState.PENDING,))
        if pending:
            chosen = self.chance.choice(pending)
            self._begun(chosen.checkpoint_id)
            self.finish(chosen.checkpoint_id, gate=False)

    def _begun(self, number: CheckpointId) -> None:
        record = self.catalog.get(self.name, number)
        self.journal.read()
        applied = self.journal.day(record.base) + (record.interval is not None)
        if record.interval is not None and record.interval != day(applied):
            raise AssertionError(f"checkpoint {number} applies {record.interval} after day {applied - 1}")
        self.journal.write("begun", number, record.base, applied, str(record.kind), record.generation)
        self.journal.read()

    def finish(self, number: CheckpointId, gate: bool) -> None:
        self.about = (number, CheckpointState.PENDING)
        plan = plan_snapshot(self.deployment, self.pipeline, number)
        if plan is not None:
            self._snapshot(plan)
        if gate:
            check(self.deployment, self.pipeline, number)
        record = register(self.deployment, self.pipeline, number)
        self.journal.write("done", number)
        self.about = (number, CheckpointState.COMPLETED)
        self._read_back(record)

    def _snapshot(self, plan: object) -> None:
        work = Work(self.deployment, self.pipeline, plan)  # type: ignore[arg-type]
        record = work.plan.record
        applied = events_of(self.lane.seed, self.journal.snapshots[record.checkpoint_id].day)
        events = table_of(applied if record.interval is not None else [])
        reports, task = [], 0
        for subtask, mine in enumerate(owned(self.pipeline, work.plan, events)):
            for _ in range(1 + (self.chance.random() < 0.1)):  # Now and then there is a speculative copy of the task.
                report = snapshot_subtask(work, subtask, task := task + 1, events.filter(mine))
                if self.chance.random() < 0.5 or not reports or reports[-1].subtask != subtask:
                    reports.append(report)
        publish(self.deployment, self.pipeline, work.plan, len(events), reports)

    def savepoint(self) -> None:
        if self.catalog.head(self.name).head is None:
            return
        begun = begin_savepoint(
            self.deployment,
            self.pipeline,
            format=self.chance.choice(["canonical", "native"]),
            target=str(self.lane.root / "savepoints") if self.chance.random() < 0.5 else None,
            note="",
            owner="test",
            key=f"{self.chance.random()}",
        )
        self._begun(begun.checkpoint_id)
        self.finish(begun.checkpoint_id, gate=False)

    def restore(self) -> None:
        records = self.catalog.list(self.name, (CheckpointState.COMPLETED,))
        if not records:
            return
        chosen = self.chance.choice(records)
        self.about = (chosen.checkpoint_id, CheckpointState.COMPLETED)
        claim = ClaimMode.CLAIM if chosen.owner is Owner.USER and self.chance.random() < 0.3 else ClaimMode.NO_CLAIM
        where = chosen.directory if self.chance.random() < 0.3 else str(chosen.checkpoint_id)
        plan = plan_restore(self.deployment, self.pipeline, where, self.chance.choice([None, 1, 1, 2, 3]), claim)
        hold_source(self.deployment, plan, str(os.getpid()))
        if claim is ClaimMode.CLAIM:
            self.journal.write("excused", chosen.checkpoint_id)
        self.journal.write("restoring", chosen.checkpoint_id)
        apply_restore(self.deployment, self.pipeline, plan, "test")
        self.journal.write("restored", chosen.checkpoint_id)
        release_source(self.deployment, plan, str(os.getpid()))

    def give_up(self) -> None:
        for record in self.catalog.list(self.name, (CheckpointState.PENDING,)):
            abort(self.deployment, self.name, record.checkpoint_id, "given up")

    # -- what a cleaner does -----------------------------------------------------------------

    def dispose(self) -> None:
        mine = [r for r in self.catalog.list(self.name, (CheckpointState.COMPLETED,)) if r.owner is Owner.USER]
        if not mine:
            return
        chosen = self.chance.choice(mine)
        self.journal.write("excused", chosen.checkpoint_id)
        try:
            dispose(self.deployment, self.name, chosen.checkpoint_id)
        except ConflictError as error:
            if error.kind != "in-use":
                raise

    def clean(self) -> None:
        retire(self.deployment, self.name)
        collect_garbage(self.deployment, self.name)
        self.journal.write("cleaned")

    def sweep(self) -> None:
        orphans(self.deployment, self.name, grace_ms=0, dry_run=False, force=True)

    def reread(self) -> None:
        """Read a snapshot while it is held, whatever the others do."""
        records = self.catalog.list(self.name, (CheckpointState.COMPLETED,))
        if not records:
            return
        chosen, holder = self.chance.choice(records), f"reader {os.getpid()}"
        self.catalog.cleanup.pin(self.name, chosen.checkpoint_id, holder, 600_000)
        self.journal.read()
        self._read_back(chosen)
        self.catalog.cleanup.unpin(self.name, holder)

    def _read_back(self, record: CheckpointRecord) -> None:
        number = record.checkpoint_id
        content = content_of(resolve(self.deployment, f"{self.name}/{number}"), self.deployment.work_directory)
        if content != self.lane.content(number):
            raise CorruptStateError(f"{number}: {content}, expected {self.lane.content(number)}", kind="wrong-content")
        self.journal.write("read", number)


def content_of(opened: Checkpoint, scratch: str) -> Content:
    """Return the stored content; every checksum is verified."""
    content: Content = {state.name: {} for state in opened.schema().states}
    for name, table in opened.tables(scratch=scratch):
        for row in table.to_pylist():
            key = (row["key"], row["user_key"]) if name == "per_item" else row["key"]
            if key in content[name]:
                raise CorruptStateError(f"{opened.directory}: {key} is in {name} twice", kind="wrong-content")
            content[name][key] = row["value"]
    return content
