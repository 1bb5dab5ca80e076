"""A savepoint whose target is within the storage: a rebuild finds it, and it cannot lie among files of checkpoints."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from statelib.errors import InvalidRequestError
from statelib.flows.cleanup.orphans import orphans
from statelib.model.ids import CheckpointId, PipelineName
from statelib.savepoints.verification.snapshots import verify_at
from tests.integration.garbage import days, save, tally
from tests.integration.shop_cli import said

TALLY = PipelineName("tally")


def test_a_rebuild_enters_savepoints_at_any_depth(tmp_path: Path) -> None:
    deployment = tally(tmp_path)
    days(deployment, 1, 1)
    targets = [
        "state",
        "state/savepoints",
        "state/savepoints/of/mine",
        "state/tally",
        "state/tally/mine",
        "state/others",
    ]
    numbers = [save(deployment, target, str(tmp_path / target)) for target in targets]
    again = replace(deployment, catalog_url=f"sqlite:///{tmp_path}/new.db")
    (plan,) = json.loads(said(again, "catalog", "rebuild", "--yes", "--json"))["pipelines"]
    assert [entered["checkpoint_id"] for entered in plan["entered"]] == [1, *numbers]
    orphans(again, dry_run=False, grace_ms=0, force=True)
    for number in numbers:
        directory = again.catalog().get(TALLY, CheckpointId(number)).directory
        assert directory == deployment.catalog().get(TALLY, CheckpointId(number)).directory
        assert verify_at(directory, own=True).problems == ()


@pytest.mark.parametrize("place", ["shared", "taskowned", "chk-1", "shared/mine", "/chk-7"])
def test_a_target_among_the_files_of_checkpoints_is_refused(tmp_path: Path, place: str) -> None:
    deployment = tally(tmp_path)
    days(deployment, 1, 1)
    with pytest.raises(InvalidRequestError) as refusal:
        save(deployment, "k", f"{tmp_path}/state/tally/{place}")
    assert refusal.value.kind == "bad-target"
    assert len(deployment.catalog().list(TALLY)) == 1
