"""The catalog's contract, fourth part: histories by the page, verdicts, who shares a file, and storage over time."""

from dataclasses import replace

import pytest
from sqlalchemy import create_engine, func, insert, select, update

from statelib.catalog.catalog import Catalog
from statelib.catalog.tables.schema import CHECKPOINT, LEASE, QUALITY_RESULT, STORAGE_SAMPLE
from statelib.catalog.views.browsing import MAX_LINEAGE, PageRequest
from statelib.catalog.views.storage_use import FINE_MS, Usage
from statelib.errors import InvalidRequestError, NotFoundError
from statelib.model.checkpoint import FileRecord, SnapshotMeasure
from statelib.model.failure import CheckpointFailureReason
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.key_groups import KeyGroupRange
from statelib.model.moments import HOUR_MS
from statelib.model.quality import GateSummary
from tests.contract import catalog_kit
from tests.contract.catalog_kit import PIPE, attempt, complete, facts, locate, request, rows

postgresql, url, catalog = catalog_kit.postgresql, catalog_kit.url, catalog_kit.catalog
OTHER = PipelineName("aircraft")
METADATA_BYTES = 60
"""The size of the metadata of each checkpoint of the kit."""


def page(catalog: Catalog, **wanted: object) -> list[int]:
    return [e.checkpoint_id for e in catalog.browsing.page(PIPE, PageRequest(**wanted)).entries]


def commit(catalog: Catalog, number: int, uploaded: int | None, files: tuple[FileRecord, ...] | None = None) -> int:
    """Commit the checkpoint of a day, which wrote so many bytes."""
    record = catalog.begin(request(number), locate)
    measured = None if uploaded is None else SnapshotMeasure(1, 2, 3, uploaded, number)
    done = replace(facts(record.checkpoint_id, files), measured=measured, entries=100 - number)
    return catalog.commit(PIPE, record.checkpoint_id, record.epoch, done).checkpoint_id


def change(url: str, *statements: object) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(statement)
    engine.dispose()


def test_a_history_is_sorted_by_any_figure_with_unknown_ones_last(catalog: Catalog):
    for number, uploaded in enumerate((30, None, 10, 20)):
        commit(catalog, number, uploaded)
    assert page(catalog) == [4, 3, 2, 1]
    assert page(catalog, sort="uploaded_bytes") == [1, 4, 3, 2]
    assert page(catalog, sort="uploaded_bytes", descending=False) == [3, 4, 1, 2]
    assert page(catalog, sort="entries", limit=2, offset=1) == [2, 3]
    assert page(catalog, sort="keys_changed", descending=False) == [1, 3, 4, 2]
    for wrong in ({"sort": "note; DROP"}, {"limit": 0}, {"limit": 501}, {"offset": -1}):
        with pytest.raises(InvalidRequestError) as refusal:
            PageRequest(**wrong)
        assert refusal.value.kind == "bad-page"


def test_a_history_is_filtered_and_counted_before_it_is_divided_into_pages(catalog: Catalog):
    complete(catalog, 0)
    expired = CheckpointFailureReason.CHECKPOINT_EXPIRED
    catalog.abort(PIPE, catalog.begin(request(1), locate).checkpoint_id, "50%_done\\", expired)
    saved = catalog.begin(replace(request(None), note="Before the RELEASE"), locate)
    catalog.commit(PIPE, saved.checkpoint_id, saved.epoch, facts(70))
    assert page(catalog, states=("ABORTED",)) == [2]
    assert page(catalog, kinds=("SAVEPOINT",)) == [3]
    assert page(catalog, states=("ABORTED", "NEVER_HEARD_OF")) == [2]
    assert page(catalog, text="release") == [3]
    assert page(catalog, text="50%_done\\") == [2]
    assert page(catalog, text="%") == [2]
    assert page(catalog, text=str(expired)[:6].lower()) == [2]
    assert page(catalog, text="3") == [3]
    first_page = catalog.browsing.page(PIPE, PageRequest(limit=1, kinds=("CHECKPOINT",)))
    assert (first_page.total, [e.checkpoint_id for e in first_page.entries]) == (2, [2])
    assert catalog.browsing.page(OTHER, PageRequest()).total == 0


