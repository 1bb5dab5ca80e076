"""Retention of a history with a gap or an imported base, and the reasons in its plan."""

import json
from pathlib import Path

import pytest

from statelib.errors import InvalidRequestError
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.retention import retire
from statelib.flows.recovery.rebuild import apply_rebuild, plan_rebuild
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState, ClaimMode
from statelib.savepoints.verification.snapshots import verify_at
from statelib.storage.uris import local_path
from tests.integration.garbage import days, events, save, tally
from tests.integration.shop_cli import call, said
from tests.support.worlds import checkpoint_of

NAME = PipelineName("tally")


def completed(deployment: Deployment) -> list[int]:
    records = deployment.catalog().list(NAME, {CheckpointState.COMPLETED})
    assert all(verify_at(record.directory, own=True).problems == () for record in records)
    return sorted(record.checkpoint_id for record in records)


def cleaned(deployment: Deployment) -> None:
    retire(deployment)
    collect_garbage(deployment)


def given_up(deployment: Deployment, tmp_path: Path, number: int) -> None:
    """Damage a checkpoint, lose the catalog, and rebuild it without that checkpoint."""
    Path(local_path(deployment.root_uri()), "tally", f"chk-{number}", "_metadata").write_bytes(b"STATELIB")
    (tmp_path / "catalog.db").unlink()
    apply_rebuild(deployment, plan_rebuild(deployment, give_up=[(NAME, CheckpointId(number))]))


def test_an_abandoned_damaged_checkpoint_does_not_end_the_history(tmp_path: Path) -> None:
    deployment = tally(tmp_path, "{count: 20}")
    days(deployment, 1, 5)
    given_up(deployment, tmp_path, 4)
    cleaned(deployment)
    assert completed(deployment) == [1, 2, 3, 5]
    days(deployment, 6, 6)
    cleaned(deployment)
    assert completed(deployment) == [1, 2, 3, 5, 6]


def test_with_two_files_of_one_name_nothing_is_removed(tmp_path: Path) -> None:
    deployment = tally(tmp_path, "{count: 2}")
    days(deployment, 1, 4)
    file = Path(deployment.pipelines_directory) / "tally.yaml"
    file.with_name("old.yaml").write_text(file.read_text())
    with pytest.raises(InvalidRequestError, match=r"tally\.yaml:1: name: .*old\.yaml has the name 'tally' already"):
        retire(deployment)
    assert completed(deployment) == [1, 2, 3, 4]


def test_retention_counts_beyond_a_gap_in_the_history(tmp_path: Path) -> None:
    deployment = tally(tmp_path, "{count: 3}")
    days(deployment, 1, 5)
    given_up(deployment, tmp_path, 4)
    cleaned(deployment)
    assert completed(deployment) == [2, 3, 5]


@pytest.mark.parametrize("claim_mode", list(ClaimMode))
def test_a_snapshot_that_was_restored_by_its_path_does_not_end_the_history(
    tmp_path: Path, claim_mode: ClaimMode
) -> None:
    """The restore can be undone: all checkpoints before it exist after the next run and a cleanup."""
    deployment = tally(tmp_path, "{count: 20}")
    days(deployment, 1, 2)
    elsewhere = save(deployment, "kept", target=str(tmp_path / "elsewhere"))
    directory = deployment.catalog().get(NAME, CheckpointId(elsewhere)).directory
    days(deployment, 3, 5)
    (tmp_path / "catalog.db").rename(tmp_path / "before.db")
    # The rebuilt catalog has no record of snapshots outside the storage.
    apply_rebuild(deployment, plan_rebuild(deployment))
    pipeline = deployment.pipeline("tally")
    apply_restore(deployment, pipeline, plan_restore(deployment, pipeline, directory, None, claim_mode), "test")
    before = completed(deployment)
    checkpoint_of(deployment, "tally", 3, events(3))
    cleaned(deployment)
    assert set(before) <= set(completed(deployment))
    head = deployment.catalog().head(NAME).head
    older = max(number for number in before if number != head)
    plan = plan_restore(deployment, pipeline, str(older), None, ClaimMode.NO_CLAIM)
    apply_restore(deployment, pipeline, plan, "test")


def test_the_retention_plan_lists_what_is_kept_and_why(tmp_path: Path) -> None:
    deployment = tally(tmp_path)
    days(deployment, 1, 4)
    saved = save(deployment, "kept")
    answer = json.loads(said(deployment, "gc", "--dry-run", "--json"))
    assert {each["checkpoint_id"]: each["because"] for each in answer["retired"][0]["kept"]} == {
        saved: "a savepoint, which is its user's",
        4: "the head",
        3: "one of the newest 2 of the history",
    }
    shown = call(deployment, "gc", "--dry-run").stdout
    assert "tally: kept" in shown
    assert "one of the newest 2 of the history" in shown
