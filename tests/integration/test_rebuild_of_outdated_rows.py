"""``statelib catalog rebuild --merge`` over a backup that was taken while a checkpoint or a savepoint was pending or in
quarantine: what was completed since is completed, and nothing of it is swept."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from statelib.flows.checkpoint.steps import begin, register
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState, ClaimMode
from statelib.savepoints.commit_facts import commit_facts
from statelib.savepoints.verification.snapshots import verify_at
from statelib.storage.uris import local_path
from tests.integration.garbage import days, events, tally
from tests.integration.shop_cli import call, said
from tests.support.worlds import day, publish_here

TALLY = PipelineName("tally")
MERGE = ("catalog", "rebuild", "--merge", "--yes")
COMPLETED, PENDING, QUARANTINED = CheckpointState.COMPLETED, CheckpointState.PENDING, CheckpointState.QUARANTINED


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    deployment = tally(tmp_path)
    days(deployment, 1, 2)
    return deployment


def begun(deployment: Deployment, number: int = 3) -> CheckpointId:
    """Publish the checkpoint of a day, and leave it pending."""
    pipeline = deployment.pipeline("tally")
    pending = begin(deployment, pipeline, day(number), "test").checkpoint_id
    publish_here(deployment, pipeline, pending, events(number))
    return pending


def begun_savepoint(deployment: Deployment, target: Path | None) -> CheckpointId:
    """Publish a savepoint, and leave it pending."""
    pipeline, place = deployment.pipeline("tally"), str(target) if target else None
    saved = begin_savepoint(deployment, pipeline, format="canonical", target=place, note="n", owner="test", key="k")
    publish_here(deployment, pipeline, saved.checkpoint_id)
    return saved.checkpoint_id


def registered(deployment: Deployment, number: CheckpointId) -> None:
    register(deployment, deployment.pipeline("tally"), number)


def backed_up(deployment: Deployment, tmp_path: Path) -> Deployment:
    """Return a deployment with a backup of the catalog as it is now, over the same storage."""
    shutil.copy(tmp_path / "catalog.db", tmp_path / "backup.db")
    return replace(deployment, catalog_url=f"sqlite:///{tmp_path}/backup.db")


def states(deployment: Deployment) -> dict[int, CheckpointState]:
    return {int(record.checkpoint_id): record.state for record in deployment.catalog().list(TALLY)}


def assert_continues(again: Deployment, head: int) -> None:
    """Assert that the merged catalog has no fault, that its head is ``head``, and that all its snapshots are whole
    after a run, a restore and a sweep."""
    assert again.catalog().head(TALLY).head == head
    assert json.loads(said(again, "catalog", "check", "--json"))["faults"] == []
    done = [number for number, state in states(again).items() if state is COMPLETED]
    position = again.open(again.catalog().get(TALLY, CheckpointId(head))).position()
    assert position is not None
    assert position.interval is not None
    days(again, 1 + (position.interval.start_ms - day(1).start_ms) // 86_400_000 + 1, 6)
    pipeline = again.pipeline("tally")
    apply_restore(again, pipeline, plan_restore(again, pipeline, "1", None, ClaimMode.NO_CLAIM), "test")
    orphans(again, dry_run=False, force=True, grace_ms=0)
    for number in done:
        record = again.catalog().get(TALLY, CheckpointId(number))
        assert record.state is COMPLETED
        assert verify_at(record.directory, own=True, storage_root=again.storage_root).problems == ()
    assert json.loads(said(again, "catalog", "check", "--json"))["faults"] == []


@pytest.mark.parametrize("later", [0, 2])
def test_a_checkpoint_that_was_pending_is_completed(deployment: Deployment, tmp_path: Path, later: int) -> None:
    number = begun(deployment)
    again = backed_up(deployment, tmp_path)
    registered(deployment, number)
    days(deployment, 4, 3 + later)
    assert [e["checkpoint_id"] for e in json.loads(said(again, *MERGE, "--json"))["pipelines"][0]["entered"]] == [
        *range(3, 4 + later)
    ]
    lost, merged = (each.catalog().get(TALLY, number) for each in (deployment, again))
    assert merged == replace(lost, completed_at_ms=merged.completed_at_ms, report=merged.report)
    assert_continues(again, 3 + later)


@pytest.mark.parametrize("place", ["", "mine"])
def test_a_savepoint_that_was_pending_is_completed(deployment: Deployment, tmp_path: Path, place: str) -> None:
    number = begun_savepoint(deployment, tmp_path / place if place else None)
    again = backed_up(deployment, tmp_path)
    registered(deployment, number)
    days(deployment, 3, 3)
    said(again, *MERGE)
    lost, merged = (each.catalog().get(TALLY, number) for each in (deployment, again))
    assert merged == replace(lost, completed_at_ms=merged.completed_at_ms, report=merged.report)
    assert_continues(again, 4)


def test_a_checkpoint_that_was_released_from_quarantine_is_completed(deployment: Deployment, tmp_path: Path) -> None:
    number, catalog = begun(deployment), deployment.catalog()
    row = catalog.get(TALLY, number)
    catalog.gate.set_aside(TALLY, number, row.epoch, commit_facts(deployment.open(row), ""), "a reason")
    again = backed_up(deployment, tmp_path)
    said(again, *MERGE)
    assert states(again)[3] is QUARANTINED, "nothing was built on it"
    catalog.gate.release(TALLY, number, "test", "it is right")
    days(deployment, 4, 4)
    said(again, *MERGE)
    assert_continues(again, 4)


def test_a_run_that_is_under_way_completes_what_the_merge_has_completed(deployment: Deployment) -> None:
    number = begun(deployment)
    said(deployment, *MERGE)
    registered(deployment, number)
    assert_continues(deployment, 3)


def damaged(directory: Path) -> None:
    data = next(path for path in directory.iterdir() if path.name != "_metadata")
    data.write_bytes(bytes(len(data.read_bytes())))


def unpublished(directory: Path) -> None:
    (directory / "_metadata").unlink()


@pytest.mark.parametrize(("spoil", "status"), [(damaged, 1), (unpublished, 0)])
def test_a_spoilt_snapshot_stays_pending(deployment: Deployment, spoil: Callable[[Path], None], status: int) -> None:
    number = begun(deployment)
    spoil(Path(local_path(deployment.catalog().get(TALLY, number).directory)))
    assert call(deployment, *MERGE).exit_code == status
    assert states(deployment)[3] is PENDING
    days(deployment, 3, 3)
    assert_continues(deployment, 4)


def test_a_checkpoint_that_was_passed_over_stays_pending(deployment: Deployment, tmp_path: Path) -> None:
    """The run was given up, and the next one did not build on its checkpoint."""
    number = begun(deployment)
    again = backed_up(deployment, tmp_path)
    deployment.catalog().abort(TALLY, number, "given up")
    days(deployment, 3, 4)
    said(again, *MERGE)
    assert states(again) == {1: COMPLETED, 2: COMPLETED, 3: PENDING, 4: COMPLETED, 5: COMPLETED}
    assert again.catalog().head(TALLY).head == 5
    days(again, 5, 5)
    assert states(again)[3] is CheckpointState.ABORTED
