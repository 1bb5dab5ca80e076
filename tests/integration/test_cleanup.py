"""Retention, gc and the orphan sweep on real checkpoints: no Spark, no Airflow."""

import contextlib
import multiprocessing
import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import astuple, replace
from pathlib import Path

import pytest

from statelib.errors import ConflictError, CorruptStateError, InvalidRequestError, NotFoundError, RetryableError
from statelib.flows.checkpoint.steps import abort, begin, register
from statelib.flows.cleanup.explanation import why
from statelib.flows.cleanup.garbage import collect_garbage, dispose
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.cleanup.retention import retire
from statelib.flows.restore.holding import hold_source, release_source
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.moments import HOUR_MS
from statelib.model.record import CheckpointState, ClaimMode
from statelib.savepoints.verification.snapshots import verify_at
from statelib.storage.places import PlacedRemover
from statelib.storage.ports.inventory import StoredFile
from statelib.storage.uris import local_path
from tests.integration.garbage import (
    FailingDeployment,
    KillError,
    days,
    directories,
    events,
    failing_remover,
    is_there,
    needed,
    put_file,
    save,
    stored,
    tally,
)
from tests.support.extent import TEST_ALL
from tests.support.worlds import checkpoint_of, day, publish_here

TALLY = PipelineName("tally")
PATIENCE_S = 300
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def on_files(tmp_path: Path) -> Deployment:
    return tally(tmp_path)


@pytest.fixture(params=["files", "bucket", "google_bucket", "container"])
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Deployment:
    """Return a deployment on a file system, or one on an object storage: all behave in the same way."""
    if request.param == "files":
        return tally(tmp_path)
    scheme = {"bucket": "s3", "google_bucket": "gs", "container": "az"}[request.param]
    return tally(tmp_path, storage_root=f"{scheme}://{request.getfixturevalue(request.param)}/base/state")


def completed(deployment: Deployment) -> list[int]:
    return sorted(r.checkpoint_id for r in deployment.catalog().list(TALLY, {CheckpointState.COMPLETED}))


def cleaned(deployment: Deployment, **options: object) -> None:
    retire(deployment)
    collect_garbage(deployment)
    orphans(deployment, dry_run=False, force=True, **options)


def test_retention_and_gc_leave_exactly_the_needed_files(deployment: Deployment) -> None:
    days(deployment, 1, 5)
    saved = save(deployment, "kept")
    everything = stored(deployment)
    would = retire(deployment, dry_run=True)
    assert [(r.pipeline, r.checkpoints) for r in would] == [("tally", (1, 2, 3))]
    (preview,) = collect_garbage(deployment, dry_run=True, also={TALLY: would[0].checkpoints})
    assert stored(deployment) == everything
    assert completed(deployment) == [1, 2, 3, 4, 5, saved]
    assert retire(deployment) == would
    assert stored(deployment) == everything, "letting go deletes nothing"
    (done,) = collect_garbage(deployment)
    assert done == preview
    assert len(done.files) == 6
    assert completed(deployment) == [4, 5, saved]
    assert stored(deployment) == needed(deployment)
    assert directories(deployment) == {"chk-4", "chk-5", f"savepoint-tally-{saved}"}
    assert (retire(deployment)[0].checkpoints, collect_garbage(deployment)[0].files) == ((), ())
    for record in deployment.catalog().list(TALLY, {CheckpointState.COMPLETED}):
        assert verify_at(record.directory, own=True).problems == ()
    days(deployment, 6, 7)


def test_nothing_of_a_pipeline_without_a_file_is_removed(deployment: Deployment) -> None:
    days(deployment, 1, 4)
    (Path(deployment.pipelines_directory) / "tally.yaml").unlink()
    (left,) = retire(deployment)
    assert (left.policy, left.checkpoints) == (None, ())
    assert completed(deployment) == [1, 2, 3, 4]


def test_a_restore_keeps_its_source_while_it_runs_and_the_old_branch_is_removed_later(deployment: Deployment) -> None:
    days(deployment, 1, 4)
    pipeline = deployment.pipeline("tally")
    plan = plan_restore(deployment, pipeline, "1", None, ClaimMode.NO_CLAIM)
    hold_source(deployment, plan, "run")
    cleaned(deployment)
    assert completed(deployment) == [1, 3, 4]
    apply_restore(deployment, pipeline, plan, "test")
    release_source(deployment, plan, "run")
    cleaned(deployment)
    assert completed(deployment) == [1, 3, 4], "the restore can be undone"
    days(deployment, 2, 3)
    cleaned(deployment)
    assert completed(deployment) == [5, 6]
    assert stored(deployment) == needed(deployment)


