"""The catalog's contract, on each kind of database it runs on."""

import multiprocessing
from dataclasses import replace

import pytest
from sqlalchemy import func, select
from sqlalchemy.engine.default import DefaultDialect

from statelib.catalog.catalog import Catalog
from statelib.catalog.commit.restoring import NO_HEAD
from statelib.catalog.tables.schema import ATTEMPT, FILE, REF
from statelib.coordinator.invariants import history_violations
from statelib.errors import ConflictError, InvalidRequestError, NotFoundError, RetryableError
from statelib.model.checkpoint import EventCounts, FileRecord
from statelib.model.failure import CheckpointFailureReason
from statelib.model.ids import CheckpointId, Epoch, PipelineName
from statelib.model.key_groups import KeyGroupRange
from statelib.model.record import CheckpointState, Owner, PipelineHead
from tests.contract import catalog_kit
from tests.contract.catalog_kit import (
    PIPE,
    attempt,
    clock,
    complete,
    day,
    facts,
    locate,
    request,
    rows,
)

postgresql, url, catalog = catalog_kit.postgresql, catalog_kit.url, catalog_kit.catalog
SPAWN = multiprocessing.get_context("spawn")


def work_in_parallel(url: str, worker: int, barrier, results) -> None:
    catalog = Catalog(url, clock)
    barrier.wait()
    catalog.migrate()
    seen = []
    for turn in range(8):
        record = catalog.begin(request(worker * 100 + turn), locate)
        try:
            catalog.commit(PIPE, record.checkpoint_id, record.epoch, facts(record.checkpoint_id))
            committed = True
        except ConflictError as error:
            if error.kind != "fenced":
                raise
            committed = False
        seen.append((record.epoch, record.checkpoint_id, committed))
    results.put(seen)


def test_concurrent_processes_get_distinct_epochs_and_leave_one_history(url: str):
    barrier, results = SPAWN.Barrier(4), SPAWN.Queue()
    workers = [SPAWN.Process(target=work_in_parallel, args=(url, w, barrier, results)) for w in range(4)]
    for worker in workers:
        worker.start()
    seen = [entry for _ in workers for entry in results.get(timeout=120)]
    for worker in workers:
        worker.join()
    assert len({epoch for epoch, _, _ in seen}) == 32
    assert {number for _, number, _ in seen} == set(range(1, 33))
    catalog = Catalog(url, clock)
    head = catalog.head(PIPE)
    assert head.epoch == 32
    assert history_violations(head, catalog.list(PIPE)) == []
    committed = {number for _, number, won in seen if won}
    assert {r.checkpoint_id for r in catalog.list(PIPE, {CheckpointState.COMPLETED})} == committed
    assert head.head == max(committed)
    assert {r.checkpoint_id for r in catalog.lineage(PIPE, head.head)} == committed


def test_a_first_checkpoint_begins_without_a_base(catalog: Catalog):
    assert catalog.head(PIPE) == PipelineHead(PIPE, Epoch(0), 0, None, None)
    record = catalog.begin(request(0), locate)
    assert (record.checkpoint_id, record.epoch, record.generation, record.base) == (1, 1, 0, None)
    assert (record.state, record.owner, record.interval) == (CheckpointState.PENDING, Owner.SYSTEM, day(0))
    assert record.directory == "file:/state/flights/chk-1"
    assert record.events is None
    assert record.entries is None
    assert catalog.head(PIPE) == PipelineHead(PIPE, Epoch(1), 0, None, None)
    assert catalog.pipelines() == (PIPE,)


def test_commit_writes_the_facts_and_moves_the_head(url: str, catalog: Catalog):
    record = complete(catalog, 0)
    assert record.state is CheckpointState.COMPLETED
    assert (record.entries, record.size_bytes, record.events) == (7, 70, EventCounts(9, 8, 1))
    assert record.report == "file:/docs"
    assert record.attempt == attempt(1001)
    assert record == catalog.get(PIPE, record.checkpoint_id)
    assert catalog.head(PIPE).head == record.checkpoint_id
    assert rows(url, select(FILE.c.size_bytes, FILE.c.crc32c, FILE.c.state, FILE.c.owner)) == [
        (1011, 0xF0000000 + 1001, "LIVE", "SYSTEM")
    ]
    assert rows(url, select(REF.c.checkpoint_id)) == [(1,)]
    assert complete(catalog, 1).base == record.checkpoint_id


