"""Results of the gate and quarantine, on each database."""

import numpy as np
import pytest
from sqlalchemy import update

from statelib.catalog.catalog import Catalog
from statelib.catalog.tables.schema import CHECKPOINT
from statelib.errors import ConflictError, InvalidRequestError, NotFoundError
from statelib.formats.manifest.key_counts_text import key_counts_text
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.key_groups import all_key_groups
from statelib.model.quality import GateSummary, QualityResult, Severity
from statelib.model.record import CheckpointRecord, CheckpointState
from statelib.model.state import KeyCounts
from tests.contract import catalog_kit
from tests.contract.catalog_kit import PIPE, attempt, complete, facts, locate, request

postgresql, url, catalog = catalog_kit.postgresql, catalog_kit.url, catalog_kit.catalog


def result(number: int, severity: Severity, *, passed: bool, sentences: tuple[str, ...] = ()) -> QualityResult:
    return QualityResult("group", f"check {number}", severity, passed, 2**40, 0 if passed else 7, sentences)


def aside(catalog: Catalog, number: int, mark: int, reason: str = "odd") -> CheckpointRecord:
    record = catalog.begin(request(number, f"try-{mark}"), locate)
    return catalog.gate.set_aside(PIPE, record.checkpoint_id, record.epoch, facts(mark), reason)


def test_the_newest_run_is_the_verdict_and_older_runs_are_kept(catalog: Catalog) -> None:
    record = complete(catalog, 1)
    number, other = record.checkpoint_id, complete(catalog, 2).checkpoint_id
    assert catalog.gate.results(PIPE, number) == ()
    bad = result(1, Severity.FAIL, passed=False, sentences=("Größe '; DROP TABLE quality_result", "two\nlines"))
    first = [bad, result(2, Severity.WARN, passed=True)]
    assert catalog.gate.record_results(PIPE, number, first) == 1
    assert catalog.gate.results(PIPE, number) == tuple(first)
    second = [result(n, Severity.WARN, passed=n > 2, sentences=("x",)) for n in range(12)]
    assert catalog.gate.record_results(PIPE, number, second) == 2
    assert catalog.gate.record_results(PIPE, other, first) == 1
    assert catalog.gate.results(PIPE, number) == tuple(second), "in their order, beyond nine too"
    expected = {(PIPE, number): GateSummary(12, 0, 3), (PIPE, other): GateSummary(2, 1, 0)}
    assert catalog.gate.summaries(PIPE) == catalog.gate.summaries() == expected
    assert catalog.gate.summaries(PipelineName("none")) == {}


def test_a_checkpoint_in_quarantine_keeps_its_files_and_does_not_move_the_head(catalog: Catalog) -> None:
    first = complete(catalog, 1)
    record = aside(catalog, 2, 77, "drifted")
    assert (record.state, record.reason, record.completed_at_ms) == (CheckpointState.QUARANTINED, "drifted", None)
    assert (record.entries, record.size_bytes, record.report) == (7, 70, "file:/docs")
    assert catalog.head(PIPE).head == first.checkpoint_id
    assert catalog.gate.set_aside(PIPE, record.checkpoint_id, record.epoch, facts(77), "again") == record
    assert catalog.cleanup.condemn(PIPE, "gc") == 0
    uri = facts(77).files[0].path
    file = catalog.cleanup.file(uri)
    assert file is not None
    assert [r.state for r in file.references] == [CheckpointState.QUARANTINED]
    assert catalog.abort(PIPE, record.checkpoint_id, "late").state is CheckpointState.QUARANTINED
    with pytest.raises(ConflictError) as refusal:
        catalog.commit(PIPE, record.checkpoint_id, record.epoch, facts(77))
    assert refusal.value.kind == "fenced"
    again = catalog.begin(request(2), locate)
    assert (again.base, again.checkpoint_id) == (first.checkpoint_id, record.checkpoint_id + 1)


