"""Laws of retention, over random histories with restores, savepoints and every state."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from statelib.coordinator.discard import CondemnedFile, discard_plan
from statelib.coordinator.retention import DAY_MS, RetentionPolicy, lineage, retained, subsumed
from statelib.errors import CorruptStateError
from statelib.model.checkpoint import SnapshotKind
from statelib.model.ids import CheckpointId, Epoch, PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState, Owner

POLICIES = st.builds(RetentionPolicy, st.integers(1, 6), st.none() | st.integers(1, 6))


@st.composite
def histories(draw: st.DrawFn) -> list[CheckpointRecord]:
    records = []
    for number in range(1, draw(st.integers(0, 25)) + 1):
        base = draw(st.none() | st.integers(1, number - 1)) if number > 1 else None
        kind = draw(st.sampled_from([SnapshotKind.CHECKPOINT] * 3 + [SnapshotKind.SAVEPOINT]))
        owner = draw(st.sampled_from(Owner)) if kind is SnapshotKind.SAVEPOINT else Owner.SYSTEM
        state = draw(st.sampled_from([CheckpointState.COMPLETED] * 4 + list(CheckpointState)))
        record = CheckpointRecord(
            pipeline=PipelineName("p"),
            checkpoint_id=CheckpointId(number),
            kind=kind,
            state=state,
            owner=owner,
            epoch=Epoch(1),
            key="k",
            generation=0,
            base=None if base is None else CheckpointId(base),
            interval=None,
            strategy="full",
            parallelism=1,
            directory="file:/x",
            created_at_ms=0,
            completed_at_ms=draw(st.integers(0, 10 * DAY_MS)),
        )
        records.append(record)
    return records


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[CheckpointRecord], CheckpointId | None, set[CheckpointId]]:
    records = draw(histories())
    completed = [r.checkpoint_id for r in records if r.state is CheckpointState.COMPLETED]
    head = draw(st.sampled_from(completed)) if completed and draw(st.booleans()) else None
    used = draw(st.sets(st.sampled_from(completed), max_size=2)) if completed else set()
    return records, head, used


@given(situations(), POLICIES)
def test_required_checkpoints_are_kept(situation, policy):
    records, head, used = situation
    gone = set(subsumed(policy, records, head, used))
    by_id = {r.checkpoint_id: r for r in records}
    stored = (CheckpointState.COMPLETED, CheckpointState.QUARANTINED)
    assert all(by_id[n].state in stored and by_id[n].owner is Owner.SYSTEM for n in gone)
    assert head not in gone
    assert not used & gone
    history = lineage(records, head)
    counted = [r for r in records if r.state is CheckpointState.COMPLETED and r.kind is SnapshotKind.CHECKPOINT]
    newest = sorted((r.checkpoint_id for r in counted if r.checkpoint_id in history), reverse=True)
    assert not gone & set(newest[: policy.count])
    if counted:
        assert {r.checkpoint_id for r in records if r.state is CheckpointState.COMPLETED} - gone, "something is left"


@given(situations(), POLICIES)
def test_the_number_of_kept_checkpoints_is_bounded_and_a_second_decision_removes_nothing(situation, policy):
    records, head, used = situation
    gone = set(subsumed(policy, records, head, used))
    left = [r for r in records if r.checkpoint_id not in gone]
    checkpoints = [r for r in left if r.state is CheckpointState.COMPLETED and r.kind is SnapshotKind.CHECKPOINT]
    if policy.days is None:
        assert len(checkpoints) <= 2 * policy.count + len(used) + 1
    assert sum(r.state is CheckpointState.QUARANTINED and r.owner is Owner.SYSTEM for r in left) <= policy.count
    after = [r if r.checkpoint_id not in gone else _deleted(r) for r in records]
    assert subsumed(policy, after, head, used) == ()


@given(situations(), st.integers(1, 6), st.integers(0, 3))
def test_a_larger_count_keeps_at_least_as_much_of_the_history(situation, count, more):
    records, head, used = situation
    history = lineage(records, head)
    small, large = (set(subsumed(RetentionPolicy(n), records, head, used)) for n in (count, count + more))
    counted = {r.checkpoint_id for r in records if r.kind is SnapshotKind.CHECKPOINT}
    assert large & history & counted <= small


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_a_plan_never_deletes_a_referenced_file(condemned, referenced):
    files = [CondemnedFile(f"file:/f{n}", 1, CheckpointId(1)) for n in condemned]
    try:
        plan = discard_plan(PipelineName("p"), [], files, {f"file:/f{n}" for n in referenced})
    except CorruptStateError:
        assert condemned & referenced
    else:
        assert not {f.uri for f in plan.files} & {f"file:/f{n}" for n in referenced}
        assert len(plan.files) == len(condemned)


COUNT = st.integers(1, 5)
STEPS = st.sampled_from(["run"] * 6 + ["restore", "import", "claim", "give up", "forget", "set aside", "clean up"])


@given(st.lists(st.tuples(STEPS, st.integers(0, 1 << 16)), max_size=60), COUNT, st.booleans())
def test_the_newest_completed_checkpoints_are_never_removed(steps, count, forked):
    """The random histories have restores, imports, gaps, quarantine and a fork, with cleanup at any time."""
    history, policy = _Played(forked), RetentionPolicy(count)
    for step, pick in [*steps, ("clean up", 0)]:
        if step == "clean up":
            before, newest = history.records, history.newest(count)
            gone = set(subsumed(policy, before.values(), history.head))
            assert not gone & {*newest, history.head}
            assert set(retained(policy, before.values(), history.head)) >= set(newest)
            history.records = {n: _deleted(r) if n in gone else r for n, r in before.items()}
        else:
            history.play(step, pick)


class _Played:
    """The rows and the head of one pipeline after actions of its coordinator, its users and rebuilds."""

    def __init__(self, forked: bool) -> None:
        self.records: dict[int, CheckpointRecord] = {}
        self.head: CheckpointId | None = None
        self.given_out = 0
        if forked:
            self.head = self.enter(None)

    def enter(self, base: CheckpointId | None, **values: object) -> CheckpointId:
        self.given_out += 1
        number = CheckpointId(self.given_out)
        plain = CheckpointRecord(
            PipelineName("p"), number, SnapshotKind.CHECKPOINT, CheckpointState.COMPLETED, Owner.SYSTEM, Epoch(1), "k",
            0, base, None, "full", 1, "file:/x", 0, completed_at_ms=number,
        )  # fmt: skip
        self.records[number] = replace(plain, **values)
        return number

    def newest(self, count: int) -> list[CheckpointId]:
        ours = [r for r in self.records.values() if r.owner is Owner.SYSTEM and r.kind is SnapshotKind.CHECKPOINT]
        done = [r.checkpoint_id for r in ours if r.state is CheckpointState.COMPLETED]
        return sorted(done, reverse=True)[:count]

    def play(self, step: str, pick: int) -> None:
        stored = [n for n, r in self.records.items() if r.state is CheckpointState.COMPLETED]
        chosen = stored[pick % len(stored)] if stored else None
        if step == "run":
            self.head = self.enter(self.head)
        elif step in ("import", "claim"):
            owner = Owner.SYSTEM if step == "claim" else Owner.USER
            self.head = self.enter(None, kind=SnapshotKind.SAVEPOINT, owner=owner)
        elif step == "set aside":
            self.enter(self.head, state=CheckpointState.QUARANTINED, completed_at_ms=None)
        elif step == "restore" and chosen is not None:
            self.head = CheckpointId(chosen)
        elif step == "give up" and chosen not in (None, self.head):
            gone = replace(self.records[chosen], state=CheckpointState.ABORTED, base=None, completed_at_ms=None)
            self.records[chosen] = gone
        elif step == "forget" and chosen not in (None, self.head):
            del self.records[chosen]


def _deleted(record: CheckpointRecord) -> CheckpointRecord:
    """Return the record as DELETED. A checkpoint that was disposed of in quarantine has no time of completion."""
    completed_at_ms = record.completed_at_ms if record.state is CheckpointState.COMPLETED else None
    return replace(record, state=CheckpointState.DELETED, completed_at_ms=completed_at_ms)
