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
from statelib.flows.cleanup.orphans import HOUR_MS, orphans
from statelib.flows.cleanup.retention import retire
from statelib.flows.restore.holding import hold_source, release_source
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState, ClaimMode
from statelib.savepoints.verification import verify_at
from statelib.storage.inventory import StoredFile
from statelib.storage.places import PlacedRemover
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
WEEK_MS = 7 * 24 * HOUR_MS


@pytest.fixture
def on_files(tmp_path: Path) -> Deployment:
    return tally(tmp_path)


@pytest.fixture(params=["files", "s3", "azure"])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Deployment:
    """A deployment on a file system, then some on object storages: nobody may see a difference."""
    if request.param == "files":
        return tally(tmp_path)
    scheme, fixture = {"s3": ("s3", "bucket"), "azure": ("az", "container")}[request.param]
    return tally(tmp_path, storage_root=f"{scheme}://{request.getfixturevalue(fixture)}/base/state")


def completed(here: Deployment) -> list[int]:
    return sorted(r.checkpoint_id for r in here.catalog().list(TALLY, {CheckpointState.COMPLETED}))


def cleaned(here: Deployment, **options: object) -> None:
    retire(here)
    collect_garbage(here)
    orphans(here, dry_run=False, force=True, **options)


def test_retention_and_gc_leave_exactly_what_is_needed(here: Deployment) -> None:
    days(here, 1, 5)
    saved = save(here, "kept")
    everything = stored(here)
    would = retire(here, dry_run=True)
    assert [(r.pipeline, r.checkpoints) for r in would] == [("tally", (1, 2, 3))]
    (preview,) = collect_garbage(here, dry_run=True, also={TALLY: would[0].checkpoints})
    assert stored(here) == everything
    assert completed(here) == [1, 2, 3, 4, 5, saved]
    assert retire(here) == would
    assert stored(here) == everything, "letting go deletes nothing"
    (done,) = collect_garbage(here)
    assert done == preview
    assert len(done.files) == 6
    assert completed(here) == [4, 5, saved]
    assert stored(here) == needed(here)
    assert directories(here) == {"chk-4", "chk-5", f"savepoint-tally-{saved}"}
    assert (retire(here)[0].checkpoints, collect_garbage(here)[0].files) == ((), ())
    for record in here.catalog().list(TALLY, {CheckpointState.COMPLETED}):
        assert verify_at(record.directory, own=True).problems == ()
    days(here, 6, 7)


def test_a_pipeline_without_a_file_is_left_alone(here: Deployment) -> None:
    days(here, 1, 4)
    (Path(here.pipelines_directory) / "tally.yaml").unlink()
    (left,) = retire(here)
    assert (left.policy, left.checkpoints) == (None, ())
    assert completed(here) == [1, 2, 3, 4]


def test_a_restore_keeps_its_source_while_it_runs_and_the_old_branch_goes_in_time(here: Deployment) -> None:
    days(here, 1, 4)
    pipeline = here.pipeline("tally")
    plan = plan_restore(here, pipeline, "1", None, ClaimMode.NO_CLAIM)
    hold_source(here, plan, "run")
    cleaned(here)
    assert completed(here) == [1, 3, 4]
    apply_restore(here, pipeline, plan, "test")
    release_source(here, plan, "run")
    cleaned(here)
    assert completed(here) == [1, 3, 4], "the restore can be undone"
    days(here, 2, 3)
    cleaned(here)
    assert completed(here) == [5, 6]
    assert stored(here) == needed(here)


