"""The catalog against a small model, over random histories with zombies, lost tasks and restores."""

import itertools
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from statelib.catalog.catalog import Catalog
from statelib.coordinator.checkpoint_lifecycle import is_committed
from statelib.coordinator.invariants import history_violations
from statelib.coordinator.retention import RetentionPolicy, subsumed
from statelib.errors import ConflictError, InvalidRequestError
from statelib.model.checkpoint import DataInterval, EventCounts, SnapshotKind
from statelib.model.ids import AttemptId, CheckpointId, Epoch, PipelineName
from statelib.model.record import BeginRequest, CommitFacts
from tests.support.extent import examples

PIPE = PipelineName("p")
DAYS = st.integers(0, 3)


@dataclass
class Model:
    """The expected content of the catalog: state, base, kind and day of each id, and head, epoch and generation of the
    pipeline."""

    states: dict[int, str] = field(default_factory=dict)
    bases: dict[int, int | None] = field(default_factory=dict)
    days: dict[int, int | None] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    attempts: dict[int, str] = field(default_factory=dict)
    generations: dict[int, int] = field(default_factory=dict)
    committed: set[int] = field(default_factory=set)
    head: int | None = None
    epoch: int = 0
    generation: int = 0

    def lineage(self) -> list[int]:
        chain, at = [], self.head
        while at is not None:
            chain.append(at)
            at = self.bases[at]
        return chain

    def applied(self, day: int) -> int | None:
        return next((i for i in self.lineage() if self.days[i] == day), None)

    def abort(self, *, savepoints: bool) -> None:
        for number, state in self.states.items():
            if state == "PENDING" and (savepoints or self.days[number] is not None):
                self.states[number] = "ABORTED"

    def begin(self, day: int | None) -> int:
        if day is not None:
            self.abort(savepoints=False)
            self.epoch += 1
        number = len(self.states) + 1
        self.states[number], self.bases[number], self.days[number] = "PENDING", self.head, day
        self.epochs[number], self.generations[number] = self.epoch, self.generation
        return number


