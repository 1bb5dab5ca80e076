"""Whether a canonical savepoint is one that Flink restores whole: what it would drop without a word is refused here.

Source: flink-acceptance.md section 2 (T11, T25 to T29, T40); flink-formats.md section 11.
"""

from collections.abc import Collection, Sequence

from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.model.amounts import number_of
from statelib.model.checkpoint import OperatorState, OperatorSubtaskState
from statelib.model.handles import KeyGroupsSavepointStateHandle
from statelib.model.key_groups import KeyGroupRange, check_parallelism, subtask_range

Subtask = tuple[bytes, int]
"""An operator's id and the index of one of its subtasks."""


def check_whole(operators: Sequence[OperatorState], unregistered: Collection[Subtask] = ()) -> None:
    """Every operator once; every subtask of those with keyed state, with exactly the key groups it owns.
    ``unregistered``: subtasks that need not have any, because a job of Flink's registers state when it first uses it.

    Raises CorruptStateError (``missing-subtask``, ``wrong-key-groups``, ``bad-offsets``), InvalidRequestError
    (``duplicate-operator``, ``not-canonical``, ``bad-parallelism``, ``bad-max-parallelism``)."""
    ids = [operator.operator_id for operator in operators]
    if len(set(ids)) != len(ids):
        twice = next(one for one in ids if ids.count(one) > 1)
        raise InvalidRequestError(f"operator {twice.hex()} is there twice", kind="duplicate-operator")
    for operator in operators:
        _check_operator(operator, {index for one, index in unregistered if one == operator.operator_id})


def _check_operator(operator: OperatorState, unregistered: set[int]) -> None:
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


def _check_subtask(what: str, state: OperatorSubtaskState, owned: KeyGroupRange) -> None:
    handle = state.keyed
    if not isinstance(handle, KeyGroupsSavepointStateHandle):
        raise InvalidRequestError(
            f"{what}: its state is a {type(handle).__name__}, not canonical",
            kind="not-canonical",
            hint="take a canonical savepoint: flink savepoint --type canonical",
        )
    if handle.key_group_range != owned or len(handle.offsets) != len(owned):
        raise CorruptStateError(
            f"{what}: key groups {handle.key_group_range} with {number_of(len(handle.offsets), 'offset')}, it"
            f" owns {owned}",
            kind="wrong-key-groups",
        )
    size = handle.stream.size_bytes
    if not all(0 <= offset < size for offset in handle.offsets):
        raise CorruptStateError(f"{what}: an offset beyond the {size} bytes of its stream", kind="bad-offsets")
