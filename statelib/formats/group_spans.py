"""Where the key groups of a keyed stream lie, and how many of them are read at once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

BATCH_BYTES = 32 * 1024 * 1024
ReadRange = Callable[[int, int], memoryview]
"""Bytes ``start`` to ``stop`` (exclusive) of the stream of a handle."""


@dataclass(frozen=True)
class GroupSpan:
    """A key group's bytes lie at ``start`` to ``end``; ``exact``: nothing else may lie there."""

    key_group: int
    start: int
    end: int
    exact: bool


def batches(groups: Sequence[GroupSpan], batch_bytes: int) -> Iterator[list[GroupSpan]]:
    """Neighbours in the stream, together at most ``batch_bytes`` unless it is one group."""
    batch: list[GroupSpan] = []
    for group in groups:
        if batch and (batch[-1].end != group.start or group.end - batch[0].start > batch_bytes):
            yield batch
            batch = []
        batch.append(group)
    if batch:
        yield batch
