"""The check that Flink restores all state of a canonical savepoint. Flink drops some kinds of state without an error;
savepoints with such state are rejected here.

Source: docs/spec/formats.md#writing-a-savepoint.
"""

from collections.abc import Collection, Sequence

from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.model.amounts import number_of
from statelib.model.checkpoint import OperatorState, OperatorSubtaskState
from statelib.model.handles import KeyGroupsSavepointStateHandle
from statelib.model.key_groups import KeyGroupRange, check_parallelism, subtask_range

Subtask = tuple[bytes, int]
"""(id of the operator, index of one of its subtasks)."""


def check_whole(operators: Sequence[OperatorState], unregistered: Collection[Subtask] = ()) -> None:
    """Raise an error unless each operator occurs once and all its keyed state is present.

    If an operator has keyed state, each of its subtasks must have the state of exactly the key groups that it owns.

    Args:
        operators: The operators of the savepoint.
        unregistered: The subtasks that may have no keyed state, because a Flink job registers a state only when it
            first uses it.

    Raises:
        CorruptStateError: ``missing-subtask``, ``wrong-key-groups``, ``bad-offsets``.
        InvalidRequestError: ``duplicate-operator``, ``not-canonical``, ``bad-parallelism``, ``bad-max-parallelism``.
    """
    ids = [operator.operator_id for operator in operators]
    if len(set(ids)) != len(ids):
        duplicate = next(operator_id for operator_id in ids if ids.count(operator_id) > 1)
        raise InvalidRequestError(f"operator {duplicate.hex()} is there twice", kind="duplicate-operator")
    for operator in operators:
        _check_operator(operator, {index for operator_id, index in unregistered if operator_id == operator.operator_id})


def _check_operator(operator: OperatorState, unregistered: set[int]) -> None:
    """Raise an error if a subtask of one operator has no keyed state, or another's."""
    subtasks = dict(operator.subtasks)
    keyed = {index: state for index, state in subtasks.items() if state.keyed is not None}
    if not keyed:
        return
    name = f"operator {operator.uid or operator.operator_id.hex()}"
    check_parallelism(operator.parallelism, operator.max_parallelism)
    for index in range(operator.parallelism):
        if index in unregistered and index not in keyed:
            continue
        if index not in keyed:
            raise CorruptStateError(
                f"{name}: subtask {index} of {operator.parallelism} has no keyed state, the others have",
                kind="missing-subtask",
                hint="Flink would take its key groups to be empty",
            )
        _check_subtask(
            f"{name}, subtask {index}",
            keyed[index],
            subtask_range(index, operator.parallelism, operator.max_parallelism),
        )
    if max(keyed) >= operator.parallelism:
        raise CorruptStateError(f"{name}: more subtasks than its {operator.parallelism}", kind="missing-subtask")


def _check_subtask(name: str, state: OperatorSubtaskState, owned: KeyGroupRange) -> None:
    """Raise an error unless ``state`` is canonical and contains exactly the key groups ``owned``."""
    handle = state.keyed
    if not isinstance(handle, KeyGroupsSavepointStateHandle):
        raise InvalidRequestError(
            f"{name}: its state is a {type(handle).__name__}, not canonical",
            kind="not-canonical",
            hint="take a canonical savepoint: flink savepoint --type canonical",
        )
    if handle.key_group_range != owned or len(handle.offsets) != len(owned):
        raise CorruptStateError(
            f"{name}: key groups {handle.key_group_range} with {number_of(len(handle.offsets), 'offset')}, it"
            f" owns {owned}",
            kind="wrong-key-groups",
        )
    size = handle.stream.size_bytes
    if not all(0 <= offset < size for offset in handle.offsets):
        raise CorruptStateError(f"{name}: an offset beyond the {size} bytes of its stream", kind="bad-offsets")
