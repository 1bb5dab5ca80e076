"""A canonical stream from entries that come in chunks of whole key groups: memory stays near one chunk.

Source: flink-formats.md section 3.1. Where ``canonical_encoder`` walks over one sorted scan a state, this
takes what arrives sorted by key group, all states together, and a header that may be another's bytes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from statelib.errors import CorruptStateError
from statelib.formats.canonical.encoder import CanonicalStream
from statelib.formats.keyed.header import encode_header
from statelib.model.key_groups import KeyGroupRange, prefix_width
from statelib.model.state import KeyedStateSchema, StateStatistics, empty_statistics
from statelib.serializers.rows import StateRows, statistics_of


@dataclass(frozen=True, eq=False)
class Chunk:
    """All entries of some key groups: for each state of the schema its rows, sorted by key."""

    key_groups: KeyGroupRange
    states: Sequence[StateRows]


class ChunkedStream:
    """Iterate over it once: the pieces of the stream, header first. :attr:`offsets` and :attr:`statistics`
    (in the schema's order) fill on the way.

    ``header``: bytes to write in place of an own header, of the same states in the same order.
    Raises CorruptStateError: ``chunk-order`` for chunks that overlap, go back or lie outside the range; the
    kinds of :class:`CanonicalStream`; ``lost-entries`` should a key group with entries get no offset."""

    def __init__(
        self,
        schema: KeyedStateSchema,
        key_group_range: KeyGroupRange,
        chunks: Iterable[Chunk],
        compressed: bool,
        header: bytes | None = None,
    ) -> None:
        self._schema, self._range, self._chunks, self._compressed = schema, key_group_range, chunks, compressed
        self._header = encode_header(schema, compressed) if header is None else header
        self._offsets = np.zeros(len(key_group_range), np.int64)
        self._statistics = [empty_statistics(key_group_range) for _ in schema.states]

    @property
    def offsets(self) -> tuple[int, ...]:
        return tuple(self._offsets.tolist())

    @property
    def statistics(self) -> tuple[StateStatistics, ...]:
        return tuple(self._statistics)

    def __iter__(self) -> Iterator[bytes | memoryview]:
        yield self._header
        position, following = len(self._header), self._range.start
        for chunk in self._chunks:
            self._check_place(chunk.key_groups, following)
            following = chunk.key_groups.end + 1
            stream = CanonicalStream(self._schema, chunk.key_groups, chunk.states, self._compressed)
            pieces = iter(stream)
            own_header = len(next(pieces))
            size = 0
            for piece in pieces:
                size += len(piece)
                yield piece
            self._note(chunk, np.array(stream.offsets, np.int64), position - own_header)
            position += size

    def _note(self, chunk: Chunk, offsets: np.ndarray, shift: int) -> None:
        """Offset 0 is how Flink is told that a key group is empty; it would drop what lies there without a word."""
        span = slice(chunk.key_groups.start - self._range.start, chunk.key_groups.end + 1 - self._range.start)
        self._offsets[span] = np.where(offsets == 0, 0, offsets + shift)
        width = prefix_width(self._schema.max_parallelism)
        entries = np.zeros(len(chunk.key_groups), np.int64)
        for total, rows in zip(self._statistics, chunk.states, strict=True):
            if not len(rows):
                continue
            found = statistics_of(rows, width, chunk.key_groups)
            total.entries[span] += found.entries
            total.digests[span] += found.digests
            entries += found.entries
        wrong = np.flatnonzero((self._offsets[span] == 0) != (entries == 0))
        if len(wrong):
            raise CorruptStateError(
                f"key group {chunk.key_groups.start + int(wrong[0])} has {entries[wrong[0]]} entries and offset "
                f"{self._offsets[span][wrong[0]]} in the stream",
                kind="lost-entries",
            )

    def _check_place(self, key_groups: KeyGroupRange, following: int) -> None:
        if key_groups.start < following or key_groups.end > self._range.end or not len(key_groups):
            raise CorruptStateError(
                f"key groups {key_groups} where {following} to {self._range.end} are to come", kind="chunk-order"
            )
