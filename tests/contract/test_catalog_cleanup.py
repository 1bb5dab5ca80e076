"""The catalog's contract, third part: retention, gc in two phases, reservations, pins, disposal."""

import multiprocessing
import threading
from dataclasses import replace
from functools import partial

import pytest
from sqlalchemy import Engine, event, select

from statelib.catalog.catalog import Catalog
from statelib.catalog.tables.schema import FILE, GC_LOG, REF
from statelib.coordinator.discard import check_unreferenced
from statelib.coordinator.retention import RetentionPolicy, subsumed
from statelib.errors import ConflictError, InvalidRequestError, NotFoundError
from statelib.model.checkpoint import FileRecord
from statelib.model.ids import ATTEMPT_PREFIX, CheckpointId, Epoch, PipelineName
from statelib.model.key_groups import KeyGroupRange
from statelib.model.record import CheckpointRecord, CheckpointState, Owner
from tests.contract import catalog_kit
from tests.contract.catalog_kit import PIPE, clock, complete, facts, locate, request, rows

postgresql, url, catalog = catalog_kit.postgresql, catalog_kit.url, catalog_kit.catalog
SPAWN = multiprocessing.get_context("spawn")


def shared(name: str) -> FileRecord:
    return FileRecord(f"file:/state/flights/shared/{name}", 5, 6, 0, KeyGroupRange(0, 127))


def commit(catalog: Catalog, record: CheckpointRecord, *names: str) -> CheckpointRecord:
    """Commit a checkpoint with files that other checkpoints may have too."""
    attempt = record.checkpoint_id + (0 if record.pipeline == PIPE else 900)
    made = facts(attempt, tuple(map(shared, names)))
    return catalog.commit(record.pipeline, record.checkpoint_id, record.epoch, made)


def refs(url: str, number: int) -> set[str]:
    read_rows = rows(url, select(REF.c.file_id).where(REF.c.checkpoint_id == number))
    return {name.rpartition("/")[2] for (name,) in read_rows}


def states(url: str) -> dict[str, str]:
    return {name.rpartition("/")[2]: state for name, state in rows(url, select(FILE.c.file_id, FILE.c.state))}


def let_go(catalog: Catalog, *numbers: int) -> None:
    catalog.cleanup.subsume(PIPE, [CheckpointId(n) for n in numbers], catalog.head(PIPE).epoch)


def test_a_checkpoint_reserves_the_files_of_its_base_and_then_keeps_only_its_own(url: str, catalog: Catalog):
    commit(catalog, catalog.begin(request(0), locate), "a", "b")
    second = catalog.begin(request(1), locate)
    assert refs(url, second.checkpoint_id) == {"a", "b"}
    commit(catalog, second, "b", "c")
    assert refs(url, second.checkpoint_id) == {"b", "c"}
    assert refs(url, 1) == {"a", "b"}


@pytest.mark.parametrize("end", ["abort", "supersede", "restore"])
def test_an_aborted_checkpoint_releases_its_reserved_files(url: str, catalog: Catalog, end: str):
    commit(catalog, catalog.begin(request(0), locate), "a")
    pending = catalog.begin(request(1), locate)
    assert refs(url, pending.checkpoint_id) == {"a"}
    if end == "abort":
        catalog.abort(PIPE, pending.checkpoint_id, "test")
    elif end == "supersede":
        assert refs(url, catalog.begin(request(1, owner="other"), locate).checkpoint_id) == {"a"}
    else:
        catalog.restore(PIPE, CheckpointId(1), None, "operator")
    assert refs(url, pending.checkpoint_id) == set()
    assert refs(url, 1) == {"a"}


def test_equal_ids_of_two_pipelines_do_not_mix_their_references(url: str, catalog: Catalog):
    """Ids are unique per pipeline only: both pipelines have a 2 and a 3, which one commits and the other aborts."""
    other = PipelineName("other")

    def held(pipeline: PipelineName) -> dict[int, set[str]]:
        read_rows = rows(url, select(REF.c.checkpoint_id, REF.c.file_id).where(REF.c.pipeline == pipeline))
        numbers = sorted({number for number, _ in read_rows})
        return {n: {name.rpartition("/")[2] for number, name in read_rows if number == n} for n in numbers}

    commit(catalog, catalog.begin(request(0, pipeline=other), locate), "x")
    commit(catalog, catalog.begin(request(0), locate), "a")
    commit(catalog, catalog.begin(request(1, pipeline=other), locate), "y")
    catalog.abort(PIPE, catalog.begin(request(1), locate).checkpoint_id, "test")
    assert (held(other), held(PIPE)) == ({1: {"x"}, 2: {"y"}}, {1: {"a"}})
    reserving = catalog.begin(request(2, pipeline=other), locate)
    commit(catalog, catalog.begin(request(1), locate), "b")
    assert (held(other), held(PIPE)) == ({1: {"x"}, 2: {"y"}, 3: {"y"}}, {1: {"a"}, 3: {"b"}})
    catalog.abort(other, reserving.checkpoint_id, "test")
    assert (held(other), held(PIPE)) == ({1: {"x"}, 2: {"y"}}, {1: {"a"}, 3: {"b"}})