def test_a_savepoint_in_progress_keeps_its_base(deployment: Deployment) -> None:
    days(deployment, 1, 1)
    pipeline = deployment.pipeline("tally")
    saving = begin_savepoint(
        deployment, pipeline, format="native", target=None, note="", owner="t", key="k"
    ).checkpoint_id
    days(deployment, 2, 5)
    cleaned(deployment)
    assert completed(deployment) == [1, 5, 6]
    publish_here(deployment, pipeline, saving)
    cleaned(deployment)
    assert register(deployment, pipeline, saving).state is CheckpointState.COMPLETED
    cleaned(deployment)
    assert completed(deployment) == [2, 5, 6]
    assert verify_at(deployment.catalog().get(TALLY, saving).directory, own=True).problems == ()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_only_its_user_deletes_a_savepoint(deployment: Deployment, tmp_path: Path, elsewhere: bool) -> None:
    days(deployment, 1, 2)
    saved = CheckpointId(save(deployment, "k", str(tmp_path / "mine") if elsewhere else None))
    place = f"file://{tmp_path}/mine" if elsewhere else f"{deployment.root_uri()}/savepoints"
    directory = f"{place}/savepoint-tally-{saved}"
    assert len(deployment.remover().list_files(directory)) == 3
    would = dispose(deployment, TALLY, saved, dry_run=True)
    assert is_there(deployment, directory)
    assert dispose(deployment, TALLY, saved) == would
    assert len(would.files) == 2
    assert would.refused == ()
    assert not is_there(deployment, directory)
    assert not elsewhere or (tmp_path / "mine").is_dir()
    assert dispose(deployment, TALLY, saved).files == ()
    assert deployment.catalog().get(TALLY, saved).state is CheckpointState.DELETED
    assert stored(deployment) == needed(deployment)


def test_gc_refuses_to_delete_files_outside_the_storage(deployment: Deployment, tmp_path: Path) -> None:
    """The root was moved, so the files that the catalog names are outside of the storage."""
    days(deployment, 1, 4)
    before = stored(deployment)
    elsewhere = replace(deployment, storage_root=f"{deployment.root_uri()}-other")
    retire(elsewhere)
    with pytest.raises(InvalidRequestError) as refusal:
        collect_garbage(elsewhere)
    assert refusal.value.kind == "outside-root"
    assert stored(deployment) == before


def test_with_an_old_backup_of_the_catalog_nothing_is_deleted(deployment: Deployment, tmp_path: Path) -> None:
    days(deployment, 1, 3)
    backup = (tmp_path / "catalog.db").read_bytes()
    days(deployment, 4, 5)
    (tmp_path / "catalog.db").write_bytes(backup)
    everything = stored(deployment)
    for clean in (retire, collect_garbage, lambda d: orphans(d, dry_run=False, force=True)):
        with pytest.raises(ConflictError) as refusal:
            clean(deployment)
        assert refusal.value.kind == "catalog-behind-storage"
    assert stored(deployment) == everything


def crashed(deployment: Deployment, number: int) -> CheckpointId:
    """Publish the metadata of a checkpoint, and leave it as a process that dies then does."""
    pipeline = deployment.pipeline("tally")
    begun = begin(deployment, pipeline, day(number), "crashed").checkpoint_id
    publish_here(deployment, pipeline, begun, events(number))
    return begun


def test_orphans_are_listed_once_their_attempt_has_ended(deployment: Deployment) -> None:
    days(deployment, 1, 1)
    pending = crashed(deployment, 2)
    assert orphans(deployment)[0].files == ()
    abort(deployment, "tally", pending, "test")
    directory = f"{deployment.root_uri()}/tally/chk-{pending}"
    put_file(deployment, f"tally/chk-{pending}/._metadata.3.tmp", "half")
    notes = put_file(deployment, "tally/notes.txt", "a user's")
    (result,) = orphans(deployment)
    assert {Path(uri).name[:9] for uri in result.files} >= {"_metadata", "._metadat"}
    assert len(result.files) == 4
    assert [Path(uri).name for uri in result.foreign] == ["notes.txt"]
    assert not result.deleted
    assert is_there(deployment, directory)
    (gone,) = orphans(deployment, dry_run=False)
    assert (gone.files, gone.deleted) == (result.files, True)
    assert not is_there(deployment, directory)
    assert stored(deployment) == needed(deployment) | {notes}


