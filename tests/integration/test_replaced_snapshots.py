"""A user's directory that contains another snapshot than before: nothing of one snapshot is taken for the other."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.flows.checkpoint.steps import begin
from statelib.flows.cleanup.garbage import collect_garbage, dispose
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.cleanup.retention import retire
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState, ClaimMode
from statelib.savepoints.verification.snapshots import verify_at
from statelib.storage.uris import local_path
from tests.integration.garbage import days, save, tally
from tests.support.worlds import day

TALLY = PipelineName("tally")


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    """Return a deployment with four days and a savepoint after each, of which ``backups`` has copies by their days."""
    deployment = tally(tmp_path)
    for number in (1, 2, 3, 4):
        days(deployment, number, number)
        saved = deployment.catalog().get(TALLY, CheckpointId(save(deployment, str(number))))
        shutil.copytree(local_path(saved.directory), tmp_path / "backups" / str(number))
    return deployment


def stage(tmp_path: Path, number: int) -> str:
    """Put the backup of a day into the one directory from which snapshots are restored."""
    shutil.rmtree(tmp_path / "stage", ignore_errors=True)
    shutil.copytree(tmp_path / "backups" / str(number), tmp_path / "stage")
    return str(tmp_path / "stage")


def restored(deployment: Deployment, path: str, mode: ClaimMode = ClaimMode.NO_CLAIM) -> CheckpointId:
    pipeline = deployment.pipeline("tally")
    head = apply_restore(deployment, pipeline, plan_restore(deployment, pipeline, path, None, mode), "test").head
    assert head is not None
    return head


def total(deployment: Deployment) -> set[int]:
    catalog = deployment.catalog()
    head = catalog.head(TALLY).head
    assert head is not None
    return set(deployment.open(catalog.get(TALLY, head)).to_arrow("total").column("value").to_pylist())


@pytest.mark.parametrize("mode", ClaimMode)
@pytest.mark.parametrize(("first", "second"), [(1, 3), (3, 1), (2, 2)])
def test_the_snapshot_that_is_in_the_directory_now_is_restored(
    deployment: Deployment, tmp_path: Path, first: int, second: int, mode: ClaimMode
) -> None:
    numbers = []
    for number in (first, second):
        numbers.append(restored(deployment, stage(tmp_path, number), mode))
        assert total(deployment) == {sum(range(1, number + 1))}
    assert (numbers[0] == numbers[1]) == (first == second)
    assert begin(deployment, deployment.pipeline("tally"), day(second), "test").already_completed
    for number in range(second + 1, 7):
        days(deployment, number, number)
        assert total(deployment) == {sum(range(1, number + 1))}


def test_a_replaced_snapshot_is_no_base_and_is_not_restored_by_its_id(deployment: Deployment, tmp_path: Path) -> None:
    number = restored(deployment, stage(tmp_path, 3))
    path = stage(tmp_path, 1)
    for use in (lambda: days(deployment, 4, 4), lambda: restored(deployment, str(number))):
        with pytest.raises(CorruptStateError) as refusal:
            use()
        assert (refusal.value.kind, "put tally/9 back" in refusal.value.hint) == ("other-snapshot", True)
    assert restored(deployment, path) > number
    days(deployment, 2, 4)
    assert total(deployment) == {10}


def disposed_of(deployment: Deployment, number: CheckpointId) -> None:
    dispose(deployment, TALLY, number)


def retired(deployment: Deployment, _number: CheckpointId) -> None:
    days(deployment, 5, 8)
    retire(deployment)


@pytest.mark.parametrize(("remove", "mode"), [(disposed_of, ClaimMode.NO_CLAIM), (retired, ClaimMode.CLAIM)])
@pytest.mark.parametrize("registered", [False, True])
def test_the_snapshot_that_replaced_another_one_outlives_it(
    deployment: Deployment,
    tmp_path: Path,
    remove: Callable[[Deployment, CheckpointId], None],
    mode: ClaimMode,
    registered: bool,
) -> None:
    path = stage(tmp_path, 3)
    number = restored(deployment, path, mode)
    days(deployment, 4, 4)
    stage(tmp_path, 1)
    if registered:
        restored(deployment, path)
        days(deployment, 2, 4)
    remove(deployment, number)
    collect_garbage(deployment)
    orphans(deployment, dry_run=False, force=True)
    assert deployment.catalog().get(TALLY, number).state is CheckpointState.DELETED
    assert verify_at(path, own=True).problems == ()


def test_both_snapshots_that_were_claimed_in_one_directory_are_deleted(deployment: Deployment, tmp_path: Path) -> None:
    for number in (1, 3):
        restored(deployment, stage(tmp_path, number), ClaimMode.CLAIM)
    days(deployment, 4, 7)
    retire(deployment)
    collect_garbage(deployment)
    assert list((tmp_path / "stage").iterdir()) == []


@pytest.mark.parametrize("number", [2, 4])
def test_a_snapshot_that_is_put_back_after_it_was_deleted_stays_and_is_restored_from_a_copy(
    deployment: Deployment, tmp_path: Path, number: int
) -> None:
    """``number``: the day of the snapshot that is put there, which is the deleted one of the fourth day or another."""
    saved = CheckpointId(save(deployment, "k", str(tmp_path / "mine")))
    directory = Path(local_path(deployment.catalog().get(TALLY, saved).directory))
    shutil.copytree(directory, tmp_path / "backups" / "4", dirs_exist_ok=True)
    dispose(deployment, TALLY, saved)
    shutil.copytree(tmp_path / "backups" / str(number), directory)
    (swept,) = orphans(deployment, dry_run=False, grace_ms=0, force=True)
    assert (swept.files, len(swept.foreign)) == ((), len(list(directory.iterdir())))
    assert verify_at(str(directory), own=True).problems == ()


def test_a_deleted_snapshot_is_not_restored_in_its_place(deployment: Deployment, tmp_path: Path) -> None:
    number = restored(deployment, stage(tmp_path, 2))
    days(deployment, 3, 3)
    dispose(deployment, TALLY, number)
    path = stage(tmp_path, 2)
    with pytest.raises(InvalidRequestError) as refusal:
        restored(deployment, path)
    assert (refusal.value.kind, "copy the whole directory" in refusal.value.hint) == ("not-completed", True)
    shutil.copytree(path, tmp_path / "copy")
    assert restored(deployment, str(tmp_path / "copy")) > number
    assert total(deployment) == {3}