def test_a_fenced_coordinator_cannot_commit(url: str, catalog: Catalog):
    zombie = catalog.begin(request(0), locate)
    taken_over = catalog.begin(request(0, owner="run-2"), locate)
    with pytest.raises(ConflictError, match="superseded by checkpoint 2 of run-2") as refusal:
        catalog.commit(PIPE, zombie.checkpoint_id, zombie.epoch, facts(1))
    assert refusal.value.kind == "fenced"
    with pytest.raises(ConflictError) as refusal:
        catalog.commit(PIPE, zombie.checkpoint_id, taken_over.epoch, facts(1))
    assert refusal.value.kind == "fenced"
    assert catalog.head(PIPE).head is None
    assert rows(url, select(func.count()).select_from(FILE)) == [(0,)]
    catalog.commit(PIPE, taken_over.checkpoint_id, taken_over.epoch, facts(2))
    assert catalog.head(PIPE).head == taken_over.checkpoint_id


def test_a_stale_epoch_cannot_commit_a_pending_checkpoint(catalog: Catalog):
    record = catalog.begin(request(0), locate)
    with pytest.raises(ConflictError) as refusal:
        catalog.commit(PIPE, record.checkpoint_id, Epoch(record.epoch - 1), facts(1))
    assert refusal.value.kind == "fenced"
    assert catalog.get(PIPE, record.checkpoint_id).state is CheckpointState.PENDING


def test_beginning_the_same_key_or_interval_again_returns_the_completed_checkpoint(catalog: Catalog):
    done = complete(catalog, 0)
    epoch = catalog.head(PIPE).epoch
    assert catalog.begin(request(0), locate) == done
    assert catalog.begin(request(0, key="another key"), locate) == done
    assert catalog.begin(request(5, key="day-0"), locate) == done
    assert catalog.head(PIPE).epoch == epoch, "finding the work done must not fence anybody"
    assert [r.checkpoint_id for r in catalog.list()] == [1]


def test_begin_after_a_crash_aborts_the_older_pending_one(url: str, catalog: Catalog):
    crashed = catalog.begin(request(0), locate)
    catalog.record_attempt(PIPE, crashed.checkpoint_id, attempt(1))
    again = catalog.begin(request(0, owner="retry"), locate)
    assert again.checkpoint_id == crashed.checkpoint_id + 1
    old = catalog.get(PIPE, crashed.checkpoint_id)
    assert (old.state, old.reason) == (CheckpointState.ABORTED, "superseded by checkpoint 2 of retry")
    assert rows(url, select(ATTEMPT.c.attempt, ATTEMPT.c.state)) == [(attempt(1), "ABORTED")]


def test_begin_is_refused_if_the_head_has_moved_meanwhile(catalog: Catalog):
    first = complete(catalog, 0)
    complete(catalog, 1)
    seen = catalog.head(PIPE)
    catalog.restore(PIPE, first.checkpoint_id, None, "somebody else")
    with pytest.raises(ConflictError, match="expected head 2 in generation 0") as refusal:
        catalog.begin(replace(request(2), decided_at=seen), locate)
    assert refusal.value.kind == "head-moved"
    assert catalog.list(PIPE, {CheckpointState.PENDING}) == []
    again = catalog.begin(replace(request(1, key="again"), decided_at=catalog.head(PIPE)), locate)
    assert (again.base, again.generation) == (first.checkpoint_id, 1)


def test_pipelines_do_not_affect_each_other(catalog: Catalog):
    other = PipelineName("routes")
    mine, theirs = catalog.begin(request(0), locate), catalog.begin(request(0, pipeline=other), locate)
    assert theirs.checkpoint_id == 1
    assert catalog.get(PIPE, mine.checkpoint_id).state is CheckpointState.PENDING
    catalog.commit(other, theirs.checkpoint_id, theirs.epoch, facts(1))
    assert catalog.head(PIPE).head is None
    assert catalog.applied(PIPE, day(0)) is None
    assert catalog.pipelines() == (PIPE, other)