def test_gc_condemns_files_without_references(url: str, catalog: Catalog):
    for number, names in enumerate(("ab", "bc", "cd")):
        commit(catalog, catalog.begin(request(number), locate), *names)
    let_go(catalog, 1)
    assert catalog.get(PIPE, CheckpointId(1)).state is CheckpointState.DELETING
    before = catalog.cleanup.preview(PIPE)
    assert states(url) == dict.fromkeys("abcd", "LIVE"), "letting go and looking change no file"
    assert catalog.cleanup.condemn(PIPE, "run-1") == 1
    assert states(url) == {"a": "CONDEMNED", "b": "LIVE", "c": "LIVE", "d": "LIVE"}
    doomed = catalog.cleanup.doomed(PIPE)
    assert [f.uri for f in doomed.files] == [shared("a").path]
    assert [r.checkpoint_id for r in doomed.checkpoints] == [1]
    assert (before.files, before.checkpoints) == (doomed.files, doomed.checkpoints)
    assert doomed.referenced == {shared(n).path for n in "bcd"} == catalog.cleanup.referenced(PIPE)
    catalog.cleanup.confirm_files(PIPE, "run-1", [shared("a").path, shared("b").path])
    assert states(url) == {"a": "DELETED", "b": "LIVE", "c": "LIVE", "d": "LIVE"}, "only what was condemned"
    catalog.cleanup.confirm_checkpoints(PIPE, [CheckpointId(1), CheckpointId(2)])
    assert [r.state for r in catalog.list(PIPE)] == ["COMPLETED", "COMPLETED", "DELETED"]
    log = rows(url, select(GC_LOG.c.run_id, GC_LOG.c.file_id, GC_LOG.c.phase).order_by(GC_LOG.c.phase))
    assert log == [("run-1", shared("a").path, "CONDEMNED"), ("run-1", shared("a").path, "DELETED")]
    assert catalog.cleanup.condemn(PIPE, "run-2") == 0
    assert [r.checkpoint_id for r in catalog.lineage(PIPE, CheckpointId(3))] == [3, 2, 1], "the history stays known"


def test_a_checkpoint_retired_between_the_phases_is_deleted_by_the_next_gc(url: str, catalog: Catalog):
    commit(catalog, catalog.begin(request(0), locate), "a")
    commit(catalog, catalog.begin(request(1), locate), "b")
    catalog.cleanup.condemn(PIPE, "one run")
    let_go(catalog, 1)  # Another process does this.
    doomed = catalog.cleanup.doomed(PIPE)
    assert (doomed.checkpoints, doomed.files) == ((), ())
    catalog.cleanup.condemn(PIPE, "the next run")
    doomed = catalog.cleanup.doomed(PIPE)
    assert [record.checkpoint_id for record in doomed.checkpoints] == [1]
    assert [file.uri.rpartition("/")[2] for file in doomed.files] == ["a"]
    assert states(url) == {"a": "CONDEMNED", "b": "LIVE"}


def test_a_condemned_file_cannot_come_back(url: str, catalog: Catalog):
    commit(catalog, catalog.begin(request(0), locate), "a")
    commit(catalog, catalog.begin(request(1), locate), "b")
    let_go(catalog, 1)
    catalog.cleanup.condemn(PIPE, "run")
    pending = catalog.begin(request(2), locate)
    assert refs(url, pending.checkpoint_id) == {"b"}
    with pytest.raises(ConflictError) as refusal:
        commit(catalog, pending, "a", "c")
    assert refusal.value.kind == "file-condemned"
    assert states(url) == {"a": "CONDEMNED", "b": "LIVE"}


