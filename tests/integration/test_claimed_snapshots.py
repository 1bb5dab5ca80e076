"""Two pipelines use one snapshot: neither deletes files that the other needs, also if one of them has claimed it."""

from pathlib import Path

import pytest

from statelib.flows.cleanup.garbage import collect_garbage, dispose
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState, ClaimMode
from statelib.savepoints.verification.snapshots import verify_at
from tests.integration.shop import SALES, open_shop, sales
from tests.support.worlds import checkpoint_of

SAVEPOINT = CheckpointId(4)


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    """Return the shop's deployment with a pipeline ``shops`` that continues from the state of ``sales``."""
    shop = open_shop(tmp_path)
    text = SALES.replace("name: sales", "name: shops\nrenamed_from: sales")
    (tmp_path / "pipelines" / "shops.yaml").write_text(text)
    return shop


def restore(deployment: Deployment, checkpoint: str, mode: ClaimMode) -> CheckpointId:
    pipeline = deployment.pipeline("shops")
    head = apply_restore(deployment, pipeline, plan_restore(deployment, pipeline, checkpoint, None, mode), "test")
    assert head.head is not None
    return head.head


@pytest.mark.parametrize("mode", ClaimMode)
@pytest.mark.parametrize("first", ["sales", "shops"])
def test_a_snapshot_of_two_pipelines_is_deleted_with_the_second(
    deployment: Deployment, first: str, mode: ClaimMode
) -> None:
    sold = deployment.catalog().get(PipelineName("sales"), SAVEPOINT)
    imported = restore(deployment, sold.directory, mode)
    checkpoint_of(deployment, "shops", 3, sales(200))
    mine = {"sales": SAVEPOINT, "shops": imported}
    second = next(name for name in mine if name != first)
    dispose(deployment, PipelineName(first), mine[first])
    assert deployment.catalog().get(PipelineName(first), mine[first]).state is CheckpointState.DELETED
    assert not verify_at(sold.directory, own=True, storage_root=deployment.storage_root).problems
    dispose(deployment, PipelineName(second), mine[second])
    collect_garbage(deployment)
    assert deployment.remover().list_files(sold.directory) == []


@pytest.mark.parametrize("mode", ClaimMode)
def test_a_restore_whose_answer_was_lost_can_be_repeated(deployment: Deployment, mode: ClaimMode) -> None:
    """A task that is run again has the plan of before, in which the snapshot is not registered yet."""
    pipeline, sold = deployment.pipeline("shops"), deployment.catalog().get(PipelineName("sales"), SAVEPOINT)
    plan = plan_restore(deployment, pipeline, sold.directory, None, mode)
    first, second = (apply_restore(deployment, pipeline, plan, "test") for _ in range(2))
    assert (plan.checkpoint_id, second.head) == (None, first.head)
    assert len(deployment.catalog().list(PipelineName("shops"))) == 1