class History(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        ticks = itertools.count()
        self.catalog = Catalog(f"sqlite:///{Path(self.directory.name)}/c.db", lambda: next(ticks))
        self.catalog.migrate()
        self.model = Model()

    def teardown(self) -> None:
        self.directory.cleanup()

    @rule(day=DAYS)
    def begin(self, day: int) -> None:
        interval = DataInterval(day, day + 1)
        request = BeginRequest(PIPE, SnapshotKind.CHECKPOINT, interval, "full", 1, "o", f"k{day}")
        record = self.catalog.begin(request, lambda number: f"file:/{number}")
        done = self.model.applied(day)
        assert record.checkpoint_id == (self.model.begin(day) if done is None else done)

    @rule()
    def begin_savepoint(self) -> None:
        number = self.model.begin(None)
        request = BeginRequest(PIPE, SnapshotKind.SAVEPOINT, None, "full", 1, "o", f"s{number}")
        assert self.catalog.begin(request, lambda n: f"file:/{n}").checkpoint_id == number

    @precondition(lambda self: self.model.states)
    @rule(pick=st.integers(0), attempt=st.integers(1, 2))
    def commit(self, pick: int, attempt: int) -> None:
        """Commit any id at any time: a superseded coordinator cannot notice that it is superseded."""
        model, number = self.model, 1 + pick % len(self.model.states)
        mark = AttemptId(f"{number * 10 + attempt:032x}")
        facts = CommitFacts(mark, 1, 1, EventCounts(0, 0, 0), "", 0, 0, ())
        wins = model.states[number] == "PENDING"
        done = number in model.committed and model.states[number] in ("COMPLETED", "DELETED")
        repeated = done and model.attempts[number] == mark
        try:
            record = self.catalog.commit(PIPE, CheckpointId(number), Epoch(model.epochs[number]), facts)
        except ConflictError as error:
            if error.kind != "fenced" or wins or repeated:
                raise
            return
        assert wins or repeated
        assert record.attempt == mark
        if wins:
            model.states[number], model.attempts[number] = "COMPLETED", mark
            model.committed.add(number)
            if model.days[number] is not None:
                model.head = number

    @precondition(lambda self: self.model.states)
    @rule(pick=st.integers(0))
    def set_aside(self, pick: int) -> None:
        """Put any id into quarantine at any time, as with a commit. The head never moves."""
        model, number = self.model, 1 + pick % len(self.model.states)
        mark = AttemptId(f"{number * 10 + 1:032x}")
        facts = CommitFacts(mark, 1, 1, EventCounts(0, 0, 0), "", 0, 0, ())
        wins = model.states[number] == "PENDING"
        try:
            record = self.catalog.gate.set_aside(PIPE, CheckpointId(number), Epoch(model.epochs[number]), facts, "odd")
        except ConflictError as error:
            if error.kind != "fenced" or wins:
                raise
            return
        assert wins or model.states[number] == "QUARANTINED"
        assert (record.state, record.completed_at_ms) == ("QUARANTINED", None)
        model.states[number], model.attempts[number] = "QUARANTINED", mark

    @precondition(lambda self: "QUARANTINED" in self.model.states.values())
    @rule(pick=st.integers(0))
    def release(self, pick: int) -> None:
        """Release a checkpoint. Only one that builds on the present head, in the present generation, is released.
        The pending one is then aborted."""
        model = self.model
        aside = [number for number, state in model.states.items() if state == "QUARANTINED"]
        number = aside[pick % len(aside)]
        savepoint = model.days[number] is None
        fits = (model.bases[number], model.generations[number]) == (model.head, model.generation)
        try:
            self.catalog.gate.release(PIPE, CheckpointId(number), "o", "looked at it")
        except ConflictError as error:
            if error.kind != "overtaken" or savepoint or fits:
                raise
            return
        assert savepoint or fits
        if not savepoint:
            model.abort(savepoints=False)
            model.head, model.epoch = number, model.epoch + 1
        model.states[number] = "COMPLETED"
        model.committed.add(number)

    @precondition(lambda self: "QUARANTINED" in self.model.states.values())
    @rule(pick=st.integers(0))
    def never_restored_nor_pinned(self, pick: int) -> None:
        aside = [number for number, state in self.model.states.items() if state == "QUARANTINED"]
        number = CheckpointId(aside[pick % len(aside)])
        for attempt in (
            lambda: self.catalog.restore(PIPE, number, None, "o"),
            lambda: self.catalog.cleanup.pin(PIPE, number, "h", 1000),
        ):
            with pytest.raises(InvalidRequestError) as refusal:
                attempt()
            assert refusal.value.kind == "not-completed"

    @precondition(lambda self: "QUARANTINED" in self.model.states.values())
    @rule(pick=st.integers(0))
    def dispose(self, pick: int) -> None:
        aside = [number for number, state in self.model.states.items() if state == "QUARANTINED"]
        number = aside[pick % len(aside)]
        cleanup = self.catalog.cleanup
        for _ in range(2):
            assert cleanup.dispose(PIPE, CheckpointId(number)).state == "DELETING"
        cleanup.confirm_checkpoints(PIPE, [CheckpointId(number)])
        self.model.states[number] = "DELETED"

    @precondition(lambda self: self.model.states)
    @rule(pick=st.integers(0))
    def abort(self, pick: int) -> None:
        number = 1 + pick % len(self.model.states)
        self.catalog.abort(PIPE, CheckpointId(number), "test")
        if self.model.states[number] == "PENDING":
            self.model.states[number] = "ABORTED"

    @precondition(lambda self: "COMPLETED" in self.model.states.values())
    @rule(pick=st.integers(0))
    def restore(self, pick: int) -> None:
        model = self.model
        completed = [number for number, state in model.states.items() if state == "COMPLETED"]
        target = completed[pick % len(completed)]
        self.catalog.restore(PIPE, CheckpointId(target), None, "o")
        model.abort(savepoints=True)
        model.head, model.epoch, model.generation = target, model.epoch + 1, model.generation + 1

    @precondition(lambda self: self.model.states)
    @rule()
    def cancel_and_resume(self) -> None:
        """Cancel the pipeline and resume it. Each takes the epoch and aborts the pending checkpoint; savepoints
        continue."""
        assert self.catalog.suspension.cancel(PIPE, "o").cancelled
        assert not self.catalog.suspension.resume(PIPE, "o").cancelled
        self.model.abort(savepoints=False)
        self.model.epoch += 2

    @rule(count=st.integers(1, 3))
    def clean_up(self, count: int) -> None:
        """Apply retention and gc. They never remove the head or the base of a pending checkpoint."""
        model, cleanup = self.model, self.catalog.cleanup
        if not model.states:
            return
        now = cleanup.situation(PIPE)
        chosen = subsumed(RetentionPolicy(count), now.records, now.head.head, now.in_use)
        bases = {model.bases[number] for number, state in model.states.items() if state == "PENDING"}
        assert not {*chosen} & {model.head, *bases}
        cleanup.subsume(PIPE, chosen, now.head.epoch)
        cleanup.condemn(PIPE, f"run-{len(model.states)}-{model.epoch}")
        cleanup.confirm_checkpoints(PIPE, [r.checkpoint_id for r in cleanup.doomed(PIPE).checkpoints])
        for number in chosen:
            assert model.states[number] in ("COMPLETED", "QUARANTINED")
            model.states[number] = "DELETED"

    @invariant()
    def the_catalog_is_the_model(self) -> None:
        head, records = self.catalog.head(PIPE), self.catalog.list(PIPE)
        assert (head.head, head.epoch, head.generation) == (self.model.head, self.model.epoch, self.model.generation)
        assert {r.checkpoint_id: r.state for r in records} == self.model.states
        assert {r.checkpoint_id: r.base for r in records} == self.model.bases
        assert history_violations(head, records) == []
        committed = {r.checkpoint_id for r in records if is_committed(r)}
        assert committed == self.model.committed
        ended = {r.checkpoint_id for r in records if r.state != "PENDING"}
        assert {r.checkpoint_id for r in records if r.failure is not None} == ended - committed
        if head.head is not None:
            assert [r.checkpoint_id for r in self.catalog.lineage(PIPE, head.head)] == self.model.lineage()
        for day in {0, self.model.days.get(len(self.model.days)) or 1}:
            record = self.catalog.applied(PIPE, DataInterval(day, day + 1))
            assert (record and record.checkpoint_id) == self.model.applied(day)
            assert record is None or is_committed(record)


@pytest.mark.timeout(300)
class TestHistory(History.TestCase):
    settings = settings(
        max_examples=examples(20), stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
    )
