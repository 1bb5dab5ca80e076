"""The assignment of operator state to new subtasks when a checkpoint is restored, perhaps at another parallelism.

Source: docs/spec/formats.md#operator-state (RoundRobinOperatorStateRepartitioner of Flink).
"""

from collections.abc import Sequence
from dataclasses import replace

from statelib.model.handles import OperatorStreamStateHandle
from statelib.model.operator_state import OperatorStateMode

_Part = tuple[int, str, int, tuple[int, ...]]
"""(old subtask, name of the state, mode, offsets): the elements of one state in one old stream."""


def redistribute(
    old: Sequence[OperatorStreamStateHandle | None], parallelism: int
) -> tuple[tuple[OperatorStreamStateHandle, ...], ...]:
    """Return, per new subtask, the old handles with only the elements that the subtask reads.

    Exactly one new subtask reads each element of a list state. All new subtasks read each element of a union state.
    Each new subtask reads one copy of a broadcast state. If the parallelism does not change, each subtask keeps its
    list and broadcast state. If the elements of a list state cannot be divided evenly, the subtasks that follow those
    that got one element more of the list state before get one element more of this one.

    Args:
        old: The handle per old subtask, None if the subtask has no operator state.
        parallelism: The number of new subtasks.
    """
    parts = [(subtask, *state) for subtask, handle in enumerate(old) if handle is not None for state in handle.states]
    targets: list[list[_Part]] = [[] for _ in range(parallelism)]
    names = dict.fromkeys((name, mode) for _, name, mode, _ in parts)
    first_subtask = 0
    for name, mode in names:
        same_state_parts = [part for part in parts if (part[1], part[2]) == (name, mode)]
        if mode == OperatorStateMode.UNION:
            for target in targets:
                target.extend(same_state_parts)
        elif parallelism == len(old):
            for part in same_state_parts:
                targets[part[0]].append(part)
        elif mode == OperatorStateMode.BROADCAST:
            for subtask, target in enumerate(targets):
                target.append(same_state_parts[subtask % len(same_state_parts)])
        else:
            first_subtask = _distribute(same_state_parts, targets, first_subtask)
    return tuple(_handles(old, target) for target in targets)


def _distribute(parts: Sequence[_Part], targets: list[list[_Part]], first_subtask: int) -> int:
    """Distribute the ``parts`` of one list state to ``targets``, beginning with ``first_subtask``.

    Return the subtask with which the next list state begins."""
    elements = [(subtask, offset) for subtask, _, _, offsets in parts for offset in offsets]
    _, name, mode, _ = parts[0]
    smaller_share, remainder = divmod(len(elements), len(targets))
    start = 0
    for turn in range(len(targets)):
        size = smaller_share + (turn < remainder)
        share, start = elements[start : start + size], start + size
        target = targets[(first_subtask + turn) % len(targets)]
        for subtask in dict.fromkeys(subtask for subtask, _ in share):
            target.append((subtask, name, mode, tuple(offset for old, offset in share if old == subtask)))
    return (first_subtask + remainder) % len(targets)


def _handles(
    old: Sequence[OperatorStreamStateHandle | None], parts: Sequence[_Part]
) -> tuple[OperatorStreamStateHandle, ...]:
    """Return one handle per old stream, in the order of the old subtasks."""
    handles = []
    for subtask in sorted({part[0] for part in parts}):
        handle = old[subtask]
        assert handle is not None
        states = tuple((name, mode, offsets) for old_subtask, name, mode, offsets in parts if old_subtask == subtask)
        handles.append(replace(handle, states=states))
    return tuple(handles)
