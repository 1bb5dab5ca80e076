"""The transition table: each legal step, each illegal one, and the two rules over all of them."""

import pytest

from statelib.coordinator.checkpoint_lifecycle import (
    COMMITTED,
    TRANSITIONS,
    CheckpointEvent,
    Command,
    Lifecycle,
    after,
    before,
    handle,
)
from statelib.errors import ConflictError
from statelib.model.checkpoint import SnapshotKind
from statelib.model.record import CheckpointState

CHECKPOINT, SAVEPOINT = Lifecycle(SnapshotKind.CHECKPOINT), Lifecycle(SnapshotKind.SAVEPOINT)
DELETES = {Command.RELEASE_FILES, Command.DELETE_METADATA, Command.DELETE_DATA}


def test_a_checkpoint_that_succeeds():
    lifecycle, told = CHECKPOINT, []
    for event in (CheckpointEvent.ACKNOWLEDGED, CheckpointEvent.PUBLISHED, CheckpointEvent.GATE_PASSED):
        lifecycle, commands = handle(lifecycle, event)
        told += commands
    assert lifecycle == Lifecycle(SnapshotKind.CHECKPOINT, CheckpointState.COMPLETED)
    assert told == [Command.PUBLISH_METADATA, Command.RUN_GATE, Command.RECORD_FILES, Command.MOVE_HEAD]


def test_a_savepoint_never_moves_the_head():
    lifecycle, commands = handle(SAVEPOINT, CheckpointEvent.GATE_PASSED)
    assert (lifecycle.state, commands) == (CheckpointState.COMPLETED, (Command.RECORD_FILES,))


def test_metadata_is_deleted_before_the_data_it_names():
    completed = Lifecycle(SnapshotKind.CHECKPOINT, CheckpointState.COMPLETED)
    lifecycle, commands = handle(completed, CheckpointEvent.SUBSUMED)
    assert commands == (Command.RELEASE_FILES, Command.DELETE_METADATA, Command.DELETE_DATA)
    assert handle(lifecycle, CheckpointEvent.DISCARDED)[0].state is CheckpointState.DELETED


@pytest.mark.parametrize("state", CheckpointState)
@pytest.mark.parametrize("event", CheckpointEvent)
def test_what_is_not_in_the_table_is_one_error(state: CheckpointState, event: CheckpointEvent):
    lifecycle = Lifecycle(SnapshotKind.CHECKPOINT, state)
    if (state, event) in TRANSITIONS:
        assert handle(lifecycle, event)[0].state is TRANSITIONS[state, event][0]
        return
    with pytest.raises(ConflictError, match=f"event {event} on a checkpoint that is {state}") as refusal:
        handle(lifecycle, event)
    assert refusal.value.kind == "illegal-transition"


def test_only_the_gate_or_a_person_completes_and_nothing_uncompletes():
    completing = {
        (CheckpointState.PENDING, CheckpointEvent.GATE_PASSED),
        (CheckpointState.QUARANTINED, CheckpointEvent.RELEASED),
    }
    for (state, event), (target, commands) in TRANSITIONS.items():
        if target is CheckpointState.COMPLETED:
            assert (state, event) in completing
        if state in COMMITTED:
            assert target in COMMITTED
        if DELETES & set(commands):
            assert state in (CheckpointState.COMPLETED, CheckpointState.QUARANTINED), "giving up deletes nothing"


def test_what_is_set_aside_keeps_its_files_and_moves_no_head_until_it_is_released():
    aside, commands = handle(CHECKPOINT, CheckpointEvent.SET_ASIDE)
    assert (aside.state, commands) == (CheckpointState.QUARANTINED, (Command.RECORD_FILES,))
    assert handle(aside, CheckpointEvent.RELEASED) == (
        Lifecycle(SnapshotKind.CHECKPOINT, CheckpointState.COMPLETED),
        (Command.MOVE_HEAD,),
    )
    assert handle(aside, CheckpointEvent.SUBSUMED)[0].state is CheckpointState.DELETING
    saved, _ = handle(SAVEPOINT, CheckpointEvent.SET_ASIDE)
    assert handle(saved, CheckpointEvent.RELEASED)[1] == ()


def test_aborted_and_deleted_are_final():
    assert {state for state, _ in TRANSITIONS} == {
        CheckpointState.PENDING,
        CheckpointState.COMPLETED,
        CheckpointState.QUARANTINED,
        CheckpointState.DELETING,
    }


def test_before_and_after_are_the_two_sides_of_the_table():
    assert before(CheckpointEvent.GATE_PASSED) == (CheckpointState.PENDING,)
    assert after(CheckpointEvent.GATE_PASSED) is CheckpointState.COMPLETED
    assert after(CheckpointEvent.SUPERSEDED) is CheckpointState.ABORTED
    for event in CheckpointEvent:
        for state in before(event):
            assert TRANSITIONS[state, event][0] is after(event)
