"""The catalog is deleted, cut short, old, locked, read-only or of another version: nothing on storage is lost
because of that, no run begins from an older state, and the error names what to do."""

import shutil
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from statelib.catalog import engine
from statelib.catalog.migration import REVISION
from statelib.errors import (
    ConflictError,
    CorruptStateError,
    InvalidRequestError,
    RetryableError,
    StatelibError,
    UnsupportedError,
)
from statelib.flows.checkpoint.steps import begin, register
from statelib.flows.cleanup.garbage import collect_garbage, dispose
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.cleanup.retention import retire
from statelib.flows.recovery.rebuild import apply_rebuild, plan_rebuild
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.fork import fork
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState, ClaimMode
from statelib.savepoints.verification.snapshots import verify_at
from tests.integration.garbage import TALLY, days, events, save, stored, tally
from tests.integration.test_incremental_flow import TOURS as SHARING
from tests.integration.test_incremental_flow import events as sharing_events
from tests.support.extent import rounds
from tests.support.figures import record
from tests.support.worlds import checkpoint_of, day, new_deployment, publish_here

NAME = PipelineName("tally")
Act = Callable[[Deployment], object]
CUTS = rounds(6, 40)

DELETING: tuple[Act, ...] = (
    retire,
    collect_garbage,
    lambda deployment: orphans(deployment, dry_run=False, force=True, grace_ms=0),
)


def begins(deployment: Deployment) -> None:
    begin(deployment, deployment.pipeline("tally"), day(3), "test")


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return tally(tmp_path)


def whole(deployment: Deployment, directories: list[str]) -> None:
    for directory in directories:
        assert verify_at(directory, own=True, storage_root=deployment.storage_root).problems == ()


def completed(deployment: Deployment, name: str = NAME) -> list[str]:
    return [r.directory for r in deployment.catalog().list(PipelineName(name), {CheckpointState.COMPLETED})]


def brought_up_to_date(deployment: Deployment) -> None:
    apply_rebuild(deployment, plan_rebuild(deployment, merge=True))


@pytest.mark.parametrize("left", ["nothing", "an empty file"])
def test_a_pipeline_with_a_lost_catalog_does_not_begin_without_state(
    deployment: Deployment, tmp_path: Path, left: str
) -> None:
    """Retention has removed the first checkpoints, so that their ids are free on storage."""
    days(deployment, 1, 4)
    retire(deployment)
    collect_garbage(deployment)
    before, files_before = stored(deployment), completed(deployment)
    (tmp_path / "catalog.db").unlink()
    if left != "nothing":
        (tmp_path / "catalog.db").touch()
    with pytest.raises(ConflictError, match="catalog rebuild --merge -p tally") as refusal:
        days(deployment, 5, 5)
    assert refusal.value.kind == "catalog-behind-storage"
    for delete in DELETING:
        delete(deployment)
    assert stored(deployment) == before
    brought_up_to_date(deployment)
    assert sorted(completed(deployment)) == sorted(files_before)
    days(deployment, 5, 5)
    assert deployment.catalog().head(NAME).head == 5
    record("G7", "lost catalogs after which nothing began from nothing", 1)


@pytest.mark.parametrize("behind", range(1, 1 + rounds(2, 4)))
def test_with_an_old_backup_nothing_is_deleted_and_no_run_begins(tmp_path: Path, behind: int) -> None:
    """The incremental checkpoints share files and are cleaned up each day; the backup is ``behind`` days old."""
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "tours.yaml").write_text(SHARING)
    deployment = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    for number in range(1, 7):
        checkpoint_of(deployment, "tours", number, sharing_events(number))
        if number + behind == 6:
            shutil.copy(tmp_path / "catalog.db", tmp_path / "backup.db")
        retire(deployment)
        collect_garbage(deployment)
    before, files_before = stored(deployment), completed(deployment, "tours")
    shutil.copy(tmp_path / "backup.db", tmp_path / "catalog.db")
    for act in (*DELETING, lambda h: begin(h, h.pipeline("tours"), day(7), "test")):
        with pytest.raises(ConflictError) as refusal:
            act(deployment)
        assert refusal.value.kind == "catalog-behind-storage"
    assert before - stored(deployment) == set()
    brought_up_to_date(deployment)
    checkpoint_of(deployment, "tours", 7, sharing_events(7))
    for delete in DELETING:
        delete(deployment)
    whole(deployment, completed(deployment, "tours"))
    assert set(files_before[:1]) <= set(completed(deployment, "tours"))
    record("G7", "old backups of the catalog that deleted nothing", 1)


