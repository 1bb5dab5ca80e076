"""The catalog's part of deadlines, reasons of failures, failures in a row, cancelling and resuming."""

import pytest

from statelib.catalog.catalog import Catalog
from statelib.coordinator.invariants import history_violations
from statelib.errors import ConflictError, InvalidRequestError, NotFoundError
from statelib.model.failure import CheckpointFailureReason
from statelib.model.ids import PipelineName
from statelib.model.record import BeginRequest, CheckpointRecord, CheckpointState, PipelineHead
from tests.contract.catalog_kit import PIPE, attempt, complete, facts, locate, postgresql, request, url

__all__ = ["postgresql", "url"]
Reason = CheckpointFailureReason


class Clock:
    now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def catalog(url: str, clock: Clock) -> Catalog:
    made = Catalog(url, clock)
    made.migrate()
    return made


def timed(
    number: int | None, timeout_ms: int | None = 100, tolerable: int | None = None, key: str = ""
) -> BeginRequest:
    plain = request(number, key or None)
    return BeginRequest(
        plain.pipeline, plain.kind, plain.interval, plain.strategy, plain.parallelism, plain.owner, plain.key,
        timeout_ms=timeout_ms, tolerable_failures=tolerable,
    )  # fmt: skip


def fail(catalog: Catalog, number: int, failure: Reason = Reason.TASK_FAILURE) -> CheckpointRecord:
    begun = catalog.begin(request(number), locate)
    return catalog.abort(PIPE, begun.checkpoint_id, "test", failure)


def why(catalog: Catalog, record: CheckpointRecord) -> tuple[CheckpointState, Reason | None]:
    record_now = catalog.get(PIPE, record.checkpoint_id)
    return record_now.state, record_now.failure


def test_every_failed_checkpoint_has_its_reason(catalog: Catalog, clock: Clock):
    aborted = fail(catalog, 0, Reason.FINALIZE_CHECKPOINT_FAILURE)
    assert why(catalog, aborted) == (CheckpointState.ABORTED, Reason.FINALIZE_CHECKPOINT_FAILURE)
    assert aborted.reason == "test"
    subsumed = catalog.begin(request(0), locate)
    done = complete(catalog, 0)
    assert why(catalog, subsumed) == (CheckpointState.ABORTED, Reason.CHECKPOINT_SUBSUMED)
    assert why(catalog, done) == (CheckpointState.COMPLETED, None)
    pending = catalog.begin(request(1), locate)
    catalog.restore(PIPE, done.checkpoint_id, None, "me")
    assert why(catalog, pending) == (CheckpointState.ABORTED, Reason.CHECKPOINT_COORDINATOR_SUSPEND)
    cancelled = catalog.begin(request(1), locate)
    catalog.suspension.cancel(PIPE, "me")
    assert why(catalog, cancelled) == (CheckpointState.ABORTED, Reason.CHECKPOINT_COORDINATOR_SHUTDOWN)


def test_begin_aborts_a_checkpoint_after_its_deadline(catalog: Catalog, clock: Clock):
    late, saving = catalog.begin(timed(0), locate), catalog.begin(timed(None, key="s"), locate)
    assert late.deadline_ms == clock.now_ms + 100
    clock.now_ms += 100
    catalog.begin(timed(0), locate)
    assert why(catalog, late) == (CheckpointState.ABORTED, Reason.CHECKPOINT_SUBSUMED), "not late yet"
    assert catalog.get(PIPE, saving.checkpoint_id).state is CheckpointState.PENDING
    clock.now_ms += 1
    newer = catalog.begin(timed(0), locate)
    assert why(catalog, saving) == (CheckpointState.ABORTED, Reason.CHECKPOINT_EXPIRED)
    clock.now_ms += 101
    catalog.begin(timed(0), locate)
    assert why(catalog, newer) == (CheckpointState.ABORTED, Reason.CHECKPOINT_EXPIRED)
    assert history_violations(catalog.head(PIPE), catalog.list(PIPE)) == []


def test_an_expired_checkpoint_cannot_be_committed(catalog: Catalog, clock: Clock):
    late = catalog.begin(timed(None, key="s"), locate)
    clock.now_ms += 101
    catalog.begin(timed(0), locate)
    with pytest.raises(ConflictError, match="CHECKPOINT_EXPIRED") as refusal:
        catalog.commit(PIPE, late.checkpoint_id, late.epoch, facts(1))
    assert refusal.value.kind == "fenced"


def test_each_attempt_has_the_whole_time_of_the_deadline(catalog: Catalog, clock: Clock):
    begun = catalog.begin(timed(0), locate)
    clock.now_ms += 90
    assert catalog.record_attempt(PIPE, begun.checkpoint_id, attempt(1), 100).deadline_ms == clock.now_ms + 100
    assert catalog.record_attempt(PIPE, begun.checkpoint_id, attempt(2)).deadline_ms == clock.now_ms + 100
    forever = catalog.begin(timed(0, timeout_ms=None), locate)
    clock.now_ms += 10**12
    catalog.begin(timed(0), locate)
    assert why(catalog, forever) == (CheckpointState.ABORTED, Reason.CHECKPOINT_SUBSUMED)


