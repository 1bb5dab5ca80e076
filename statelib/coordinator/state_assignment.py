"""Which old state each new subtask reads when a checkpoint is restored, perhaps at another parallelism.

Source: Flink's StateAssignmentOperation (keyed state: intersect old ranges with new ones).
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
    """For each of ``parallelism`` new subtasks the old states that hold any of its key groups.

    ``subtasks`` pairs each old range with its state (a handle); old subtasks without state are
    left out, so gaps are allowed. The parts come in ascending order of key groups. Law: every
    key group of an old range is read by exactly one new subtask, out of exactly one old state.

    Raises CorruptStateError: ``overlapping-key-groups`` (an entry would be read twice),
    ``foreign-key-group`` (a range beyond ``max_parallelism``); InvalidRequestError for a bad
    parallelism.
    """
    targets = subtask_ranges(parallelism, max_parallelism)
    ordered = sorted((s for s in subtasks if len(s[0])), key=lambda s: s[0].start)
    _check_old_ranges([held for held, _ in ordered], max_parallelism)
    # Disjoint and in order, the old states that meet one target lie side by side.
    starts, ends = [held.start for held, _ in ordered], [held.end for held, _ in ordered]
    parts = [slice(bisect_left(ends, target.start), bisect_right(starts, target.end)) for target in targets]
    return tuple(tuple(state for _, state in ordered[part]) for part in parts)


def _check_old_ranges(ranges: Sequence[KeyGroupRange], max_parallelism: int) -> None:
    for i, held in enumerate(ranges):
        if held.end >= max_parallelism:
            raise CorruptStateError(
                f"old state of key groups {held}: expected key groups below max_parallelism {max_parallelism}",
                kind="foreign-key-group",
            )
        if i and held.start <= ranges[i - 1].end:
            raise CorruptStateError(
                f"old states of key groups {ranges[i - 1]} and {held} overlap: expected each key group once",
                kind="overlapping-key-groups",
            )