def test_a_pending_checkpoint_keeps_its_base_and_the_files_of_the_base(url: str, catalog: Catalog):
    commit(catalog, catalog.begin(request(0), locate), "a")
    saving = catalog.begin(request(None, key="s"), locate)
    commit(catalog, catalog.begin(request(1), locate), "b")
    assert catalog.cleanup.situation(PIPE).in_use == {1}
    with pytest.raises(ConflictError, match="flights/1 is in use") as refusal:
        let_go(catalog, 1)
    assert refusal.value.kind == "in-use"
    catalog.abort(PIPE, saving.checkpoint_id, "test")
    let_go(catalog, 1)
    assert catalog.cleanup.condemn(PIPE, "run") == 1


def test_retention_is_fenced_and_never_takes_the_head(catalog: Catalog):
    complete(catalog, 0)
    old = catalog.head(PIPE).epoch
    complete(catalog, 1)
    with pytest.raises(ConflictError) as refusal:
        catalog.cleanup.subsume(PIPE, [CheckpointId(1)], old)
    assert refusal.value.kind == "fenced"
    for numbers in ([1, 2], [2]):
        with pytest.raises(ConflictError) as refusal:
            let_go(catalog, *numbers)
        assert refusal.value.kind == "in-use"
    assert catalog.get(PIPE, CheckpointId(1)).state is CheckpointState.COMPLETED, "all or none"
    with pytest.raises(NotFoundError):
        catalog.cleanup.situation(PipelineName("nobody"))


def test_retention_cannot_remove_a_users_savepoint(url: str, catalog: Catalog):
    complete(catalog, 0)
    saved = catalog.begin(request(None, key="s"), locate)
    commit(catalog, saved, "s")
    with pytest.raises(ConflictError) as refusal:
        let_go(catalog, saved.checkpoint_id)
    assert refusal.value.kind == "in-use"
    assert catalog.get(PIPE, saved.checkpoint_id).state is CheckpointState.COMPLETED


def test_a_pin_holds_until_it_is_released_or_expires(url: str):
    now = [1_000]
    catalog = Catalog(url, lambda: now[0])
    catalog.migrate()
    for number in range(3):
        complete(catalog, number)
    catalog.cleanup.pin(PIPE, CheckpointId(1), "restore-1", 100)
    catalog.cleanup.pin(PIPE, CheckpointId(1), "restore-1", 200)
    catalog.cleanup.pin(PIPE, CheckpointId(2), "restore-2", 100)
    with pytest.raises(ConflictError):
        let_go(catalog, 1)
    catalog.cleanup.unpin(PIPE, "restore-2")
    catalog.cleanup.unpin(PIPE, "restore-2")
    assert catalog.cleanup.situation(PIPE).in_use == {1}
    now[0] += 199
    assert catalog.cleanup.situation(PIPE).in_use == {1}
    now[0] += 1
    let_go(catalog, 1, 2)
    with pytest.raises(InvalidRequestError) as refusal:
        catalog.cleanup.pin(PIPE, CheckpointId(1), "late", 100)
    assert refusal.value.kind == "not-completed"


def test_only_savepoints_that_no_checkpoint_uses_can_be_disposed_of(url: str, catalog: Catalog):
    complete(catalog, 0)
    saved = catalog.begin(request(None, key="s"), locate)
    with pytest.raises(InvalidRequestError) as refusal:
        catalog.cleanup.dispose(PIPE, saved.checkpoint_id)
    assert refusal.value.kind == "not-completed"
    saved = commit(catalog, saved, "s")
    with pytest.raises(InvalidRequestError) as refusal:
        catalog.cleanup.dispose(PIPE, CheckpointId(1))
    assert refusal.value.kind == "not-a-savepoint"
    catalog.restore(PIPE, saved.checkpoint_id, None, "operator")
    with pytest.raises(ConflictError) as refusal_in_use:
        catalog.cleanup.dispose(PIPE, saved.checkpoint_id)
    assert refusal_in_use.value.kind == "in-use"
    complete(catalog, 1)
    assert catalog.cleanup.dispose(PIPE, saved.checkpoint_id, dry_run=True) == saved
    would = catalog.cleanup.preview(PIPE, [saved.checkpoint_id])
    assert [f.uri for f in would.files] == [shared("s").path]
    assert catalog.cleanup.preview(PIPE).files == ()
    gone = catalog.cleanup.dispose(PIPE, saved.checkpoint_id)
    assert gone == replace(saved, state=CheckpointState.DELETING, owner=Owner.SYSTEM)
    assert catalog.cleanup.dispose(PIPE, saved.checkpoint_id) == gone
    assert catalog.cleanup.condemn(PIPE, "run") == 1
    assert states(url)["s"] == "CONDEMNED"


