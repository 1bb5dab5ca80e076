"""Savepoints that stop their pipeline: no interval is applied in between, and after a failed one the pipeline
continues."""

import threading
from dataclasses import replace

import pytest

from statelib.catalog.catalog import Catalog
from statelib.errors import ConflictError, InvalidRequestError
from statelib.model.record import BeginRequest, CheckpointRecord, CheckpointState
from statelib.model.termination import StopMode
from tests.contract.catalog_kit import PIPE, complete, facts, locate, postgresql, request, url

__all__ = ["postgresql", "url"]


class Clock:
    now_ms = 1_000

    def __call__(self) -> int:
        self.now_ms += 1
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def catalog(url: str, clock: Clock) -> Catalog:
    made = Catalog(url, clock)
    made.migrate()
    return made


def stopping(mode: StopMode = StopMode.SUSPEND, key: str = "stop", timeout_ms: int | None = None) -> BeginRequest:
    return replace(request(None, key=key), stop=mode, timeout_ms=timeout_ms)


def cancelled(catalog: Catalog) -> bool:
    return catalog.head(PIPE).cancelled


@pytest.mark.parametrize("mode", list(StopMode))
def test_after_a_stopping_savepoint_has_begun_the_pipeline_begins_no_checkpoint(catalog: Catalog, mode: StopMode):
    done, pending = complete(catalog, 0), catalog.begin(request(1), locate)
    savepoint = catalog.begin(stopping(mode), locate)
    assert (savepoint.base, savepoint.stop) == (done.checkpoint_id, mode)
    assert cancelled(catalog)
    assert catalog.get(PIPE, pending.checkpoint_id).state is CheckpointState.ABORTED
    with pytest.raises(ConflictError, match="ABORTED"):
        catalog.commit(PIPE, pending.checkpoint_id, pending.epoch, facts(9))
    with pytest.raises(InvalidRequestError) as refusal:
        catalog.begin(request(1), locate)
    assert refusal.value.kind == "pipeline-cancelled"
    assert catalog.begin(stopping(mode), locate) == savepoint, "the same request is the same savepoint"
    committed = catalog.commit(PIPE, savepoint.checkpoint_id, savepoint.epoch, facts(1))
    assert (committed.state, committed.stop, catalog.head(PIPE).head) == (
        CheckpointState.COMPLETED,
        mode,
        done.checkpoint_id,
    )
    assert cancelled(catalog)
    assert not catalog.suspension.resume(PIPE, "me").cancelled
    assert complete(catalog, 1).base == done.checkpoint_id


def test_after_a_failed_savepoint_the_pipeline_continues(catalog: Catalog):
    complete(catalog, 0)
    savepoint = catalog.begin(stopping(), locate)
    catalog.abort(PIPE, savepoint.checkpoint_id, "no space left")
    assert not cancelled(catalog)
    assert complete(catalog, 1).state is CheckpointState.COMPLETED


def test_after_an_expired_savepoint_the_pipeline_continues(catalog: Catalog, clock: Clock):
    complete(catalog, 0)
    catalog.begin(stopping(timeout_ms=100), locate)
    clock.now_ms += 1_000
    assert complete(catalog, 1).state is CheckpointState.COMPLETED


def test_a_pipeline_that_its_user_cancels_meanwhile_stays_cancelled(catalog: Catalog):
    complete(catalog, 0)
    savepoint = catalog.begin(stopping(), locate)
    catalog.suspension.cancel(PIPE, "somebody")
    catalog.abort(PIPE, savepoint.checkpoint_id, "no space left")
    assert cancelled(catalog)


def test_an_old_failed_stop_does_not_undo_a_later_one(catalog: Catalog):
    complete(catalog, 0)
    first = catalog.begin(stopping(key="first"), locate)
    catalog.abort(PIPE, first.checkpoint_id, "no space left")
    second = catalog.begin(stopping(key="second"), locate)
    plain = catalog.begin(request(None, key="plain"), locate)
    catalog.abort(PIPE, plain.checkpoint_id, "unwanted")
    assert cancelled(catalog)
    catalog.commit(PIPE, second.checkpoint_id, second.epoch, facts(1))
    assert cancelled(catalog)


def test_a_stopped_pipeline_is_not_stopped_again(catalog: Catalog):
    complete(catalog, 0)
    catalog.suspension.cancel(PIPE, "me")
    with pytest.raises(InvalidRequestError) as refusal:
        catalog.begin(stopping(), locate)
    assert refusal.value.kind == "pipeline-cancelled"
    assert "statelib savepoint create" in refusal.value.hint


def test_a_stop_and_an_interval_that_begin_at_the_same_time_lose_no_events(catalog: Catalog):
    """In this race an interval that committed is in the savepoint's base, and one that did not is in no checkpoint."""
    for number in range(1, 9):
        head = catalog.head(PIPE).head
        begun = catalog.begin(request(number), locate)
        results: list[CheckpointRecord | Exception] = []

        def commit(record: CheckpointRecord = begun, into: list[CheckpointRecord | Exception] = results) -> None:
            try:
                into.append(catalog.commit(PIPE, record.checkpoint_id, record.epoch, facts(record.checkpoint_id)))
            except ConflictError as error:
                into.append(error)

        thread = threading.Thread(target=commit)
        thread.start()
        if head is None:
            thread.join()
        savepoint = catalog.begin(stopping(key=f"stop {number}"), locate)
        thread.join()
        committed = isinstance(results[0], CheckpointRecord)
        assert savepoint.base == (begun.checkpoint_id if committed else head)
        assert catalog.head(PIPE).head == savepoint.base
        catalog.commit(PIPE, savepoint.checkpoint_id, savepoint.epoch, facts(savepoint.checkpoint_id))
        catalog.suspension.resume(PIPE, "me")