def test_a_summary_has_head_pending_and_failed_checkpoints_of_each_pipeline(url: str, catalog: Catalog):
    complete(catalog, 0)
    for number in (1, 2):
        pending = catalog.begin(request(number), locate)
        catalog.abort(PIPE, pending.checkpoint_id, "x", CheckpointFailureReason.TASK_FAILURE)
    catalog.begin(request(3), locate)
    complete(catalog, 0, OTHER)
    change(url, update(CHECKPOINT).where(CHECKPOINT.c.checkpoint_id == 2).values(state="QUARANTINED"))
    summaries = catalog.browsing.summaries([PIPE, OTHER, PipelineName("unknown")])
    first, other = summaries[PIPE], summaries[OTHER]
    assert set(summaries) == {PIPE, OTHER}
    assert (first.failures, first.quarantined, other.failures, other.quarantined) == (2, 1, 0, 0)
    assert first.failures == catalog.suspension.failures(PIPE)
    assert (first.head.checkpoint_id, first.pending.checkpoint_id, other.pending) == (1, 4, None)
    assert (first.head.head, first.pending.head) == (True, False)


def test_a_state_of_a_later_version_is_shown_as_it_is(url: str, catalog: Catalog):
    complete(catalog, 0)
    complete(catalog, 1)
    change(url, update(CHECKPOINT).where(CHECKPOINT.c.checkpoint_id == 1).values(state="FROZEN", failure="NEW"))
    assert catalog.browsing.entry(PIPE, CheckpointId(1)).state == "FROZEN"
    assert [a.state for a in catalog.browsing.lineage(PIPE, CheckpointId(2))] == ["COMPLETED", "FROZEN"]
    assert catalog.browsing.storage.now([PIPE])[PIPE].files == 4
    with pytest.raises(NotFoundError, match="flights has no checkpoint 9"):
        catalog.browsing.entry(PIPE, CheckpointId(9))


def test_the_newest_run_of_the_gate_is_the_verdict(url: str, catalog: Catalog):
    complete(catalog, 0)
    complete(catalog, 1)
    rows_of_gate = [
        result(run=1, position=0, severity="FAIL", passed=0),
        result(run=2, position=1, severity="WARN", passed=0),
        result(run=2, position=0, severity="QUARANTINE", passed=1),
        result(run=2, position=2, severity="FAIL", passed=0),
    ]
    change(url, insert(QUALITY_RESULT).values(rows_of_gate))
    entry = catalog.browsing.entry(PIPE, CheckpointId(1))
    assert entry.gate == GateSummary(checked=3, failed=1, warned=1)
    assert not entry.gate.passed
    assert catalog.browsing.entry(PIPE, CheckpointId(2)).gate is None
    verdict = catalog.browsing.quality(PIPE, CheckpointId(1))
    assert [(q.severity, q.passed, q.sentences) for q in verdict] == [
        ("QUARANTINE", True, ("it is",)),
        ("WARN", False, ("it is",)),
        ("FAIL", False, ("it is",)),
    ]


def result(**given: object) -> dict[str, object]:
    common = {"pipeline": PIPE, "checkpoint_id": 1, "check_group": "g", "check_name": "n", "sentences": '["it is"]'}
    return {**common, "checked": 5, "failed": 2, "at_ms": 1, **given}


def test_a_lineage_has_a_limited_length(url: str, catalog: Catalog):
    complete(catalog, 0)
    (row,) = rows(url, select(CHECKPOINT))
    values = dict(zip(CHECKPOINT.c.keys(), row, strict=True))
    more = [{**values, "checkpoint_id": n, "base": n - 1} for n in range(2, 400)]
    change(url, insert(CHECKPOINT).values(more[:200]), insert(CHECKPOINT).values(more[200:]))
    ancestors = [a.checkpoint_id for a in catalog.browsing.lineage(PIPE, CheckpointId(399))]
    assert ancestors == list(range(399, 399 - MAX_LINEAGE, -1))
    assert [a.checkpoint_id for a in catalog.browsing.lineage(PIPE, CheckpointId(2))] == [2, 1]