def test_only_a_pending_checkpoint_of_the_current_epoch_can_be_quarantined(catalog: Catalog) -> None:
    done = complete(catalog, 1)
    old = catalog.begin(request(2), locate)
    new = catalog.begin(request(2, "second"), locate)
    for record in (done, old):
        with pytest.raises(ConflictError) as refusal:
            catalog.gate.set_aside(PIPE, record.checkpoint_id, record.epoch, facts(900), "x")
        assert refusal.value.kind == "fenced"
    with pytest.raises(ConflictError):
        catalog.gate.set_aside(PIPE, new.checkpoint_id, old.epoch, facts(900), "x")
    with pytest.raises(NotFoundError):
        catalog.gate.set_aside(PIPE, CheckpointId(99), new.epoch, facts(900), "x")
    assert catalog.get(PIPE, new.checkpoint_id).state is CheckpointState.PENDING


def test_a_release_moves_the_head_and_fences_a_concurrent_run(catalog: Catalog) -> None:
    complete(catalog, 1)
    record = aside(catalog, 2, 77)
    pending = catalog.begin(request(2, "second"), locate)
    released = catalog.gate.release(PIPE, record.checkpoint_id, "a person", "looked")
    assert (released.state, released.failure, released.reason) == (CheckpointState.COMPLETED, None, "")
    assert released.completed_at_ms is not None
    assert released.note == "released by a person: looked; was in quarantine for: FINALIZE_CHECKPOINT_FAILURE: odd"
    assert catalog.head(PIPE).head == record.checkpoint_id
    with pytest.raises(ConflictError) as refusal:
        catalog.commit(PIPE, pending.checkpoint_id, pending.epoch, facts(78))
    assert refusal.value.kind == "fenced"
    assert catalog.applied(PIPE, request(2).interval) == released
    assert complete(catalog, 3).base == record.checkpoint_id
    with pytest.raises(InvalidRequestError, match="only a checkpoint in quarantine"):
        catalog.gate.release(PIPE, record.checkpoint_id, "a person", "twice")


def test_a_checkpoint_that_the_head_has_passed_cannot_be_released(catalog: Catalog) -> None:
    first = complete(catalog, 1)
    record = aside(catalog, 2, 77)
    catalog.restore(PIPE, first.checkpoint_id, None, "o")
    with pytest.raises(ConflictError, match="generation 1: it cannot be released") as refusal:
        catalog.gate.release(PIPE, record.checkpoint_id, "a person", "")
    assert refusal.value.kind == "overtaken"
    disposed = catalog.cleanup.dispose(PIPE, record.checkpoint_id)
    assert disposed == catalog.cleanup.dispose(PIPE, record.checkpoint_id), "twice is harmless"
    assert disposed.state is CheckpointState.DELETING
    assert catalog.cleanup.condemn(PIPE, "gc") == 1
    catalog.cleanup.confirm_checkpoints(PIPE, [record.checkpoint_id])
    assert catalog.suspension.failures(PIPE) == 0, "a restore forgives"
    with pytest.raises(ConflictError):
        catalog.commit(PIPE, record.checkpoint_id, record.epoch, facts(77))
    assert attempt(77) == disposed.attempt


def test_the_numbers_of_keys_that_the_gate_counted_are_read_back(catalog: Catalog) -> None:
    """Earlier versions wrote numbers without a prefix, and counted keys that have only timers, too."""
    number = complete(catalog, 1).checkpoint_id
    assert catalog.gate.key_counts(PIPE, number, 4) is None
    counts = KeyCounts(all_key_groups(4), np.array([1, 0, 5, 2], np.int64))
    catalog.gate.record_results(PIPE, number, [], counts)
    recorded = catalog.gate.key_counts(PIPE, number, 4)
    assert recorded is not None
    assert recorded.same(counts)
    assert not recorded.with_timers
    assert catalog.get(PIPE, number).keys == 8
    with catalog.gate.transaction("gate results") as connection:
        connection.execute(update(CHECKPOINT).values(key_counts=key_counts_text(counts)))
    earlier = catalog.gate.key_counts(PIPE, number, 4)
    assert earlier is not None
    assert earlier.same(counts)
    assert earlier.with_timers