def test_a_savepoint_in_progress_keeps_its_base(here: Deployment) -> None:
    days(here, 1, 1)
    pipeline = here.pipeline("tally")
    saving = begin_savepoint(here, pipeline, format="native", target=None, note="", owner="t", key="k").checkpoint_id
    days(here, 2, 5)
    cleaned(here)
    assert completed(here) == [1, 5, 6]
    publish_here(here, pipeline, saving)
    cleaned(here)
    assert register(here, pipeline, saving).state is CheckpointState.COMPLETED
    cleaned(here)
    assert completed(here) == [2, 5, 6]
    assert verify_at(here.catalog().get(TALLY, saving).directory, own=True).problems == ()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_savepoint_goes_when_its_user_says_so(here: Deployment, tmp_path: Path, elsewhere: bool) -> None:
    days(here, 1, 2)
    saved = CheckpointId(save(here, "k", str(tmp_path / "mine") if elsewhere else None))
    place = f"file://{tmp_path}/mine" if elsewhere else f"{here.root_uri()}/savepoints"
    directory = f"{place}/savepoint-tally-{saved}"
    assert len(here.remover().list_files(directory)) == 3
    would = dispose(here, TALLY, saved, dry_run=True)
    assert is_there(here, directory)
    assert dispose(here, TALLY, saved) == would
    assert len(would.files) == 2
    assert would.refused == ()
    assert not is_there(here, directory)
    assert not elsewhere or (tmp_path / "mine").is_dir()
    assert dispose(here, TALLY, saved).files == ()
    assert here.catalog().get(TALLY, saved).state is CheckpointState.DELETED
    assert stored(here) == needed(here)


def test_gc_leaves_files_outside_the_storage_alone(here: Deployment, tmp_path: Path) -> None:
    """The root was moved: what the catalog names is not where this deployment may delete."""
    days(here, 1, 4)
    before = stored(here)
    elsewhere = replace(here, storage_root=f"{here.root_uri()}-other")
    retire(elsewhere)
    with pytest.raises(InvalidRequestError) as refusal:
        collect_garbage(elsewhere)
    assert refusal.value.kind == "outside-root"
    assert stored(here) == before


def test_an_old_backup_of_the_catalog_deletes_nothing(here: Deployment, tmp_path: Path) -> None:
    days(here, 1, 3)
    backup = (tmp_path / "catalog.db").read_bytes()
    days(here, 4, 5)
    (tmp_path / "catalog.db").write_bytes(backup)
    everything = stored(here)
    for clean in (retire, collect_garbage, lambda d: orphans(d, dry_run=False, force=True)):
        with pytest.raises(ConflictError) as refusal:
            clean(here)
        assert refusal.value.kind == "catalog-behind-storage"
    assert stored(here) == everything


def crashed(here: Deployment, number: int) -> CheckpointId:
    """A checkpoint whose metadata was published, and then nobody came back."""
    pipeline = here.pipeline("tally")
    begun = begin(here, pipeline, day(number), "crashed").checkpoint_id
    publish_here(here, pipeline, begun, events(number))
    return begun


def test_orphans_are_found_once_their_attempt_has_ended(here: Deployment) -> None:
    days(here, 1, 1)
    pending = crashed(here, 2)
    assert orphans(here)[0].files == ()
    abort(here, "tally", pending, "test")
    directory = f"{here.root_uri()}/tally/chk-{pending}"
    put_file(here, f"tally/chk-{pending}/._metadata.3.tmp", "half")
    notes = put_file(here, "tally/notes.txt", "a user's")
    (found,) = orphans(here)
    assert {Path(uri).name[:9] for uri in found.files} >= {"_metadata", "._metadat"}
    assert len(found.files) == 4
    assert [Path(uri).name for uri in found.foreign] == ["notes.txt"]
    assert not found.deleted
    assert is_there(here, directory)
    (gone,) = orphans(here, dry_run=False)
    assert (gone.files, gone.deleted) == (found.files, True)
    assert not is_there(here, directory)
    assert stored(here) == needed(here) | {notes}