def test_a_savepoint_changes_neither_checkpoint_nor_epoch_nor_head(url: str, catalog: Catalog):
    first = complete(catalog, 0)
    pending = catalog.begin(request(1), locate)
    savepoint = catalog.begin(request(None, key="before release"), locate)
    assert (savepoint.base, savepoint.owner, savepoint.epoch) == (first.checkpoint_id, Owner.USER, pending.epoch)
    assert catalog.get(PIPE, pending.checkpoint_id).state is CheckpointState.PENDING
    assert catalog.begin(request(None, key="before release"), locate) == savepoint, "a repeated request resumes"
    catalog.commit(PIPE, pending.checkpoint_id, pending.epoch, facts(1))
    newer = complete(catalog, 2)
    done = catalog.commit(PIPE, savepoint.checkpoint_id, savepoint.epoch, facts(2))
    assert done.state is CheckpointState.COMPLETED, "later checkpoints do not fence a savepoint"
    assert catalog.head(PIPE).head == newer.checkpoint_id
    assert catalog.begin(request(None, key="before release"), locate) == done
    assert rows(url, select(FILE.c.owner).where(FILE.c.created_by == savepoint.checkpoint_id)) == [("USER",)]


def test_an_aborted_savepoint_can_begin_again(catalog: Catalog):
    lost = catalog.begin(request(None, key="s"), locate)
    assert catalog.abort(PIPE, lost.checkpoint_id, "gate failed").reason == "gate failed"
    assert catalog.begin(request(None, key="s"), locate).checkpoint_id == lost.checkpoint_id + 1


def test_restore_moves_the_head_and_lets_intervals_be_applied_again(catalog: Catalog):
    first, second, third = (complete(catalog, n) for n in range(3))
    pending, savepoint = catalog.begin(request(3), locate), catalog.begin(request(None, key="s"), locate)
    head = catalog.restore(PIPE, first.checkpoint_id, 4, "operator")
    assert head == PipelineHead(PIPE, Epoch(pending.epoch + 1), 1, first.checkpoint_id, 4)
    assert catalog.head(PIPE) == head
    for aborted in (pending, savepoint):
        record = catalog.get(PIPE, aborted.checkpoint_id)
        assert (record.state, record.reason) == (
            CheckpointState.ABORTED,
            "superseded by the restore of 1 by operator",
        )
    assert catalog.applied(PIPE, day(0)) == first
    assert catalog.applied(PIPE, day(1)) is None
    replayed = complete(catalog, 1)
    assert replayed.checkpoint_id not in (second.checkpoint_id, third.checkpoint_id)
    assert (replayed.base, replayed.generation) == (first.checkpoint_id, 1)
    assert catalog.applied(PIPE, day(1)) == replayed
    assert catalog.applied(PIPE, day(2)) is None
    assert [r.checkpoint_id for r in catalog.lineage(PIPE, replayed.checkpoint_id)] == [6, 1]
    assert [r.checkpoint_id for r in catalog.lineage(PIPE, third.checkpoint_id)] == [3, 2, 1]
    assert catalog.restore(PIPE, third.checkpoint_id, None, "operator").parallelism == 4, "None keeps what is set"
    assert catalog.applied(PIPE, day(2)) == third


def test_a_restore_that_names_the_head_it_replaces_is_refused_after_that_moved_on(catalog: Catalog):
    first, second, third = (complete(catalog, n) for n in range(3))
    pending = catalog.begin(request(3), locate)
    with pytest.raises(ConflictError, match=r"was checkpoint 2 .* is 3 now") as refusal:
        catalog.restore(PIPE, first.checkpoint_id, None, "operator", instead_of=second.checkpoint_id)
    assert refusal.value.kind == "plan-changed"
    assert catalog.get(PIPE, pending.checkpoint_id).state is CheckpointState.PENDING, "nothing was aborted"
    for _ in range(2):
        head = catalog.restore(PIPE, first.checkpoint_id, None, "operator", instead_of=third.checkpoint_id)
        assert head.head == first.checkpoint_id, "it may be repeated after a lost answer"
    with pytest.raises(ConflictError, match="was checkpoint None"):
        catalog.restore(PIPE, third.checkpoint_id, None, "operator", instead_of=CheckpointId(NO_HEAD))