def test_only_consecutive_failures_that_count_are_counted(catalog: Catalog):
    complete(catalog, 0)
    for failure in Reason:
        if not failure.pre_flight:
            fail(catalog, 1, failure)
    counted = sum(f.counts and not f.pre_flight for f in Reason)
    assert catalog.suspension.failures(PIPE) == counted == 5
    saving = catalog.begin(request(None, key="s"), locate)
    catalog.abort(PIPE, saving.checkpoint_id, "test")
    assert catalog.suspension.failures(PIPE) == counted, "savepoints do not count"
    complete(catalog, 1)
    assert catalog.suspension.failures(PIPE) == 0
    fail(catalog, 2)
    assert catalog.suspension.failures(PIPE) == 1


def test_too_many_failures_in_a_row_stop_the_pipeline_until_it_is_resumed(catalog: Catalog):
    for failures in range(3):
        begun = catalog.begin(timed(0, tolerable=2), locate)
        assert catalog.suspension.failures(PIPE) == failures
        catalog.abort(PIPE, begun.checkpoint_id, "test")
    epoch = catalog.head(PIPE).epoch
    with pytest.raises(
        InvalidRequestError, match="the last 3 checkpoints of pipeline flights failed, 2 are"
    ) as refusal:
        catalog.begin(timed(0, tolerable=2), locate)
    assert refusal.value.kind == "too-many-failures"
    assert "statelib pipelines resume flights" in refusal.value.hint
    assert (catalog.head(PIPE).epoch, len(catalog.list(PIPE))) == (epoch, 3), "a refusal leaves nothing"
    catalog.suspension.resume(PIPE, "me")
    assert catalog.suspension.failures(PIPE) == 0
    assert catalog.begin(timed(0, tolerable=0), locate).state is CheckpointState.PENDING


def test_an_expired_checkpoint_counts_in_the_begin_that_detects_it(catalog: Catalog, clock: Clock):
    catalog.begin(timed(0), locate)
    clock.now_ms += 101
    with pytest.raises(InvalidRequestError, match="the last 1 checkpoint "):
        catalog.begin(timed(0, tolerable=0), locate)
    (record,) = catalog.list(PIPE)
    assert record.failure is Reason.CHECKPOINT_EXPIRED, "it is aborted although the begin was refused"


def test_a_restore_resumes_a_cancelled_pipeline(catalog: Catalog):
    done = complete(catalog, 0)
    fail(catalog, 1)
    catalog.suspension.cancel(PIPE, "me")
    head = catalog.restore(PIPE, done.checkpoint_id, None, "me")
    assert not head.cancelled
    assert catalog.begin(timed(1, tolerable=0), locate).state is CheckpointState.PENDING


def test_a_cancelled_pipeline_begins_only_savepoints(catalog: Catalog):
    done, pending = complete(catalog, 0), catalog.begin(request(1), locate)
    head = catalog.suspension.cancel(PIPE, "me")
    assert (head.cancelled, head.head, head.epoch) == (True, done.checkpoint_id, pending.epoch + 1)
    assert catalog.suspension.cancel(PIPE, "me").cancelled, "twice is harmless"
    with pytest.raises(ConflictError):
        catalog.commit(PIPE, pending.checkpoint_id, pending.epoch, facts(9))
    with pytest.raises(InvalidRequestError) as refusal:
        catalog.begin(request(1), locate)
    assert refusal.value.kind == "pipeline-cancelled"
    assert catalog.begin(request(0), locate) == done, "finding the work done is no new checkpoint"
    assert catalog.begin(request(None, key="s"), locate).base == done.checkpoint_id
    assert not catalog.suspension.resume(PIPE, "me").cancelled
    assert complete(catalog, 1).base == done.checkpoint_id


def test_a_pipeline_whose_state_was_discarded_starts_without_state_only_on_request(catalog: Catalog):
    done = complete(catalog, 0)
    head = catalog.suspension.cancel(PIPE, "me")
    with pytest.raises(ConflictError):
        catalog.cleanup.subsume(PIPE, [done.checkpoint_id], head.epoch)
    catalog.cleanup.subsume(PIPE, [done.checkpoint_id], head.epoch, terminated=True)
    for wanted in (request(1), request(None, key="s")):
        assert refused(catalog, wanted) == "state-discarded"
    with pytest.raises(InvalidRequestError) as refusal:
        catalog.suspension.resume(PIPE, "me")
    assert (refusal.value.kind, "--from-nothing" in refusal.value.hint) == ("state-discarded", True)
    resumed = catalog.suspension.resume(PIPE, "me", from_nothing=True)
    assert resumed == PipelineHead(PIPE, resumed.epoch, head.generation + 1, None, None)
    again = catalog.suspension.resume(PIPE, "me", from_nothing=True)
    assert (again.head, again.generation) == (None, resumed.generation), "it may be repeated"
    assert complete(catalog, 0, key="again").base is None
    with pytest.raises(InvalidRequestError) as record:
        catalog.suspension.resume(PIPE, "me", from_nothing=True)
    assert record.value.kind == "state-kept"
    assert history_violations(catalog.head(PIPE), catalog.list(PIPE)) == []


def refused(catalog: Catalog, wanted: BeginRequest) -> str:
    with pytest.raises(InvalidRequestError) as refusal:
        catalog.begin(wanted, locate)
    return refusal.value.kind


def test_a_pipeline_that_never_began_cannot_be_cancelled(catalog: Catalog):
    nobody = PipelineName("nobody")
    for call in (catalog.suspension.cancel, catalog.suspension.resume):
        with pytest.raises(NotFoundError) as refusal:
            call(nobody, "me")
        assert refusal.value.kind == "no-pipeline"
    with pytest.raises(NotFoundError):
        catalog.suspension.failures(nobody)
    assert catalog.pipelines() == ()
