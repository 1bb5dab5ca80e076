"""The positions of key groups in a keyed stream, and how many of them are read at once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from statelib.wire.ragged import Bytes

BATCH_BYTES = 4 * 1024 * 1024
CONTENT_BYTES = 4 * 1024 * 1024
"""The size in bytes of the decompressed key groups that are returned together."""
_LEAST_PIECE_BYTES = 64
ReadRange = Callable[[int, int], memoryview]
"""A function that returns bytes ``start`` to ``stop`` (exclusive) of the stream of a handle."""


@dataclass(frozen=True)
class GroupSpan:
    """The position of one key group: bytes ``start`` to ``end`` (exclusive). ``exact``: it must fill them."""

    key_group: int
    start: int
    end: int
    exact: bool


def batches(groups: Sequence[GroupSpan], batch_bytes: int) -> Iterator[list[GroupSpan]]:
    """Yield neighbouring key groups in batches of at most ``batch_bytes``. A large key group (:func:`is_large`) is a
    batch of its own."""
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
    """Return whether the key group is read piece by piece, because it may be many times larger when decompressed."""
    return group.end - group.start > _piece_bytes(batch_bytes)


def pieces(read_range: ReadRange, start: int, end: int, batch_bytes: int) -> Iterator[memoryview]:
    """Yield the bytes ``start`` to ``end`` (exclusive), piece by piece."""
    size_bytes = _piece_bytes(batch_bytes)
    for at in range(start, end, size_bytes):
        yield read_range(at, min(at + size_bytes, end))


def _piece_bytes(batch_bytes: int) -> int:
    return max(batch_bytes // 4, _LEAST_PIECE_BYTES)


class Buffered:
    """An iterable over content that arrives in parts. The caller puts the bytes that it did not use into :attr:`rest`,
    and they come again at the front of the next item.

    Each item is at least twice as long as the rest in it, so that an entry of many parts is not parsed again for each
    part.
    """

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
