"""The transition table: what may complete a checkpoint, what is final, and the two sides that an UPDATE needs."""

from statelib.coordinator.checkpoint_lifecycle import COMMITTED, TRANSITIONS, CheckpointEvent, after, before
from statelib.model.record import CheckpointState


def test_only_the_gate_or_a_person_completes_a_checkpoint_and_no_event_reverts_it():
    completing = {
        (CheckpointState.PENDING, CheckpointEvent.GATE_PASSED),
        (CheckpointState.QUARANTINED, CheckpointEvent.RELEASED),
    }
    assert {step for step, target in TRANSITIONS.items() if target is CheckpointState.COMPLETED} == completing
    assert all(target in COMMITTED for (state, _), target in TRANSITIONS.items() if state in COMMITTED)


def test_only_states_with_recorded_files_lead_to_deletion():
    sources = {state for (state, _), target in TRANSITIONS.items() if target is CheckpointState.DELETING}
    assert sources == {CheckpointState.COMPLETED, CheckpointState.QUARANTINED}, "giving up deletes nothing"
    assert before(CheckpointEvent.DISCARDED) == (CheckpointState.DELETING,)


def test_aborted_and_deleted_are_final():
    assert {state for state, _ in TRANSITIONS} == {
        CheckpointState.PENDING,
        CheckpointState.COMPLETED,
        CheckpointState.QUARANTINED,
        CheckpointState.DELETING,
    }


def test_before_and_after_return_the_two_sides_of_the_transition_table():
    assert before(CheckpointEvent.GATE_PASSED) == (CheckpointState.PENDING,)
    assert after(CheckpointEvent.GATE_PASSED) is CheckpointState.COMPLETED
    assert after(CheckpointEvent.SUPERSEDED) is CheckpointState.ABORTED
    assert after(CheckpointEvent.DISCARDED) is CheckpointState.DELETED
    for event in CheckpointEvent:
        assert before(event)
        for state in before(event):
            assert TRANSITIONS[state, event] is after(event)