def test_another_pipeline_may_refer_to_a_file(url: str, catalog: Catalog):
    fork = PipelineName("fork")
    commit(catalog, catalog.begin(request(0), locate), "a")
    commit(catalog, catalog.begin(request(1), locate), "b")
    record = catalog.begin(request(0, pipeline=fork), locate)
    catalog.commit(fork, record.checkpoint_id, record.epoch, facts(900, (shared("a"),)))
    let_go(catalog, 1)
    assert catalog.cleanup.preview(PIPE).files == ()
    assert catalog.cleanup.condemn(PIPE, "run") == 0
    assert catalog.cleanup.file(shared("a").path).references[0].pipeline == "fork"


def clean_up_for_ever(url: str, stop, results) -> None:
    """Run retention and both phases of gc without pause, and report every condemned file."""
    catalog, condemned, turn = Catalog(url, clock), [], 0
    while not stop.is_set():
        turn += 1
        try:
            now = catalog.cleanup.situation(PIPE)
            chosen = subsumed(RetentionPolicy(1), now.records, now.head.head, now.in_use)
            catalog.cleanup.subsume(PIPE, chosen, now.head.epoch)
        except (ConflictError, NotFoundError):
            pass
        catalog.cleanup.condemn(PIPE, f"run-{turn}")
        doomed = catalog.cleanup.doomed(PIPE)
        check_unreferenced([f.uri for f in doomed.files], doomed.referenced)
        catalog.cleanup.confirm_files(PIPE, f"run-{turn}", [f.uri for f in doomed.files])
        catalog.cleanup.confirm_checkpoints(PIPE, [r.checkpoint_id for r in doomed.checkpoints])
        condemned += [f.uri for f in doomed.files]
    results.put(condemned)


def test_gc_in_another_process_never_deletes_files_that_a_checkpoint_builds_on(url: str, catalog: Catalog):
    """Each checkpoint shares a file with its base, as an incremental one does; every third is aborted."""
    stop, results = SPAWN.Event(), SPAWN.Queue()
    cleaner = SPAWN.Process(target=clean_up_for_ever, args=(url, stop, results))
    commit(catalog, catalog.begin(request(0), locate), "f0", "f1")
    cleaner.start()
    top = 1
    for number in range(1, 60):
        record = catalog.begin(request(number), locate)
        assert refs(url, record.checkpoint_id) == {f"f{top - 1}", f"f{top}"}
        if number % 3 == 0:
            catalog.abort(PIPE, record.checkpoint_id, "test")
            continue
        commit(catalog, record, f"f{top}", f"f{top + 1}")
        top += 1
    stop.set()
    condemned = results.get(timeout=60)
    cleaner.join()
    assert not {shared(f"f{top - 1}").path, shared(f"f{top}").path} & set(condemned)
    assert len(condemned) == len(set(condemned))
    assert catalog.head(PIPE).epoch == Epoch(60)


def test_the_sweep_reads_its_facts_in_one_transaction(url: str, catalog: Catalog):
    """Otherwise it would delete the files of a checkpoint that completes meanwhile: the files were not recorded yet,
    but the attempt has ended."""
    pending = catalog.begin(request(0), locate)
    made = facts(pending.checkpoint_id, (shared("a"),))
    catalog.record_attempt(PIPE, pending.checkpoint_id, made.attempt)
    completing: list[threading.Thread] = []

    def complete_between(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        if completing or "FROM file" not in statement:
            return
        commit = partial(Catalog(url, clock).commit, PIPE, pending.checkpoint_id, pending.epoch, made)
        completing.append(threading.Thread(target=commit))
        completing[0].start()
        completing[0].join(1 if url.startswith("sqlite") else None)  # On SQLite a writer waits for this reader.

    event.listen(Engine, "after_cursor_execute", complete_between)
    try:
        known_files = catalog.cleanup.records(PIPE)
    finally:
        event.remove(Engine, "after_cursor_execute", complete_between)
    completing[0].join()
    assert catalog.get(PIPE, pending.checkpoint_id).state is CheckpointState.COMPLETED
    assert known_files.files == frozenset()
    assert known_files.open_attempts == {made.attempt[:ATTEMPT_PREFIX]}
    assert known_files.checkpoints[pending.directory] == (pending.checkpoint_id, CheckpointState.PENDING)