def test_a_restore_with_a_key_is_done_once_whatever_came_after_it(catalog: Catalog):
    first, second = (complete(catalog, n) for n in range(2))
    wanted = {"instead_of": second.checkpoint_id, "key": "back/1"}
    assert catalog.restore(PIPE, first.checkpoint_id, 4, "operator", **wanted).generation == 1
    replayed, pending = complete(catalog, 1), catalog.begin(request(2), locate)
    head = catalog.restore(PIPE, first.checkpoint_id, 4, "operator", **wanted)
    assert (head.head, head.generation, head.epoch) == (replayed.checkpoint_id, 1, pending.epoch)
    assert catalog.get(PIPE, pending.checkpoint_id).state is CheckpointState.PENDING
    assert catalog.restore(PIPE, second.checkpoint_id, None, "somebody", key="back/2").generation == 2
    assert catalog.restore(PIPE, first.checkpoint_id, 4, "operator", **wanted).head == second.checkpoint_id
    for generation in (3, 4):
        head = catalog.restore(PIPE, first.checkpoint_id, None, "operator")
        assert (head.head, head.generation) == (first.checkpoint_id, generation), "without a key it is done each time"


def test_only_completed_checkpoints_can_be_restored(catalog: Catalog):
    pending = catalog.begin(request(0), locate)
    for number, error, kind in ((1, InvalidRequestError, "not-completed"), (2, NotFoundError, "no-checkpoint")):
        with pytest.raises(error) as refusal:
            catalog.restore(PIPE, CheckpointId(number), None, "operator")
        assert refusal.value.kind == kind
    with pytest.raises(InvalidRequestError, match="parallelism 0"):
        catalog.restore(PIPE, pending.checkpoint_id, 0, "operator")
    assert catalog.head(PIPE) == PipelineHead(PIPE, pending.epoch, 0, None, None), "a refused restore takes nothing"
    with pytest.raises(NotFoundError):
        catalog.restore(PipelineName("unknown"), CheckpointId(1), None, "operator")
    assert catalog.pipelines() == (PIPE,), "a refused restore makes no pipeline"


def test_committing_the_same_attempt_twice_is_one_commit(url: str, catalog: Catalog):
    record = catalog.begin(request(0), locate)
    for number in (1, 2):
        catalog.record_attempt(PIPE, record.checkpoint_id, attempt(number))
    catalog.record_attempt(PIPE, record.checkpoint_id, attempt(2))
    done = catalog.commit(PIPE, record.checkpoint_id, record.epoch, facts(1))
    later = complete(catalog, 1)
    assert catalog.commit(PIPE, record.checkpoint_id, record.epoch, facts(1)) == done
    assert catalog.head(PIPE).head == later.checkpoint_id, "a repeated commit does not move the head back"
    with pytest.raises(ConflictError) as refusal:
        catalog.commit(PIPE, record.checkpoint_id, record.epoch, facts(2))
    assert refusal.value.kind == "fenced"
    states = select(ATTEMPT.c.state).where(ATTEMPT.c.checkpoint_id == 1).order_by(ATTEMPT.c.attempt)
    assert rows(url, states) == [("WON",), ("LOST",)]


def lose_replies(monkeypatch: pytest.MonkeyPatch, *, applied: bool, times: int = 1) -> None:
    """Let the next commits end in a broken connection, after or before the database applied them."""
    real, left = DefaultDialect.do_commit, [times]

    def lossy(self, connection) -> None:
        if not left[0]:
            return real(self, connection)
        left[0] -= 1
        if applied:
            real(self, connection)
        raise self.loaded_dbapi.OperationalError("the reply was lost")

    monkeypatch.setattr(DefaultDialect, "do_commit", lossy)


def test_after_a_lost_reply_the_result_of_a_commit_is_read_back(catalog: Catalog, monkeypatch: pytest.MonkeyPatch):
    record = catalog.begin(request(0), locate)
    lose_replies(monkeypatch, applied=True)
    done = catalog.commit(PIPE, record.checkpoint_id, record.epoch, facts(1))
    assert done.state is CheckpointState.COMPLETED
    assert catalog.head(PIPE).head == record.checkpoint_id


def test_a_commit_that_was_not_applied_can_be_repeated(catalog: Catalog, monkeypatch: pytest.MonkeyPatch):
    record = catalog.begin(request(0), locate)
    lose_replies(monkeypatch, applied=False)
    with pytest.raises(RetryableError, match="PENDING") as unknown:
        catalog.commit(PIPE, record.checkpoint_id, record.epoch, facts(1))
    assert unknown.value.kind == "commit-unknown"
    assert catalog.head(PIPE).head is None
    assert catalog.commit(PIPE, record.checkpoint_id, record.epoch, facts(1)).state is CheckpointState.COMPLETED