def test_the_owner_of_a_checkpoint_is_recorded(catalog: Catalog):
    owner = "flights.checkpoint/scheduled__1%/begin/1"
    taken = catalog.begin(request(0, owner=owner), locate)
    assert catalog.browsing.entry(PIPE, taken.checkpoint_id).begun_by == owner
    assert catalog.browsing.begun_by(PIPE, "flights.checkpoint/scheduled__1%/") == taken.checkpoint_id
    assert catalog.browsing.begun_by(PIPE, "flights.checkpoint/scheduled__1_/") is None
    assert catalog.browsing.begun_by(OTHER, "flights.checkpoint/") is None


def shared_file(number: int) -> FileRecord:
    return FileRecord(f"file:/state/shared/{attempt(number)}-0-0", 1000, number, 0, KeyGroupRange(0, 127))


def test_a_file_lists_the_checkpoints_that_share_it(catalog: Catalog):
    shared, alone = shared_file(1), shared_file(2)
    for number in range(3):
        commit(catalog, number, None, (shared, alone) if number == 2 else (shared,))
    entry = catalog.browsing.entry(PIPE, CheckpointId(3))
    holders = catalog.browsing.holders(entry, [shared.path, alone.path, "file:/unknown"])
    assert (holders[shared.path].created_by, holders[shared.path].others, holders[shared.path].total) == (1, (2, 1), 2)
    assert (holders[alone.path].created_by, holders[alone.path].others, holders[alone.path].total) == (3, (), 0)
    assert set(holders) == {shared.path, alone.path}


def used(catalog: Catalog) -> Usage:
    return catalog.browsing.storage.now([PIPE])[PIPE]


def test_storage_is_counted_as_live_shared_garbage_or_a_users(catalog: Catalog):
    shared, first = shared_file(1), shared_file(2)
    commit(catalog, 0, None, (shared, first))
    assert used(catalog) == Usage(3, 2000 + METADATA_BYTES)
    second = catalog.begin(request(1), locate)
    assert used(catalog).shared_bytes == 0, "a checkpoint that is being taken shares nothing yet"
    catalog.commit(PIPE, second.checkpoint_id, second.epoch, facts(2, (shared,)))
    assert used(catalog) == Usage(4, 2000 + 2 * METADATA_BYTES, 1000)
    saved = catalog.begin(request(None), locate)
    catalog.commit(PIPE, saved.checkpoint_id, saved.epoch, facts(3, (shared_file(3),)))
    assert used(catalog).savepoint_bytes == 1000 + METADATA_BYTES
    catalog.cleanup.subsume(PIPE, [CheckpointId(1)], catalog.head(PIPE).epoch)
    gone = used(catalog)
    assert (gone.live_bytes, gone.shared_bytes, gone.garbage_bytes) == (1060, 0, 1060), "before gc looked at it"
    assert gone.amplification == pytest.approx(2.0)
    catalog.cleanup.condemn(PIPE, "run")
    assert used(catalog) == gone
    catalog.cleanup.confirm_files(PIPE, "run", [first.path])
    catalog.cleanup.confirm_checkpoints(PIPE, [CheckpointId(1)])
    assert (used(catalog).garbage_bytes, used(catalog).amplification) == (0, 1.0)
    assert catalog.browsing.storage.now([OTHER]) == {OTHER: Usage()}
    assert Usage().amplification is None


def test_old_samples_are_reduced_to_one_per_hour(url: str):
    now = [0]
    catalog = Catalog(url, lambda: now[0])
    catalog.migrate()
    change(url, insert(LEASE).values(pipeline=PIPE, epoch=0, next_id=1, generation=0, owner="", heartbeat_at_ms=0))
    for minutes in range(0, 180, 20):
        now[0] = minutes * HOUR_MS // 60
        catalog.browsing.storage.sample(PIPE)
        catalog.browsing.storage.sample(PIPE)
    assert len(catalog.browsing.storage.samples(PIPE)) == 9
    now[0] = FINE_MS + HOUR_MS * 5 // 2
    catalog.browsing.storage.sample(PIPE)
    minutes = [sample.at_ms * 60 // HOUR_MS for sample in catalog.browsing.storage.samples(PIPE)]
    assert minutes == [40, 100, 140, 160, 30 * 24 * 60 + 150], "the last of each hour, and those of the last 30 days"
    assert rows(url, select(func.count()).select_from(STORAGE_SAMPLE)) == [(5,)]
