"""Rescaling by hand-checked examples; the laws are in the property tests."""

import pytest

from statelib.coordinator.state_assignment import assign
from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.model.key_groups import KeyGroupRange


def test_at_the_same_parallelism_each_subtask_gets_its_own_state():
    old = [(KeyGroupRange(0, 63), "a"), (KeyGroupRange(64, 127), "b")]
    assert assign(old, 2, 128) == (("a",), ("b",))


def test_after_scaling_up_two_subtasks_read_the_same_state():
    old = [(KeyGroupRange(64, 127), "b"), (KeyGroupRange(0, 63), "a")]
    # The three subtasks own the key groups 0-42, 43-85 and 86-127.
    assert assign(old, 3, 128) == (("a",), ("a", "b"), ("b",))


def test_after_scaling_down_one_subtask_reads_several_states_in_key_group_order():
    old = [(KeyGroupRange(5, 7), "c"), (KeyGroupRange(0, 2), "a"), (KeyGroupRange(3, 4), "b")]
    assert assign(old, 1, 8) == (("a", "b", "c"),)


def test_a_subtask_gets_a_state_only_if_their_key_groups_overlap():
    assert assign([(KeyGroupRange(4, 7), "x")], 2, 8) == ((), ("x",))
    assert assign([(KeyGroupRange(3, 7), "x")], 2, 8) == (("x",), ("x",))


def test_subtasks_whose_key_groups_have_no_state_get_none():
    assert assign([], 2, 8) == ((), ())
    assert assign([(KeyGroupRange(6, 7), "x"), (KeyGroupRange(0, -1), "empty")], 4, 8) == ((), (), (), ("x",))


def test_overlapping_old_states_are_refused():
    with pytest.raises(CorruptStateError, match="0-4 and 4-7 overlap") as refusal:
        assign([(KeyGroupRange(0, 4), "a"), (KeyGroupRange(4, 7), "b")], 2, 8)
    assert refusal.value.kind == "overlapping-key-groups"


def test_an_old_state_beyond_max_parallelism_is_refused():
    with pytest.raises(CorruptStateError, match="0-8") as refusal:
        assign([(KeyGroupRange(0, 8), "a")], 2, 8)
    assert refusal.value.kind == "foreign-key-group"


def test_more_subtasks_than_key_groups_are_refused():
    with pytest.raises(InvalidRequestError):
        assign([], 9, 8)
