"""A checkpoint under another path than that of the catalog is the same checkpoint, and nothing of it is lost."""

import os
from pathlib import Path

import pytest

from statelib.errors import ConflictError, InvalidRequestError
from statelib.flows.checkpoint.steps import abort
from statelib.flows.cleanup.garbage import collect_garbage, dispose
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.cleanup.retention import retire
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState, ClaimMode
from statelib.savepoints.commit_facts import commit_facts
from statelib.savepoints.opened import open_checkpoint
from statelib.savepoints.verification.snapshots import verify_at
from statelib.storage.registry import PLACES
from statelib.storage.uris import local_path
from tests.integration.garbage import days, events, save, tally
from tests.integration.hostile_snapshots import copied
from tests.support.worlds import checkpoint_of

TALLY = PipelineName("tally")


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return tally(tmp_path, retain="{count: 1}")


def linked(deployment: Deployment, tmp_path: Path) -> str:
    """Return another path of the storage's root."""
    os.symlink(local_path(deployment.root_uri()), tmp_path / "link")
    return str(tmp_path / "link")


def restored(deployment: Deployment, path: str, mode: ClaimMode = ClaimMode.NO_CLAIM) -> CheckpointId:
    pipeline = deployment.pipeline("tally")
    head = apply_restore(deployment, pipeline, plan_restore(deployment, pipeline, path, None, mode), "test").head
    assert head is not None
    return head


def broken(deployment: Deployment) -> list[str]:
    records = deployment.catalog().list(None, (CheckpointState.COMPLETED,))
    verifications = (verify_at(r.directory, own=True, storage_root=deployment.storage_root) for r in records)
    return [problem for verification in verifications for problem in verification.problems]


def cleaned(deployment: Deployment) -> None:
    retire(deployment)
    collect_garbage(deployment)
    orphans(deployment, dry_run=False, force=True)


@pytest.mark.parametrize("mode", ClaimMode)
def test_a_checkpoint_is_recognised_under_the_path_of_a_link(
    deployment: Deployment, tmp_path: Path, mode: ClaimMode
) -> None:
    days(deployment, 1, 2)
    link = linked(deployment, tmp_path)
    for path in (f"{link}/tally/chk-1", f"file://{link}//tally/chk-1/", f"{link}/tally/chk-1/_metadata"):
        assert restored(deployment, path, mode) == 1
    cleaned(deployment)
    assert broken(deployment) == []
    assert deployment.catalog().head(TALLY).head == 1
    checkpoint_of(deployment, "tally", 2, events(2))


def test_a_savepoint_is_recognised_under_the_path_of_a_link_but_a_copy_is_not(
    deployment: Deployment, tmp_path: Path
) -> None:
    days(deployment, 1, 1)
    saved = save(deployment, "k", str(tmp_path / "mine"))
    directory = deployment.catalog().get(TALLY, CheckpointId(saved)).directory
    os.symlink(tmp_path / "mine", tmp_path / "other")
    assert restored(deployment, directory.replace("/mine/", "/other/")) == saved
    copy = copied(directory, str(tmp_path / "copy"))
    imported = restored(deployment, copy, ClaimMode.CLAIM)
    assert imported > saved
    for number in (2, 3):
        checkpoint_of(deployment, "tally", number, events(number))
    cleaned(deployment)
    assert deployment.remover().list_files(copy) == [], "it was claimed"
    assert deployment.remover().list_files(directory), "it is its user's"
    assert broken(deployment) == []