def test_while_the_database_is_unreachable_the_outcome_stays_unknown(catalog: Catalog, monkeypatch: pytest.MonkeyPatch):
    record = catalog.begin(request(0), locate)
    with monkeypatch.context() as away:
        # The reply to the commit is lost, and so is the one to the read-back.
        lose_replies(away, applied=True, times=2)
        with pytest.raises(RetryableError, match="unreadable") as unknown:
            catalog.commit(PIPE, record.checkpoint_id, record.epoch, facts(1))
    assert unknown.value.kind == "commit-unknown"
    again = catalog.commit(PIPE, record.checkpoint_id, record.epoch, facts(1))
    assert again.state is CheckpointState.COMPLETED


def test_ids_are_never_reused(catalog: Catalog):
    numbers = []
    for turn in range(4):
        record = catalog.begin(request(turn % 2), locate)
        catalog.abort(PIPE, record.checkpoint_id, "test")
        numbers.append(record.checkpoint_id)
    numbers.append(catalog.begin(request(None, key="s"), locate).checkpoint_id)
    assert numbers == [1, 2, 3, 4, 5]


def test_abort_changes_only_pending_checkpoints(catalog: Catalog):
    done = complete(catalog, 0)
    assert catalog.abort(PIPE, done.checkpoint_id, "too late") == done
    assert catalog.head(PIPE).head == done.checkpoint_id
    pending = catalog.begin(request(1), locate)
    aborted = catalog.abort(PIPE, pending.checkpoint_id, "first reason")
    assert (aborted.state, aborted.reason) == (CheckpointState.ABORTED, "first reason")
    assert catalog.abort(PIPE, pending.checkpoint_id, "second reason") == aborted
    with pytest.raises(ConflictError):
        catalog.commit(PIPE, pending.checkpoint_id, pending.epoch, facts(1))
    with pytest.raises(NotFoundError):
        catalog.abort(PIPE, CheckpointId(99), "no such thing")


@pytest.mark.parametrize(
    ("reason", "recorded"),
    [
        ("run 7: snapshot failed", "run 7: snapshot failed: bad-value: expected 1"),
        ("expected 1", "bad-value: expected 1"),
    ],
    ids=["another reason", "the same reason"],
)
def test_the_reason_of_an_attempt_that_failed_is_recorded_once(catalog: Catalog, reason: str, recorded: str):
    pending = catalog.begin(request(0), locate)
    catalog.record_attempt(PIPE, pending.checkpoint_id, attempt(1))
    declined = CheckpointFailureReason.CHECKPOINT_DECLINED
    catalog.note_failure(PIPE, pending.checkpoint_id, attempt(1), declined, "bad-value: expected 1")
    aborted = catalog.abort(PIPE, pending.checkpoint_id, reason)
    assert (aborted.failure, aborted.reason) == (declined, recorded)


def test_attempts_belong_to_one_pending_checkpoint(catalog: Catalog):
    done = complete(catalog, 0)
    with pytest.raises(ConflictError) as refusal:
        catalog.record_attempt(PIPE, done.checkpoint_id, attempt(5))
    assert refusal.value.kind == "not-pending"
    pending = catalog.begin(request(1), locate)
    with pytest.raises(ConflictError) as refusal:
        catalog.record_attempt(PIPE, pending.checkpoint_id, done.attempt)
    assert refusal.value.kind == "attempt-reused"
    assert catalog.get(PIPE, pending.checkpoint_id).attempt is None


def test_a_known_file_with_other_bytes_is_refused(catalog: Catalog):
    name = "file:/state/a"
    for number, size, crc in ((0, 10, 1), (1, 10, 2), (2, 11, 1)):
        record = catalog.begin(request(number), locate)
        made = facts(number, (FileRecord(name, size, crc, 0, KeyGroupRange(0, 127)),))
        if number == 0:
            catalog.commit(PIPE, record.checkpoint_id, record.epoch, made)
            continue
        with pytest.raises(ConflictError, match="file:/state/a") as refusal:
            catalog.commit(PIPE, record.checkpoint_id, record.epoch, made)
        assert refusal.value.kind == "file-changed"
        assert catalog.get(PIPE, record.checkpoint_id).state is CheckpointState.PENDING
