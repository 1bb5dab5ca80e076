"""A savepoint of which Flink would silently drop a part is refused before it is published."""

from dataclasses import replace

import pytest

from statelib.coordinator.whole_savepoint import check_whole
from statelib.errors import StatelibError
from statelib.model.checkpoint import OperatorState, OperatorSubtaskState
from statelib.model.handles import ByteStreamStateHandle, KeyGroupsSavepointStateHandle, KeyGroupsStateHandle
from statelib.model.key_groups import KeyGroupRange, subtask_ranges


def operator(parallelism: int = 3, max_parallelism: int = 128, name: bytes = b"a" * 16) -> OperatorState:
    subtasks = tuple(
        (i, OperatorSubtaskState(keyed=handle(owned)))
        for i, owned in enumerate(subtask_ranges(parallelism, max_parallelism))
    )
    return OperatorState(name, parallelism, max_parallelism, subtasks)


def handle(owned: KeyGroupRange, offsets: int | None = None) -> KeyGroupsSavepointStateHandle:
    size = len(owned) if offsets is None else offsets
    return KeyGroupsSavepointStateHandle(owned, (0,) * size, ByteStreamStateHandle("x", b"header"))


def with_subtask(whole: OperatorState, index: int, state: OperatorSubtaskState) -> OperatorState:
    return replace(whole, subtasks=tuple((i, state if i == index else s) for i, s in whole.subtasks))


@pytest.mark.parametrize(("parallelism", "max_parallelism"), [(1, 1), (3, 128), (129, 129), (1, 32768), (128, 32768)])
def test_complete_savepoints_pass(parallelism: int, max_parallelism: int) -> None:
    check_whole([operator(parallelism, max_parallelism), OperatorState(b"b" * 16, 1, 128, ())])


def refused(*operators: OperatorState) -> str:
    with pytest.raises(StatelibError) as caught:
        check_whole(operators)
    return caught.value.kind


def test_a_missing_subtask_is_refused() -> None:
    whole = operator()
    assert refused(replace(whole, subtasks=whole.subtasks[:2])) == "missing-subtask"
    assert refused(with_subtask(whole, 1, OperatorSubtaskState())) == "missing-subtask"


def test_key_groups_of_another_subtask_are_refused() -> None:
    whole = operator()
    assert refused(with_subtask(whole, 0, whole.subtasks[1][1])) == "wrong-key-groups"
    assert refused(with_subtask(whole, 2, OperatorSubtaskState(keyed=handle(KeyGroupRange(86, 126))))) == (
        "wrong-key-groups"
    )
    assert refused(replace(whole, parallelism=4)) == "wrong-key-groups"
    short = OperatorSubtaskState(keyed=handle(KeyGroupRange(86, 127), 41))
    assert refused(with_subtask(whole, 2, short)) == "wrong-key-groups"


def test_offsets_beyond_the_stream_are_refused() -> None:
    beyond = replace(handle(KeyGroupRange(0, 0)), offsets=(6,))
    alone = OperatorState(b"a" * 16, 1, 1, ((0, OperatorSubtaskState(keyed=beyond)),))
    assert refused(alone) == "bad-offsets"


def test_other_handles_and_repeated_operators_are_refused() -> None:
    heap = KeyGroupsStateHandle(KeyGroupRange(0, 42), (0,) * 43, ByteStreamStateHandle("x", b""))
    assert refused(with_subtask(operator(), 0, OperatorSubtaskState(keyed=heap))) == "not-canonical"
    assert refused(operator(), operator()) == "duplicate-operator"


def test_more_subtasks_than_key_groups_are_refused() -> None:
    assert refused(replace(operator(), max_parallelism=2)) == "bad-parallelism"
    assert refused(replace(operator(), max_parallelism=32769)) == "bad-max-parallelism"