def test_a_fork_that_is_not_in_the_backup_keeps_its_files(deployment: Deployment, tmp_path: Path) -> None:
    """The backup has all checkpoints of the source; only the checkpoint of the fork shows that one of them is still
    needed."""
    days(deployment, 1, 1)
    shutil.copy(tmp_path / "catalog.db", tmp_path / "backup.db")
    (tmp_path / "pipelines" / "branch.yaml").write_text(TALLY.replace("name: tally", "name: branch"))
    forked = fork(deployment, deployment.pipeline("branch"), deployment.catalog().get(NAME, CheckpointId(1)), "test")
    shutil.copy(tmp_path / "backup.db", tmp_path / "catalog.db")
    days(deployment, 2, 4)
    for delete in DELETING:
        with pytest.raises(ConflictError, match="branch/chk-1") as refusal:
            delete(deployment)
        assert refusal.value.kind == "catalog-behind-storage"
    whole(deployment, [forked.directory])
    brought_up_to_date(deployment)
    for delete in DELETING:
        delete(deployment)
    whole(deployment, [forked.directory, *completed(deployment)])


def test_an_old_catalog_refuses_to_dispose_of_a_savepoint(deployment: Deployment, tmp_path: Path) -> None:
    days(deployment, 1, 1)
    saved = save(deployment, "kept")
    shutil.copy(tmp_path / "catalog.db", tmp_path / "backup.db")
    days(deployment, 2, 2)
    before = stored(deployment)
    shutil.copy(tmp_path / "backup.db", tmp_path / "catalog.db")
    with pytest.raises(ConflictError):
        dispose(deployment, NAME, CheckpointId(saved))
    assert stored(deployment) == before


def renamed(deployment: Deployment) -> None:
    file = Path(deployment.pipelines_directory, "tally.yaml")
    file.write_text(TALLY.replace("name: tally", "name: sums\nrenamed_from: tally"))
    begin(deployment, deployment.pipeline("sums"), day(2), "test")


def restored(deployment: Deployment) -> None:
    pipeline, (place,) = deployment.pipeline("tally"), Path(deployment.data, "elsewhere").iterdir()
    plan = plan_restore(deployment, pipeline, str(place), None, ClaimMode.NO_CLAIM)
    apply_restore(deployment, pipeline, plan, "test")


CONTINUING: dict[str, Act] = {
    "savepoint": lambda deployment: save(deployment, "of an older state"),
    "renamed": renamed,
    "restored": restored,
}


@pytest.mark.parametrize("continues", CONTINUING.values(), ids=CONTINUING)
def test_nothing_continues_from_the_older_head_of_an_old_catalog(
    deployment: Deployment, tmp_path: Path, continues: Act
) -> None:
    """A savepoint, taken or restored, would also take the id of the checkpoint that is missing, which would never be
    entered then."""
    days(deployment, 1, 1)
    shutil.copy(tmp_path / "catalog.db", tmp_path / "backup.db")
    days(deployment, 2, 2)
    (tmp_path / "elsewhere").mkdir()
    save(deployment, "elsewhere", str(tmp_path / "elsewhere"))
    shutil.copy(tmp_path / "backup.db", tmp_path / "catalog.db")
    with pytest.raises(ConflictError, match="tally/chk-2") as refusal:
        continues(deployment)
    assert refusal.value.kind == "catalog-behind-storage"
    brought_up_to_date(deployment)
    assert deployment.catalog().head(NAME).head == 2


@pytest.mark.parametrize("garbage", [False, True], ids=["cut", "overwritten"])
def test_a_damaged_catalog_is_reported_and_nothing_is_changed(
    deployment: Deployment, tmp_path: Path, garbage: bool
) -> None:
    days(deployment, 1, 3)
    file = tmp_path / "catalog.db"
    data, before = file.read_bytes(), stored(deployment)
    for number in range(1, CUTS + 1):
        length = len(data) * number // (CUTS + 1)
        file.write_bytes(bytes(length) if garbage else data[:length])
        for act in (begins, *DELETING):
            with pytest.raises(CorruptStateError, match="catalog rebuild") as damage:
                act(deployment)
            assert damage.value.kind == "catalog-damaged"
        assert stored(deployment) == before
    file.write_bytes(data)
    days(deployment, 4, 4)
    record("G3", "damaged catalogs that were said", CUTS)