def test_if_only_the_content_shows_it_the_catalogs_own_snapshot_is_used(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two mounts of one disk, which a test cannot make, are simulated: no call can decide whether two files are the
    same, so the content decides."""
    days(deployment, 1, 2)
    copy = copied(f"{deployment.root_uri()}/tally/chk-1", str(tmp_path / "mount"))
    monkeypatch.setattr("statelib.storage.filesystem.kind.same_file", lambda _first, _second: None)
    with pytest.raises(InvalidRequestError) as refusal:
        restored(deployment, copy, ClaimMode.CLAIM)
    assert refusal.value.kind == "known-elsewhere"
    assert restored(deployment, copy) == 1
    first = Path(local_path(deployment.root_uri()), "tally", "chk-1")
    next(path for path in first.iterdir() if path.name != "_metadata").unlink()
    assert restored(deployment, copy) > 2, "the catalog's own is damaged, the copy is not"
    checkpoint_of(deployment, "tally", 2, events(2))


def test_two_rows_of_one_snapshot_do_not_delete_each_others_files(deployment: Deployment, tmp_path: Path) -> None:
    """Two rows of the catalog name one snapshot under two paths, as an older version of statelib could enter them."""
    days(deployment, 1, 1)
    own = deployment.catalog().get(TALLY, CheckpointId(1))
    other = f"file://{linked(deployment, tmp_path)}/tally/chk-1"
    facts = commit_facts(open_checkpoint(other), "")
    fields = {"strategy": own.strategy, "parallelism": 2, "interval": own.interval}
    twin = deployment.catalog().import_savepoint(TALLY, directory=other, facts=facts, **fields)
    deployment.catalog().restore(TALLY, twin.checkpoint_id, None, "test")
    retire(deployment)
    cleaned(deployment)
    assert broken(deployment) == []
    checkpoint_of(deployment, "tally", 2, events(2))
    checkpoint_of(deployment, "tally", 3, events(3))
    cleaned(deployment)
    assert broken(deployment) == []
    dispose(deployment, TALLY, twin.checkpoint_id)
    assert deployment.remover().list_files(own.directory), "the first row has them still"
    cleaned(deployment)
    assert deployment.remover().list_files(own.directory) == []


def test_a_savepoint_is_not_disposed_of_under_its_other_path(deployment: Deployment, tmp_path: Path) -> None:
    days(deployment, 1, 1)
    saved = deployment.catalog().get(TALLY, CheckpointId(save(deployment, "k", str(tmp_path / "mine"))))
    os.symlink(tmp_path / "mine", tmp_path / "other")
    other = saved.directory.replace("/mine/", "/other/")
    facts = commit_facts(open_checkpoint(other), "")
    fields = {"strategy": saved.strategy, "parallelism": 2, "interval": None}
    twin = deployment.catalog().import_savepoint(TALLY, directory=other, facts=facts, **fields)
    with pytest.raises(ConflictError) as refusal:
        dispose(deployment, TALLY, saved.checkpoint_id)
    assert (refusal.value.kind, f"tally/{twin.checkpoint_id} is the same" in refusal.value.message) == ("in-use", True)
    dispose(deployment, TALLY, twin.checkpoint_id)
    assert broken(deployment) == []
    dispose(deployment, TALLY, saved.checkpoint_id)
    assert deployment.remover().list_files(saved.directory) == []


def test_the_savepoint_of_another_deployment_is_no_orphan(deployment: Deployment, tmp_path: Path) -> None:
    """Both deployments write savepoints to one place, and the aborted one had the same number."""
    other, target = tally(tmp_path / "other"), str(tmp_path / "backups")
    days(deployment, 1, 1)
    days(other, 1, 1)
    pipeline = deployment.pipeline("tally")
    begun = begin_savepoint(deployment, pipeline, format="canonical", target=target, note="", owner="test", key="k")
    abort(deployment, "tally", begun.checkpoint_id, "test")
    saved = other.catalog().get(TALLY, CheckpointId(save(other, "k", target)))
    (swept,) = orphans(deployment, dry_run=False, grace_ms=0, force=True)
    assert (swept.files, len(swept.foreign)) == ((), 3)
    assert verify_at(saved.directory, own=True).problems == ()


def test_different_spellings_of_a_path_are_one_place(tmp_path: Path) -> None:
    assert PLACES.same_place("s3://bucket/a//b/", "s3://bucket/a/b")
    assert PLACES.same_place("s3://bucket/a", "s3://bucket/b") is False
    assert PLACES.same_place("az://box/a", "abfss://box@account.dfs.core.windows.net/a") is None
    assert PLACES.same_place("s3://bucket/a", str(tmp_path)) is None
    assert PLACES.same_place(str(tmp_path), f"{tmp_path}/x") is None, "neither is there"
