"""Where the key groups of a keyed stream lie, and how many of them are read at once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from statelib.wire.ragged import Bytes

BATCH_BYTES = 4 * 1024 * 1024
CONTENT_BYTES = 4 * 1024 * 1024
"""Of decompressed key groups that are handed out together."""
_LEAST_PIECE_BYTES = 64
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
    """Neighbours in the stream, together at most ``batch_bytes``; a group of which :func:`is_large` comes alone."""
    batch: list[GroupSpan] = []
    for group in groups:
        apart = batch and (batch[-1].end != group.start or any(is_large(g, batch_bytes) for g in (batch[-1], group)))
        if batch and (apart or group.end - batch[0].start > batch_bytes):
            yield batch
            batch = []
        batch.append(group)
    if batch:
        yield batch


def is_large(group: GroupSpan, batch_bytes: int) -> bool:
    """Whether it is read piece by piece: decompressed it may be many times as large."""
    return group.end - group.start > _piece_bytes(batch_bytes)


def pieces(read_range: ReadRange, start: int, end: int, batch_bytes: int) -> Iterator[memoryview]:
    """The bytes of a span, one piece after the other."""
    size_bytes = _piece_bytes(batch_bytes)
    for at in range(start, end, size_bytes):
        yield read_range(at, min(at + size_bytes, end))


def _piece_bytes(batch_bytes: int) -> int:
    return max(batch_bytes // 4, _LEAST_PIECE_BYTES)


class Buffered:
    """Content that comes in parts; what of one was not used, which the reader puts into :attr:`rest`, comes again
    at the front of the next.

    Each is at least twice as long as that rest, so that an entry of many parts is not looked at for each of them."""

    def __init__(self, parts: Iterator[Bytes]) -> None:
        self._parts = parts
        self.rest = np.empty(0, np.uint8)

    def __iter__(self) -> Iterator[Bytes]:
        held: list[Bytes] = []
        for part in self._parts:
            held.append(part)
            if sum(map(len, held)) >= len(self.rest):
                yield np.concatenate([self.rest, *held])
                held = []
        if held:
            yield np.concatenate([self.rest, *held])
