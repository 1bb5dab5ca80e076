"""The assignment of keyed state to new subtasks when a checkpoint is restored, perhaps at another parallelism.

Source: docs/spec/formats.md#key-groups, #restoring-rocksdb-state (StateAssignmentOperation of Flink).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TypeVar

from statelib.errors import CorruptStateError
from statelib.model.key_groups import KeyGroupRange, subtask_ranges

T = TypeVar("T")


def assign(
    subtasks: Sequence[tuple[KeyGroupRange, T]], parallelism: int, max_parallelism: int
) -> tuple[tuple[T, ...], ...]:
    """Return, per new subtask, the old states that contain any of its key groups, in the order of their key groups.

    Exactly one new subtask reads each key group of an old range, from exactly one old state.

    Args:
        subtasks: The key groups and the state (a handle) per old subtask. Old subtasks without state are omitted, so
            gaps are allowed.
        parallelism: The number of new subtasks.
        max_parallelism: The number of key groups.

    Raises:
        CorruptStateError: ``overlapping-key-groups`` if an entry would be read twice; ``foreign-key-group`` if a range
            ends beyond ``max_parallelism``.
        InvalidRequestError: ``bad-parallelism`` or ``bad-max-parallelism``.
    """
    targets = subtask_ranges(parallelism, max_parallelism)
    old_states = sorted((subtask for subtask in subtasks if len(subtask[0])), key=lambda subtask: subtask[0].start)
    _check_old_ranges([key_groups for key_groups, _ in old_states], max_parallelism)
    # The old ranges are disjoint and sorted, so those that overlap one new range are consecutive.
    starts = [key_groups.start for key_groups, _ in old_states]
    ends = [key_groups.end for key_groups, _ in old_states]
    slices = [slice(bisect_left(ends, target.start), bisect_right(starts, target.end)) for target in targets]
    return tuple(tuple(state for _, state in old_states[overlapping]) for overlapping in slices)


def _check_old_ranges(ranges: Sequence[KeyGroupRange], max_parallelism: int) -> None:
    """Raise CorruptStateError if one of the sorted ``ranges`` overlaps the one before or ends too late."""
    for i, key_groups in enumerate(ranges):
        if key_groups.end >= max_parallelism:
            raise CorruptStateError(
                f"old state of key groups {key_groups}: expected key groups below max_parallelism {max_parallelism}",
                kind="foreign-key-group",
            )
        if i and key_groups.start <= ranges[i - 1].end:
            raise CorruptStateError(
                f"old states of key groups {ranges[i - 1]} and {key_groups} overlap: expected each key group once",
                kind="overlapping-key-groups",
            )
