"""Key groups: the units in which keyed state is distributed over subtasks and moved between them.

Source: docs/spec/formats.md#key-groups (KeyGroupRangeAssignment, MathUtils).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from statelib.errors import InvalidRequestError

MAX_MAX_PARALLELISM = 32768


@dataclass(frozen=True, order=True)
class KeyGroupRange:
    """The key groups from ``start`` to ``end``, both inclusive. ``end == start - 1`` is the empty range.

    Raises InvalidRequestError (``bad-key-group-range``)."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if self.start < 0 or self.end < self.start - 1:
            raise InvalidRequestError(
                f"key-group range {self.start}..{self.end}: expected 0 <= start <= end + 1", kind="bad-key-group-range"
            )

    def __len__(self) -> int:
        return self.end - self.start + 1

    def __contains__(self, key_group: object) -> bool:
        return isinstance(key_group, int | np.integer) and self.start <= int(key_group) <= self.end

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.end + 1))

    def __str__(self) -> str:
        return f"{self.start}-{self.end}"

    def intersection(self, other: "KeyGroupRange") -> "KeyGroupRange":
        """Return the key groups that are in both ranges; an empty range at the larger ``start`` if there are none."""
        start = max(self.start, other.start)
        return KeyGroupRange(start, max(min(self.end, other.end), start - 1))


def check_parallelism(parallelism: int, max_parallelism: int) -> None:
    """Raise InvalidRequestError (``bad-parallelism``, ``bad-max-parallelism``) unless
    1 <= parallelism <= max_parallelism <= 32768."""
    if not 1 <= max_parallelism <= MAX_MAX_PARALLELISM:
        raise InvalidRequestError(
            f"max_parallelism {max_parallelism}: expected 1 to {MAX_MAX_PARALLELISM}", kind="bad-max-parallelism"
        )
    if not 1 <= parallelism <= max_parallelism:
        raise InvalidRequestError(
            f"parallelism {parallelism}: expected 1 to max_parallelism {max_parallelism}", kind="bad-parallelism"
        )


def all_key_groups(max_parallelism: int) -> KeyGroupRange:
    """Return the range of all key groups: 0 to max_parallelism - 1."""
    return KeyGroupRange(0, max_parallelism - 1)


def subtask_range(subtask: int, parallelism: int, max_parallelism: int) -> KeyGroupRange:
    """Return the key groups that the subtask with index ``subtask`` of ``parallelism`` subtasks owns."""
    check_parallelism(parallelism, max_parallelism)
    start = (subtask * max_parallelism + parallelism - 1) // parallelism
    return KeyGroupRange(start, ((subtask + 1) * max_parallelism - 1) // parallelism)


def subtask_ranges(parallelism: int, max_parallelism: int) -> tuple[KeyGroupRange, ...]:
    """Return the key-group ranges of all subtasks, by index: contiguous, disjoint, together 0..max_parallelism-1."""
    return tuple(subtask_range(i, parallelism, max_parallelism) for i in range(parallelism))


def prefix_width(max_parallelism: int) -> int:
    """Return the size in bytes of the key-group prefix of a serialized key: 1 up to 128 key groups, else 2."""
    return 1 if max_parallelism <= 128 else 2


def assign_key_groups(hashes: npt.NDArray[np.int32], max_parallelism: int) -> npt.NDArray[np.int32]:
    """Return the key group of each Java hash code: Murmur3 of the hash code modulo ``max_parallelism``. ``hashes`` and
    result: int32 arrays of the same, any shape."""
    c = hashes.astype(np.uint32)
    c *= np.uint32(0xCC9E2D51)
    c = (c << np.uint32(15)) | (c >> np.uint32(17))
    c *= np.uint32(0x1B873593)
    c = (c << np.uint32(13)) | (c >> np.uint32(19))
    c *= np.uint32(5)
    c += np.uint32(0xE6546B64)
    c ^= np.uint32(4)
    c ^= c >> np.uint32(16)
    c *= np.uint32(0x85EBCA6B)
    c ^= c >> np.uint32(13)
    c *= np.uint32(0xC2B2AE35)
    c ^= c >> np.uint32(16)
    absolute = np.abs(c.view(np.int32)).view(np.uint32)
    absolute[absolute == 2**31] = 0  # Java has no positive counterpart of the least number; Flink takes 0
    absolute -= absolute // np.uint32(max_parallelism) * np.uint32(max_parallelism)
    return absolute.view(np.int32)


def subtask_of(key_groups: npt.NDArray[np.int32], parallelism: int, max_parallelism: int) -> npt.NDArray[np.int32]:
    """Return the index of the subtask that owns each key group, as an int32 array of the same shape."""
    return np.asarray(key_groups.astype(np.int64) * parallelism // max_parallelism, dtype=np.int32)
