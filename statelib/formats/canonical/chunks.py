"""The encoder of a canonical stream from chunks of whole key groups; memory stays near the size of one chunk.

:class:`~statelib.formats.canonical.encoder.CanonicalStream` reads one sorted sequence of entries per state. Here the
entries of all states arrive together, sorted by key group, and the header may be copied from another stream. Source:
docs/spec/formats.md#canonical-stream.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from statelib.errors import CorruptStateError
from statelib.formats.canonical.encoder import CanonicalStream
from statelib.formats.keyed.header import encode_header
from statelib.model.key_groups import KeyGroupRange, prefix_width
from statelib.model.state import KeyedStateSchema, StateStatistics, empty_statistics
from statelib.serializers.entries.rows import StateRows, statistics_of


@dataclass(frozen=True, eq=False)
class Chunk:
    """All entries of some key groups: per state of the schema, its rows sorted by key."""

    key_groups: KeyGroupRange
    states: Sequence[StateRows]


class ChunkedStream:
    """An iterable, to be used once, over the pieces of the stream, header first.

    :attr:`offsets` and :attr:`statistics` fill during the iteration. ``header``: bytes to write in place of a new
    header; it must hold the same states in the same order.

    Raise CorruptStateError: ``chunk-order`` if chunks overlap, are out of order or lie outside the range;
    ``lost-entries`` if a key group with entries has no offset; and the kinds of :class:`CanonicalStream`.
    """

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
        """The offset of each key group of the range, 0 if it has no entries; complete after the last piece."""
        return tuple(self._offsets.tolist())

    @property
    def statistics(self) -> tuple[StateStatistics, ...]:
        """The statistics of each state of the schema; complete after the last piece."""
        return tuple(self._statistics)

    def __iter__(self) -> Iterator[bytes | memoryview]:
        yield self._header
        position, next_group = len(self._header), self._range.start
        for chunk in self._chunks:
            self._check_order(chunk.key_groups, next_group)
            next_group = chunk.key_groups.end + 1
            stream = CanonicalStream(self._schema, chunk.key_groups, chunk.states, self._compressed)
            pieces = iter(stream)
            own_header = len(next(pieces))
            size = 0
            for piece in pieces:
                size += len(piece)
                yield piece
            self._record(chunk, np.array(stream.offsets, np.int64), position - own_header)
            position += size

    def _record(self, chunk: Chunk, offsets: np.ndarray, shift: int) -> None:
        """Record the offsets and statistics of a chunk.

        Offset 0 means to Flink that a key group is empty: entries at offset 0 would be lost without an error, so they
        are refused.
        """
        span = slice(chunk.key_groups.start - self._range.start, chunk.key_groups.end + 1 - self._range.start)
        self._offsets[span] = np.where(offsets == 0, 0, offsets + shift)
        width = prefix_width(self._schema.max_parallelism)
        entries = np.zeros(len(chunk.key_groups), np.int64)
        for total, rows in zip(self._statistics, chunk.states, strict=True):
            if not len(rows):
                continue
            chunk_statistics = statistics_of(rows, width, chunk.key_groups)
            total.entries[span] += chunk_statistics.entries
            total.digests[span] += chunk_statistics.digests
            entries += chunk_statistics.entries
        wrong = np.flatnonzero((self._offsets[span] == 0) != (entries == 0))
        if len(wrong):
            raise CorruptStateError(
                f"key group {chunk.key_groups.start + int(wrong[0])} has {entries[wrong[0]]} entries and offset "
                f"{self._offsets[span][wrong[0]]} in the stream",
                kind="lost-entries",
            )

    def _check_order(self, key_groups: KeyGroupRange, next_group: int) -> None:
        if key_groups.start < next_group or key_groups.end > self._range.end or not len(key_groups):
            raise CorruptStateError(
                f"key groups {key_groups}, expected them within {next_group} to {self._range.end}", kind="chunk-order"
            )
