"""The discard plan: order, and the refusal to delete what is needed."""

import pytest

from statelib.coordinator.discard import CondemnedFile, check_unreferenced, discard_plan
from statelib.errors import CorruptStateError
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState
from tests.unit.coordinator.checkpoints import PIPE, checkpoint

DELETING = [checkpoint(n, None, state=CheckpointState.DELETING) for n in (2, 1)]
FILES = [CondemnedFile(f"file:///state/p/chk-{n}/{name}", 10, CheckpointId(n)) for n in (2, 1) for name in "ba"]


def test_the_plan_lists_files_in_order_and_their_total_size():
    plan = discard_plan(PIPE, DELETING, FILES, {"file:///state/p/chk-3/a"})
    assert [r.checkpoint_id for r in plan.checkpoints] == [1, 2]
    assert [f.uri.removeprefix("file:///state/p/") for f in plan.files] == ["chk-1/a", "chk-1/b", "chk-2/a", "chk-2/b"]
    assert plan.size_bytes == 40


def test_a_file_that_is_still_referenced_makes_the_plan_fail():
    with pytest.raises(CorruptStateError, match="chk-1/b") as refusal:
        discard_plan(PIPE, DELETING, FILES, {FILES[2].uri})
    assert refusal.value.kind == "discard-of-referenced"
    check_unreferenced([], {"a"})
    check_unreferenced(["b"], {"a"})


@pytest.mark.parametrize("state", [state for state in CheckpointState if state is not CheckpointState.DELETING])
def test_the_metadata_of_a_living_checkpoint_is_never_deleted(state: CheckpointState):
    with pytest.raises(CorruptStateError) as refusal:
        discard_plan(PIPE, [checkpoint(1, None, state=state)], [], ())
    assert refusal.value.kind == "discard-of-live"


def test_another_pipelines_checkpoint_is_refused():
    with pytest.raises(CorruptStateError):
        discard_plan(PipelineName("q"), DELETING, [], ())
