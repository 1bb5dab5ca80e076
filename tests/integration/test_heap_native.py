"""A heap pipeline with ``checkpoint.strategy: full``: Flink's heap stream from checkpoint to restore, without Spark."""

from pathlib import Path

import pytest

from statelib.errors import InvalidRequestError
from statelib.flows.checkpoint.steps import check, register
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.model.handles import KeyedStateHandle, KeyGroupsSavepointStateHandle, KeyGroupsStateHandle
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import ClaimMode
from statelib.savepoints.lines import export_lines
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.savepoints.verification.snapshots import verify
from tests.integration.shop import SALES, sales
from tests.support.worlds import checkpoint_of, new_deployment, publish_here

NATIVE = SALES.replace("{inline_threshold_bytes: 1}", "{inline_threshold_bytes: 1, strategy: full}")


def world(root: Path, text: str) -> Deployment:
    pipelines = root / "pipelines"
    pipelines.mkdir(parents=True, exist_ok=True)
    (pipelines / "sales.yaml").write_text(text)
    return new_deployment(root, root, pipelines)


def opened(deployment: Deployment, checkpoint_id: int) -> Checkpoint:
    record = deployment.catalog().get(PipelineName("sales"), CheckpointId(checkpoint_id))
    return open_checkpoint(record.directory, own=True)


def savepoint(deployment: Deployment, form: str) -> int:
    pipeline = deployment.pipeline("sales")
    begun = begin_savepoint(deployment, pipeline, format=form, target=None, note="", owner="test", key=form)
    publish_here(deployment, pipeline, begun.checkpoint_id)
    check(deployment, pipeline, begun.checkpoint_id)
    register(deployment, pipeline, begun.checkpoint_id)
    return begun.checkpoint_id


def assert_written_as(checkpoint: Checkpoint, type_: type[KeyedStateHandle], handles: int) -> None:
    assert [type(handle) for handle in checkpoint.handles()] == [type_] * handles
    assert verify(checkpoint).problems == ()


@pytest.mark.parametrize(("text", "type_"), [(NATIVE, KeyGroupsStateHandle), (SALES, KeyGroupsSavepointStateHandle)])
def test_either_strategy_supports_checkpoint_savepoint_and_rescaled_restore(
    tmp_path: Path, text: str, type_: type[KeyedStateHandle]
) -> None:
    deployment = world(tmp_path, text)
    pipeline = deployment.pipeline("sales")
    first = checkpoint_of(deployment, "sales", 1, sales(0))
    second = checkpoint_of(deployment, "sales", 2, sales(6))
    check(deployment, pipeline, second)
    assert_written_as(opened(deployment, second), type_, 2)
    native, canonical = savepoint(deployment, "native"), savepoint(deployment, "canonical")
    assert_written_as(opened(deployment, native), KeyGroupsStateHandle, 2)
    assert_written_as(opened(deployment, canonical), KeyGroupsSavepointStateHandle, 2)
    lines = sorted(export_lines(opened(deployment, second), None))
    assert len(lines) > 10
    assert sorted(export_lines(opened(deployment, native), None)) == lines
    assert sorted(export_lines(opened(deployment, canonical), None)) == lines
    apply_restore(deployment, pipeline, plan_restore(deployment, pipeline, str(first), 3, ClaimMode.NO_CLAIM), "test")
    again = checkpoint_of(deployment, "sales", 2, sales(6))
    assert_written_as(opened(deployment, again), type_, 3)
    assert sorted(export_lines(opened(deployment, again), None)) == lines


def test_only_a_canonical_savepoint_can_be_restored_into_rocksdb(tmp_path: Path) -> None:
    heap = world(tmp_path, NATIVE)
    checkpoint_of(heap, "sales", 1, sales(0))
    canonical = savepoint(heap, "canonical")
    deployment = world(tmp_path, SALES.replace("backend: heap", "backend: rocksdb"))
    pipeline = deployment.pipeline("sales")
    with pytest.raises(InvalidRequestError, match="KeyGroupsStateHandle") as caught:
        plan_restore(deployment, pipeline, "1", None, ClaimMode.NO_CLAIM)
    assert caught.value.kind == "backend-changed"
    assert "canonical savepoint" in str(caught.value.hint)
    plan = plan_restore(deployment, pipeline, str(canonical), None, ClaimMode.NO_CLAIM)
    apply_restore(deployment, pipeline, plan, "test")
    moved = checkpoint_of(deployment, "sales", 2, sales(6))
    assert verify(opened(deployment, moved)).problems == ()