@pytest.mark.parametrize("left", [0, 1], ids=["none is left", "one is left"])
def test_a_sweep_continues_if_a_concurrent_cleanup_removes_listed_files(
    on_files: Deployment, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        abort(on_files, "tally", crashed(on_files, number), "test")
    listed = PlacedRemover.list_files

    def list_and_lose(self: PlacedRemover, directory: str) -> list[StoredFile]:
        files = listed(self, directory)
        for number in range(1, 3 - left):
            shutil.rmtree(Path(on_files.storage_root, "tally", f"chk-{number}"), ignore_errors=True)
        return sorted(files, key=lambda file: file.path)

    monkeypatch.setattr(PlacedRemover, "list_files", list_and_lose)
    (files,) = orphans(on_files, dry_run=False)
    assert {Path(uri).parent.name for uri in files.files} == ({"chk-1", "chk-2"} if left else set())


def test_the_directory_of_a_dead_begin_is_removed_once_its_id_is_used_elsewhere(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before that, the next snapshot of the same kind begins in the directory."""

    def dying(begun: Callable[[], object]) -> None:
        def at(name: str) -> None:
            if name == "begin: before commit":
                raise KillError(name)

        with monkeypatch.context() as patch:
            patch.setattr("statelib.catalog.engine.crash_point", at)
            with pytest.raises(KillError):
                begun()

    days(deployment, 1, 1)
    chk, save_point = f"{deployment.root_uri()}/tally/chk-", f"{deployment.root_uri()}/savepoints/savepoint-tally-"
    dying(lambda: begin(deployment, deployment.pipeline("tally"), day(2), "t"))
    orphans(deployment, dry_run=False)
    assert is_there(deployment, f"{chk}2")
    assert save(deployment, "other") == 2
    dying(lambda: save(deployment, "died"))
    days(deployment, 2, 2)
    assert all(is_there(deployment, d) for d in (f"{chk}2", f"{chk}3", f"{save_point}2", f"{save_point}3"))
    put_file(deployment, "savepoints/savepoint-tally-another-1/notes.txt", "of a pipeline whose name begins alike")
    begin(deployment, deployment.pipeline("tally"), day(3), "t")
    orphans(deployment)
    assert is_there(deployment, f"{chk}2")
    orphans(deployment, dry_run=False)
    places_left = (f"{chk}2", f"{save_point}3", f"{chk}3", f"{save_point}2", f"{chk}4", f"{save_point}another-1")
    assert [is_there(deployment, directory) for directory in places_left] == [False, False, True, True, True, True]


def test_unknown_files_are_removed_only_after_the_grace_period(on_files: Deployment) -> None:
    days(on_files, 1, 2)
    shared = Path(on_files.storage_root) / "tally" / "shared"
    shared.mkdir()
    old, young = shared / f"{'a' * 32}-0-1.sst", shared / f"{'b' * 32}-0-1.sst"
    for file in (old, young):
        file.write_text("x")
    long_ago = time.time() - 8 * 86_400
    os.utime(old, (long_ago, long_ago))
    (result,) = orphans(on_files)
    assert ([Path(u).name for u in result.files], [Path(u).name for u in result.young]) == ([old.name], [young.name])
    with pytest.raises(InvalidRequestError) as refusal:
        orphans(on_files, grace_ms=HOUR_MS, dry_run=False)
    assert refusal.value.kind == "grace-too-short"
    orphans(on_files, dry_run=False)
    assert (old.exists(), young.exists()) == (False, True)
    orphans(on_files, grace_ms=-HOUR_MS, dry_run=False, force=True)
    assert not young.exists()


def test_too_many_unknown_files_are_refused_as_a_sign_of_a_lost_catalog(on_files: Deployment) -> None:
    days(on_files, 1, 1)
    for number in range(9):
        file = Path(on_files.storage_root) / "tally" / f"{number:032x}-0-0"
        file.write_text("x")
        os.utime(file, (0, 0))
    everything = stored(on_files)
    with pytest.raises(InvalidRequestError, match="9 of 12") as refusal:
        orphans(on_files, dry_run=False)
    assert refusal.value.kind == "too-many-orphans"
    assert stored(on_files) == everything
    orphans(on_files, dry_run=False, force=True)
    assert stored(on_files) == needed(on_files)


def test_why_names_the_checkpoints_that_need_a_file(deployment: Deployment) -> None:
    days(deployment, 1, 1)
    pending = begin(deployment, deployment.pipeline("tally"), day(2), "t").checkpoint_id
    metadata = f"{deployment.root_uri()}/tally/chk-1/_metadata"
    data = min(stored(deployment) - {metadata})
    answer = why(deployment, data)
    assert (answer.state, answer.owner, answer.created_by) == ("LIVE", "SYSTEM", "tally/1")
    assert answer.needed_by == ("tally/1", f"tally/{pending}"), "a pending checkpoint reserves its base's files"
    assert why(deployment, metadata.removeprefix("file://")).needed_by == ("tally/1",)
    abort(deployment, "tally", pending, "t")
    days(deployment, 2, 4)
    retire(deployment)
    answer = why(deployment, data)
    assert (answer.needed_by, answer.explanation) == ((), "needed by none: the next gc deletes it")
    collect_garbage(deployment)
    assert (why(deployment, data).state, why(deployment, data).needed_by) == ("DELETED", ())
    assert why(deployment, put_file(deployment, "tally/chk-9/x", "x")).state == "FOREIGN"
    with pytest.raises(NotFoundError) as refusal:
        why(deployment, "/no/such/file")
    assert refusal.value.kind == "unknown-file"


def test_checkpoints_with_failures_leave_no_unreferenced_file(deployment: Deployment) -> None:
    """A hundred checkpoints (forty in make test) end in every possible way, in random order, with failing deletions in
    between."""
    chance, number, pipeline, failed = random.Random(7), 1, deployment.pipeline("tally"), 0
    turns = 100 if TEST_ALL else 40
    for turn in range(turns):
        end = chance.choice(["completed"] * 4 + ["aborted", "crashed", "begun", "savepoint"])
        if end == "completed" or number == 1:
            checkpoint_of(deployment, "tally", number, events(number))
            number += 1
        elif end == "savepoint":
            save(deployment, f"k{turn}")
        elif end == "begun":
            begin(deployment, pipeline, day(number), "t")
        else:
            left = crashed(deployment, number)
            if end == "aborted":
                abort(deployment, "tally", left, "t")
        if turn % 10 == 9:
            failing = failing_remover(deployment, chance.randint(1, 8), chance.random() < 0.5)
            with contextlib.suppress(RetryableError):
                cleaned(FailingDeployment(*astuple(deployment), failing=failing))
            failed += len(failing.calls) >= failing.fail_at
    checkpoint_of(deployment, "tally", number, events(number))
    cleaned(deployment)
    assert stored(deployment) == needed(deployment)
    assert failed >= turns // 20
    records = deployment.catalog().list(TALLY, {CheckpointState.COMPLETED})
    assert sum(r.owner == "SYSTEM" for r in records) == 2
    assert [verify_at(r.directory, own=True).problems for r in records] == [()] * len(records)


def clean_for_ever(deployment: Deployment, stop, begun) -> None:
    while not stop.is_set():
        try:
            cleaned(deployment, grace_ms=7 * 24 * HOUR_MS)
        except ConflictError as error:
            if error.kind not in ("fenced", "in-use"):
                raise
        begun.set()


def test_gc_in_another_process_does_not_disturb_running_checkpoints(on_files: Deployment) -> None:
    days(on_files, 1, 1)
    stop, begun = SPAWN.Event(), SPAWN.Event()
    cleaner = SPAWN.Process(target=clean_for_ever, args=(on_files, stop, begun))
    cleaner.start()
    assert begun.wait(PATIENCE_S)
    for number in range(2, 22):
        if number % 4 == 0:
            crashed(on_files, number)
        days(on_files, number, number)
    stop.set()
    cleaner.join()
    assert cleaner.exitcode == 0
    cleaned(on_files)
    assert stored(on_files) == needed(on_files)
    assert len(completed(on_files)) == 2


@pytest.mark.parametrize("damaged", ["_metadata", "a file"])
def test_nothing_older_is_deleted_while_the_head_cannot_be_read(tmp_path: Path, damaged: str) -> None:
    deployment = tally(tmp_path, retain="{count: 1}")
    days(deployment, 1, 3)
    newest = Path(local_path(deployment.root_uri()), "tally", "chk-3")
    victim = next(path for path in sorted(newest.iterdir()) if (path.name == "_metadata") == (damaged == "_metadata"))
    good = victim.read_bytes()
    victim.write_bytes(good[:-1])
    for dry_run in (True, False):
        with pytest.raises(CorruptStateError) as refusal:
            retire(deployment, dry_run=dry_run)
        assert (refusal.value.kind, "tally/3" in refusal.value.message) == ("damaged-head", True)
    collect_garbage(deployment)
    assert completed(deployment) == [1, 2, 3]
    victim.write_bytes(good)
    cleaned(deployment)
    assert completed(deployment) == [3]
