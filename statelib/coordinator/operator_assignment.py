"""Which operator state each new subtask reads when a checkpoint is restored, perhaps at another parallelism.

Source: Flink's RoundRobinOperatorStateRepartitioner.
"""

from collections.abc import Sequence
from dataclasses import replace

from statelib.model.handles import OperatorStreamStateHandle
from statelib.model.operator_state import OperatorStateMode

_Part = tuple[int, str, int, tuple[int, ...]]
"""(old subtask, state, mode, offsets): elements of one state in one old stream."""


def redistribute(
    old: Sequence[OperatorStreamStateHandle | None], parallelism: int
) -> tuple[tuple[OperatorStreamStateHandle, ...], ...]:
    """For each of ``parallelism`` new subtasks the old handles, each cut down to what that subtask reads.

    ``old``: by old subtask, None where there is no operator state. Law: every element of list state is
    read by exactly one new subtask, every element of union state by all, and of a broadcast state each
    reads one copy. At the same parallelism list and broadcast state stay where they are. List states
    whose elements cannot be shared out evenly begin where the one before ended, so that the first
    subtasks do not get all that is left over.
    """
    parts = [(i, *state) for i, handle in enumerate(old) if handle is not None for state in handle.states]
    targets: list[list[_Part]] = [[] for _ in range(parallelism)]
    names = dict.fromkeys((name, mode) for _, name, mode, _ in parts)
    first = 0
    for name, mode in names:
        held = [part for part in parts if (part[1], part[2]) == (name, mode)]
        if mode == OperatorStateMode.UNION:
            for target in targets:
                target.extend(held)
        elif parallelism == len(old):
            for part in held:
                targets[part[0]].append(part)
        elif mode == OperatorStateMode.BROADCAST:
            for i, target in enumerate(targets):
                target.append(held[i % len(held)])
        else:
            first = _split(held, targets, first)
    return tuple(_handles(old, target) for target in targets)


def _split(held: Sequence[_Part], targets: list[list[_Part]], first: int) -> int:
    """Share out one list state, beginning with subtask ``first``; who is to begin with the next one."""
    elements = [(subtask, offset) for subtask, _, _, offsets in held for offset in offsets]
    _, name, mode, _ = held[0]
    base, more = divmod(len(elements), len(targets))
    at = 0
    for turn in range(len(targets)):
        size = base + (turn < more)
        taken, at = elements[at : at + size], at + size
        target = targets[(first + turn) % len(targets)]
        for subtask in dict.fromkeys(subtask for subtask, _ in taken):
            target.append((subtask, name, mode, tuple(offset for s, offset in taken if s == subtask)))
    return (first + more) % len(targets)


def _handles(
    old: Sequence[OperatorStreamStateHandle | None], parts: Sequence[_Part]
) -> tuple[OperatorStreamStateHandle, ...]:
    """One handle an old stream, in the order of the old subtasks."""
    found = []
    for subtask in sorted({part[0] for part in parts}):
        handle = old[subtask]
        assert handle is not None
        states = tuple((name, mode, offsets) for s, name, mode, offsets in parts if s == subtask)
        found.append(replace(handle, states=states))
    return tuple(found)