@pytest.mark.parametrize("left", [0, 1], ids=["none is left", "one is left"])
def test_a_sweep_goes_on_where_a_cleanup_beside_it_removes_what_it_has_listed(
    on_files: Deployment, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        abort(on_files, "tally", crashed(on_files, number), "test")
    listed = PlacedRemover.list_files

    def list_and_lose(self: PlacedRemover, directory: str) -> list[StoredFile]:
        found = listed(self, directory)
        for number in range(1, 3 - left):
            shutil.rmtree(Path(on_files.storage_root, "tally", f"chk-{number}"), ignore_errors=True)
        return sorted(found, key=lambda file: file.path)

    monkeypatch.setattr(PlacedRemover, "list_files", list_and_lose)
    (found,) = orphans(on_files, dry_run=False)
    assert {Path(uri).parent.name for uri in found.files} == ({"chk-1", "chk-2"} if left else set())


def test_a_begin_that_died_leaves_no_directory_once_its_number_is_another_ones(
    here: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before that, the directory is what the next one of its kind begins in."""

    def dying(begun: Callable[[], object]) -> None:
        def at(name: str) -> None:
            if name == "begin: before commit":
                raise KillError(name)

        with monkeypatch.context() as patch:
            patch.setattr("statelib.catalog.engine.crash_point", at)
            with pytest.raises(KillError):
                begun()

    days(here, 1, 1)
    chk, save_point = f"{here.root_uri()}/tally/chk-", f"{here.root_uri()}/savepoints/savepoint-tally-"
    dying(lambda: begin(here, here.pipeline("tally"), day(2), "t"))
    orphans(here, dry_run=False)
    assert is_there(here, f"{chk}2")
    assert save(here, "other") == 2
    dying(lambda: save(here, "died"))
    days(here, 2, 2)
    assert all(is_there(here, d) for d in (f"{chk}2", f"{chk}3", f"{save_point}2", f"{save_point}3"))
    put_file(here, "savepoints/savepoint-tally-another-1/notes.txt", "of a pipeline whose name begins alike")
    begin(here, here.pipeline("tally"), day(3), "t")
    orphans(here)
    assert is_there(here, f"{chk}2")
    orphans(here, dry_run=False)
    there = (f"{chk}2", f"{save_point}3", f"{chk}3", f"{save_point}2", f"{chk}4", f"{save_point}another-1")
    assert [is_there(here, directory) for directory in there] == [False, False, True, True, True, True]


def test_files_that_the_catalog_never_heard_of_wait_for_the_grace_period(on_files: Deployment) -> None:
    here = on_files
    days(here, 1, 2)
    shared = Path(here.storage_root) / "tally" / "shared"
    shared.mkdir()
    old, young = shared / f"{'a' * 32}-0-1.sst", shared / f"{'b' * 32}-0-1.sst"
    for file in (old, young):
        file.write_text("x")
    long_ago = time.time() - 8 * 86_400
    os.utime(old, (long_ago, long_ago))
    (found,) = orphans(here)
    assert ([Path(u).name for u in found.files], [Path(u).name for u in found.young]) == ([old.name], [young.name])
    with pytest.raises(InvalidRequestError) as refusal:
        orphans(here, grace_ms=HOUR_MS, dry_run=False)
    assert refusal.value.kind == "grace-too-short"
    orphans(here, dry_run=False)
    assert (old.exists(), young.exists()) == (False, True)
    orphans(here, grace_ms=-HOUR_MS, dry_run=False, force=True)
    assert not young.exists()


def test_too_many_unknown_files_look_like_a_lost_catalog(on_files: Deployment) -> None:
    here = on_files
    days(here, 1, 1)
    for number in range(9):
        file = Path(here.storage_root) / "tally" / f"{number:032x}-0-0"
        file.write_text("x")
        os.utime(file, (0, 0))
    everything = stored(here)
    with pytest.raises(InvalidRequestError, match="9 of 12") as refusal:
        orphans(here, dry_run=False)
    assert refusal.value.kind == "too-many-orphans"
    assert stored(here) == everything
    orphans(here, dry_run=False, force=True)
    assert stored(here) == needed(here)


def test_why_names_who_needs_a_file(here: Deployment) -> None:
    days(here, 1, 1)
    pending = begin(here, here.pipeline("tally"), day(2), "t").checkpoint_id
    metadata = f"{here.root_uri()}/tally/chk-1/_metadata"
    data = min(stored(here) - {metadata})
    found = why(here, data)
    assert (found.state, found.owner, found.created_by) == ("LIVE", "SYSTEM", "tally/1")
    assert found.needed_by == ("tally/1", f"tally/{pending}"), "a pending checkpoint reserves its base's files"
    assert why(here, metadata.removeprefix("file://")).needed_by == ("tally/1",)
    abort(here, "tally", pending, "t")
    days(here, 2, 4)
    retire(here)
    assert why(here, data).needed_by == ("tally/1",)
    collect_garbage(here)
    assert (why(here, data).state, why(here, data).needed_by) == ("DELETED", ())
    assert why(here, put_file(here, "tally/chk-9/x", "x")).state == "FOREIGN"
    with pytest.raises(NotFoundError) as refusal:
        why(here, "/no/such/file")
    assert refusal.value.kind == "unknown-file"


def test_checkpoints_with_failures_leave_no_unreferenced_file(here: Deployment) -> None:
    """A hundred, on object storages fewer unless all is asked for: every kind of end a checkpoint can come to, in
    random order, with deletions that fail in between."""
    chance, number, pipeline, failed = random.Random(7), 1, here.pipeline("tally"), 0
    turns = 100 if TEST_ALL or here.root_uri().startswith("file:") else 40
    for turn in range(turns):
        end = chance.choice(["completed"] * 4 + ["aborted", "crashed", "begun", "savepoint"])
        if end == "completed" or number == 1:
            checkpoint_of(here, "tally", number, events(number))
            number += 1
        elif end == "savepoint":
            save(here, f"k{turn}")
        elif end == "begun":
            begin(here, pipeline, day(number), "t")
        else:
            left = crashed(here, number)
            if end == "aborted":
                abort(here, "tally", left, "t")
        if turn % 10 == 9:
            failing = failing_remover(here, chance.randint(1, 8), chance.random() < 0.5)
            with contextlib.suppress(RetryableError):
                cleaned(FailingDeployment(*astuple(here), failing=failing))
            failed += len(failing.calls) >= failing.fail_at
    checkpoint_of(here, "tally", number, events(number))
    cleaned(here)
    assert stored(here) == needed(here)
    assert failed >= turns // 20
    kept = here.catalog().list(TALLY, {CheckpointState.COMPLETED})
    assert sum(r.owner == "SYSTEM" for r in kept) == 2
    assert [verify_at(r.directory, own=True).problems for r in kept] == [()] * len(kept)


def clean_for_ever(here: Deployment, stop, begun) -> None:
    while not stop.is_set():
        try:
            cleaned(here, grace_ms=WEEK_MS)
        except ConflictError as error:
            if error.kind not in ("fenced", "in-use"):
                raise
        begun.set()


def test_gc_in_another_process_beside_running_checkpoints(on_files: Deployment) -> None:
    here = on_files
    days(here, 1, 1)
    stop, begun = SPAWN.Event(), SPAWN.Event()
    cleaner = SPAWN.Process(target=clean_for_ever, args=(here, stop, begun))
    cleaner.start()
    assert begun.wait(PATIENCE_S)
    for number in range(2, 22):
        if number % 4 == 0:
            crashed(here, number)
        days(here, number, number)
    stop.set()
    cleaner.join()
    assert cleaner.exitcode == 0
    cleaned(here)
    assert stored(here) == needed(here)
    assert len(completed(here)) == 2


@pytest.mark.parametrize("damaged", ["_metadata", "a file"])
def test_nothing_older_goes_while_the_head_cannot_be_read(tmp_path: Path, damaged: str) -> None:
    here = tally(tmp_path, retain="{count: 1}")
    days(here, 1, 3)
    newest = Path(local_path(here.root_uri()), "tally", "chk-3")
    victim = next(path for path in sorted(newest.iterdir()) if (path.name == "_metadata") == (damaged == "_metadata"))
    good = victim.read_bytes()
    victim.write_bytes(good[:-1])
    for dry_run in (True, False):
        with pytest.raises(CorruptStateError) as refusal:
            retire(here, dry_run=dry_run)
        assert (refusal.value.kind, "tally/3" in refusal.value.message) == ("damaged-head", True)
    collect_garbage(here)
    assert completed(here) == [1, 2, 3]
    victim.write_bytes(good)
    cleaned(here)
    assert completed(here) == [3]