def test_a_catalog_that_stays_locked_is_a_retryable_error(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days(deployment, 1, 2)
    before = stored(deployment)
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_MS", 20)
    with sqlite3.connect(tmp_path / "catalog.db", isolation_level=None) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        for act in (begins, *DELETING):
            with pytest.raises(RetryableError, match="locked") as refusal:
                act(deployment)
            assert refusal.value.kind == "catalog-unavailable"
        holder.execute("ROLLBACK")
    holder.close()
    assert stored(deployment) == before
    days(deployment, 3, 3)


def test_commands_wait_for_a_catalog_that_is_locked_for_a_while(deployment: Deployment, tmp_path: Path) -> None:
    days(deployment, 1, 1)
    holder = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN EXCLUSIVE")
    letting_go = threading.Timer(0.3, holder.execute, ["ROLLBACK"])
    letting_go.start()
    days(deployment, 2, 2)
    letting_go.join()
    holder.close()
    assert deployment.catalog().head(NAME).head == 2


def test_a_read_only_catalog_can_be_read_and_a_write_names_the_cause(deployment: Deployment, tmp_path: Path) -> None:
    days(deployment, 1, 2)
    read_only = replace(deployment, catalog_url=f"sqlite:///file:{tmp_path}/catalog.db?mode=ro&uri=true")
    before = stored(deployment)
    assert read_only.catalog().head(NAME).head == 2
    for act in (begins, lambda h: h.catalog().cleanup.condemn(NAME, "run")):
        with pytest.raises(InvalidRequestError, match="owner and mode") as refusal:
            act(read_only)
        assert refusal.value.kind == "catalog-denied"
    assert stored(deployment) == before


def test_a_running_process_detects_a_replaced_catalog(deployment: Deployment, tmp_path: Path) -> None:
    """The catalog is replaced by an empty one, one of an older statelib, and one without tables of statelib."""
    days(deployment, 1, 2)
    old_catalog = deployment.catalog()
    file = tmp_path / "catalog.db"
    shutil.copy(file, tmp_path / "backup.db")
    file.write_bytes(b"")
    with pytest.raises(InvalidRequestError) as refusal:
        old_catalog.head(NAME)
    assert refusal.value.kind == "catalog-not-migrated"
    assert deployment.catalog().list() == [], "an empty catalog gets its tables"
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE alembic_version (version_num TEXT)")
        other.execute("INSERT INTO alembic_version VALUES ('0001')")
    other.close()
    (tmp_path / "other.db").replace(file)
    for catalog in (lambda: old_catalog.head(NAME), deployment.catalog):
        with pytest.raises(UnsupportedError, match=f"expected schema {REVISION} or older, found 0001"):
            catalog()
    (tmp_path / "backup.db").replace(file)
    assert deployment.catalog().head(NAME).head == old_catalog.head(NAME).head == 2


def test_a_checkpoint_is_registered_although_its_statistics_cannot_be_written(
    deployment: Deployment, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    days(deployment, 1, 1)
    with sqlite3.connect(tmp_path / "catalog.db") as file:
        file.execute("CREATE TRIGGER full BEFORE INSERT ON storage_sample BEGIN SELECT RAISE(ABORT, 'full'); END")
    days(deployment, 2, 4)
    retire(deployment)
    assert [each.checkpoints for each in collect_garbage(deployment)] == [(1, 2)]
    assert deployment.catalog().head(NAME).head == 4
    assert "tally: the storage in use was not recorded" in caplog.text
    file.execute("DROP TRIGGER full")
    file.close()
    before = deployment.catalog().browsing.storage.samples(NAME)
    days(deployment, 5, 5)
    assert len(deployment.catalog().browsing.storage.samples(NAME)) == len(before) + 1


@pytest.mark.parametrize("revision", ["0004", "9999"])
def test_a_catalog_that_is_migrated_during_a_run_is_refused(
    deployment: Deployment, tmp_path: Path, revision: str
) -> None:
    """The checkpoint is published, and then the next task finds a catalog that another version of statelib has
    migrated."""
    days(deployment, 1, 1)
    begun = begin(deployment, deployment.pipeline("tally"), day(2), "test").checkpoint_id
    publish_here(deployment, deployment.pipeline("tally"), begun, events(2))
    before = stored(deployment)
    file = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)
    (own,) = file.execute("SELECT version_num FROM alembic_version").fetchone()
    file.execute("UPDATE alembic_version SET version_num = ?", [revision])
    for act in (lambda h: register(h, h.pipeline("tally"), begun), *DELETING):
        with pytest.raises(StatelibError, match="expected schema"):
            act(deployment)
    assert stored(deployment) == before
    file.execute("UPDATE alembic_version SET version_num = ?", [own])
    file.close()
    assert register(deployment, deployment.pipeline("tally"), begun).state is CheckpointState.COMPLETED
    assert len(completed(deployment)) == 2
