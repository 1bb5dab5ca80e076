"""Reading the heap stream, Flink's own form of heap state: keyed header, then every key group.

A group is ``i32 keyGroup``, then once for each state ``u16 stateId, i32 count, count x (namespace,
key, value)``, in a Snappy-framed stream of its own where the header says so. Entries have no
lengths: the stream is walked entry by entry, and only that; everything else moves columns.
Source: flink-formats.md section 3.2 (HeapSnapshotStrategy, HeapRestoreOperation). The writer is
``formats.heap_encoder``.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.formats import snappy_framing
from statelib.formats.group_spans import BATCH_BYTES, GroupSpan, ReadRange, batches
from statelib.formats.heap_entries import HeapEntries, rows_of
from statelib.formats.keyed_header import HeaderState, KeyedHeader, stored_value_type
from statelib.model.handles import KeyGroupsStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.model.types import LONG
from statelib.serializers.codec import Codec
from statelib.serializers.jumps import Jump, jump_over, width_of
from statelib.serializers.registry import codec_of
from statelib.serializers.rows import StateRows
from statelib.wire.ragged import Bytes

_KEY_GROUP = struct.Struct(">i")
_STATE = struct.Struct(">Hi")


@dataclass(frozen=True)
class _Layout:
    """What one entry of a state consists of."""

    codecs: tuple[Codec, ...]

    @cached_property
    def width(self) -> int:
        return width_of(self.codecs)

    @cached_property
    def jump(self) -> Jump:
        return jump_over(self.codecs)

    @property
    def least(self) -> int:
        """Bytes that the smallest entry takes."""
        return sum(max(codec.width, 1) for codec in self.codecs)


@dataclass(frozen=True, eq=False)
class _Contents:
    """The uncompressed key groups of a batch: group ``i`` lies at ``bounds[i]`` of ``data``."""

    data: Bytes
    bounds: tuple[tuple[int, int], ...]


@dataclass(eq=False)
class _Found:
    """Entries of one state: where they begin and end in each key group that has some."""

    key_groups: list[int] = field(default_factory=list)
    starts: list[npt.NDArray[np.int64]] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def entries(self, data: Bytes) -> HeapEntries:
        counts = [len(starts) for starts in self.starts]
        ends = [np.append(starts[1:], end) for starts, end in zip(self.starts, self.ends, strict=True)]
        groups = np.repeat(np.array(self.key_groups, np.int32), counts)
        return HeapEntries(data, groups, np.concatenate(self.starts), np.concatenate(ends))


def iter_heap(
    read_range: ReadRange,
    handle: KeyGroupsStateHandle,
    header: KeyedHeader,
    key_group_range: KeyGroupRange | None = None,
    *,
    what: str = "heap stream",
    batch_bytes: int = BATCH_BYTES,
    skip_timers: bool = False,
) -> Iterator[tuple[int, StateRows]]:
    """Entries of the key groups in the handle's and the wanted range, as (index in
    ``header.schema.states``, rows in no order), each state several times; map state has one row a
    user key, as everywhere but in this stream.

    Reads about ``batch_bytes`` at a time (a single key group is never split). Raises
    CorruptStateError naming the key group: ``unexpected-key-group`` where the stream is no heap
    stream; UnsupportedError (``timer-state``) for timers with entries, unless the caller asks to
    ``skip_timers``.
    """
    index = header.schema_index
    layouts = [_layout(header, state) for state in header.states]
    wanted = handle.key_group_range if key_group_range is None else handle.key_group_range.intersection(key_group_range)
    spans = [span for span in _spans(handle, header, what) if span.key_group in wanted]
    for batch in batches(spans, batch_bytes):
        contents = _contents(read_range(batch[0].start, batch[-1].end), batch, header.compressed, what)
        for state_id, found in enumerate(_walk_all(contents, batch, layouts, what)):
            state, name = index[state_id], header.states[state_id].name
            if not found.starts:
                continue
            if state is not None:
                place = f"{what}, state {name!r}"
                yield state, rows_of(header.schema, header.schema.states[state], found.entries(contents.data), place)
            elif not skip_timers:
                raise UnsupportedError(
                    f"{what}: timers {name!r} have entries, which statelib does not read", kind="timer-state"
                )


def _layout(header: KeyedHeader, state: HeaderState) -> _Layout:
    if state.descriptor is not None:
        stored = stored_value_type(state.descriptor)
        types = (state.descriptor.namespace_type, header.schema.key_type, stored)
    else:
        assert state.timer_types is not None
        types = (LONG, *state.timer_types)
    return _Layout(tuple(map(codec_of, types)))


def _spans(handle: KeyGroupsStateHandle, header: KeyedHeader, what: str) -> list[GroupSpan]:
    """All key groups, in the order of the stream; each has an offset, also without entries."""
    size = handle.stream.size_bytes
    ordered = sorted((offset, i) for i, offset in enumerate(handle.offsets))
    ends = [offset for offset, _ in ordered[1:]] + [size]
    spans = []
    for (offset, i), end in zip(ordered, ends, strict=True):
        key_group = handle.key_group_range.start + i
        if offset <= 0:
            raise _unexpected(what, key_group, f"offset {offset}, but a heap stream has one for each key group")
        if offset < header.size_bytes or end < offset + _KEY_GROUP.size:
            raise CorruptStateError(
                f"{what}: key group {key_group} at offset {offset} up to {end}, "
                f"expected it behind the header ({header.size_bytes} bytes) and within {size} bytes",
                kind="bad-offsets",
            )
        spans.append(GroupSpan(key_group, offset, end, exact=True))
    return spans


def _contents(view: memoryview, batch: Sequence[GroupSpan], compressed: bool, what: str) -> _Contents:
    """What follows the number of each key group. All numbers are checked before anything is decoded:
    a stream of another form shows itself there."""
    base = batch[0].start
    if len(view) != batch[-1].end - base:
        raise CorruptStateError(
            f"{what}: {len(view)} bytes at offset {base}, expected {batch[-1].end - base}", kind="truncated-group"
        )
    for span in batch:
        (found,) = _KEY_GROUP.unpack_from(view, span.start - base)
        if found != span.key_group:
            raise _unexpected(what, span.key_group, f"found {found} at offset {span.start}")
    bounds = [(span.start - base + _KEY_GROUP.size, span.end - base) for span in batch]
    if not compressed:
        return _Contents(np.frombuffer(view, np.uint8), tuple(bounds))
    parts = [
        _decompressed(view[start:end], f"{what}, key group {span.key_group}")
        for span, (start, end) in zip(batch, bounds, strict=True)
    ]
    ends = np.cumsum([len(part) for part in parts]).tolist()
    return _Contents(np.concatenate(parts), tuple(zip([0, *ends[:-1]], ends, strict=True)))


def _decompressed(view: memoryview, what: str) -> Bytes:
    """The framed streams of all states of a key group, joined."""
    parts = [np.empty(0, np.uint8)]
    while len(view):
        content, consumed = snappy_framing.decompress(view, what)
        parts.append(content)
        view = view[consumed:]
    return np.concatenate(parts)


def _walk_all(
    contents: _Contents, batch: Sequence[GroupSpan], layouts: Sequence[_Layout], what: str
) -> tuple[_Found, ...]:
    """By state id: its entries in all key groups of the batch."""
    found = tuple(_Found() for _ in layouts)
    raw = contents.data.tobytes()  # indexing bytes is about twice as fast as indexing a view
    for span, (start, end) in zip(batch, contents.bounds, strict=True):
        place = f"{what}, key group {span.key_group}"
        for state_id, starts, stop in _walk(raw, start, end, layouts, place):
            if len(starts):
                found[state_id].key_groups.append(span.key_group)
                found[state_id].starts.append(starts)
                found[state_id].ends.append(stop)
    return found


def _walk(
    raw: bytes, at: int, end: int, layouts: Sequence[_Layout], what: str
) -> Iterator[tuple[int, npt.NDArray[np.int64], int]]:
    """(state id, starts of its entries, end of the last) for each state of one key group."""
    missing = set(range(len(layouts)))
    while missing:
        if at + _STATE.size > end:
            raise CorruptStateError(
                f"{what}: expected the entries of {len(missing)} more states at offset {at}, found its end",
                kind="truncated-group",
            )
        state_id, count = _STATE.unpack_from(raw, at)
        if state_id not in missing:
            raise CorruptStateError(
                f"{what}: state id {state_id} at offset {at}, expected each one below {len(layouts)} once",
                kind="unknown-state-id",
                hint="is this a heap stream at all?",
            )
        missing.remove(state_id)
        starts, at = _entry_starts(
            raw, (at + _STATE.size, end), count, layouts[state_id], f"{what}, state id {state_id}"
        )
        yield state_id, starts, at
    if at != end:
        raise CorruptStateError(f"{what}: {end - at} bytes behind its last state", kind="trailing-bytes")


def _entry_starts(
    raw: bytes, span: tuple[int, int], count: int, layout: _Layout, what: str
) -> tuple[npt.NDArray[np.int64], int]:
    """Where ``count`` entries begin from ``span[0]`` on, and where the last one ends."""
    at, end = span
    if not 0 <= count * layout.least <= end - at:
        raise CorruptStateError(f"{what}: {count} entries in {end - at} bytes", kind="bad-count")
    if layout.width > 0:
        return at + np.arange(count, dtype=np.int64) * layout.width, at + count * layout.width
    starts: list[int] = []
    append, jump = starts.append, layout.jump
    try:
        for _ in range(count):
            append(at)
            at = jump(raw, at)
    except (struct.error, IndexError) as error:
        raise _beyond(what, len(starts), count, end) from error
    if at > end:
        raise _beyond(what, len(starts), count, end)
    return np.array(starts, np.int64), at


def _beyond(what: str, entry: int, count: int, end: int) -> CorruptStateError:
    return CorruptStateError(
        f"{what}: entry {entry} of {count} reaches beyond the end at offset {end}", kind="truncated-group"
    )


def _unexpected(what: str, key_group: int, found: str) -> CorruptStateError:
    return CorruptStateError(
        f"{what}: Unexpected key-group in restore: expected key group {key_group}, {found}",
        kind="unexpected-key-group",
        hint="the handle says heap stream, the bytes do not: was it written as a canonical savepoint?",
    )
