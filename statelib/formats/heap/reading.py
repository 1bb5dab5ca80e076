"""The reader of the heap stream, in which Flink's heap backend stores its state: a keyed header, then every key group.

A key group is ``i32 keyGroup``, then per state ``u16 stateId, i32 count, count x (namespace, key, value)``, or ``count
x timer``. If the header says so, each state of a key group is a Snappy-framed stream of its own. Entries have no
lengths, so the stream is walked entry by entry; everything else moves columns.

Source: docs/spec/formats.md#heap-stream (HeapSnapshotStrategy, HeapRestoreOperation). The writer is
``formats.heap.encoder``.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.formats import snappy_framing
from statelib.formats.heap.entries import HeapEntries, rows_of
from statelib.formats.heap.proof import Group, only_entries, possible_ends
from statelib.formats.heap.walk import (
    KEY_GROUP,
    STATE,
    Layout,
    check_key_group,
    entry_starts,
    large_group,
    next_state,
    unexpected,
)
from statelib.formats.keyed.group_spans import (
    BATCH_BYTES,
    CONTENT_BYTES,
    GroupSpan,
    ReadRange,
    batches,
    is_large,
    pieces,
)
from statelib.formats.keyed.header import KeyedHeader, stored_value_type
from statelib.model.amounts import number_of
from statelib.model.handles import KeyGroupsStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import StateDescriptor, StateKind
from statelib.model.types import LONG
from statelib.serializers.entries.keys import key_groups
from statelib.serializers.entries.rows import StateRows
from statelib.serializers.registry import codec_of
from statelib.wire.ragged import Bytes


@dataclass(frozen=True, eq=False)
class _Contents:
    """The uncompressed key groups of a batch: key group ``i`` is ``data[start:end]`` with ``start, end =
    bounds[i]``."""

    data: Bytes
    bounds: tuple[tuple[int, int], ...]


@dataclass(eq=False)
class _EntryBounds:
    """The starts and the end of one state's entries, per key group that has any."""

    key_groups: list[int] = field(default_factory=list)
    starts: list[npt.NDArray[np.int64]] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def entries(self, data: Bytes) -> HeapEntries:
        """Return the entries in ``data``. There must be at least one key group."""
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
    only: int | None = None,
) -> Iterator[tuple[int, StateRows]]:
    """Yield (index in ``header.schema.states``, rows) for the key groups in the range of the handle and in
    ``key_group_range``.

    A state comes several times, and its rows are in no order. Map state has one row per user key, as everywhere except
    in this stream. ``only``: yield that state and skip the others; behind it, a value that nobody can skip is no
    error. About ``batch_bytes`` are read at a time; a large key group is read piece by piece.

    Raise CorruptStateError, naming the key group: ``unexpected-key-group`` if the stream is not a heap stream.
    """
    layouts = [_layout(header, state) for state in header.schema.states]
    wanted = handle.key_group_range if key_group_range is None else handle.key_group_range.intersection(key_group_range)
    spans = [span for span in _spans(handle, header, what) if span.key_group in wanted]
    for batch in batches(spans, batch_bytes):
        if is_large(batch[0], batch_bytes):
            parts = pieces(read_range, batch[0].start, batch[0].end, batch_bytes)
            entries_by_state = large_group(parts, batch[0], header.compressed, layouts, what, only=only)
        else:
            entries_by_state = _entries(
                read_range(batch[0].start, batch[-1].end), batch, header.compressed, layouts, what, only=only
            )
        for state_id, entries in entries_by_state:
            if only not in (None, state_id):
                continue
            state = header.schema.states[state_id]
            yield state_id, rows_of(header.schema, state, entries, f"{what}, state {state.name!r}")


def _entries(
    view: memoryview,
    batch: Sequence[GroupSpan],
    compressed: bool,
    layouts: Sequence[Layout],
    what: str,
    *,
    only: int | None,
) -> Iterator[tuple[int, HeapEntries]]:
    """Yield (state id, entries) for the batch, a few key groups at a time."""
    for part, contents in _contents(view, batch, compressed, what):
        for state_id, bounds in enumerate(_walk_all(contents, part, layouts, what, only)):
            if bounds.starts:
                yield state_id, bounds.entries(contents.data)


def _layout(header: KeyedHeader, state: StateDescriptor) -> Layout:
    if state.kind is StateKind.TIMERS:
        return Layout((codec_of(LONG), codec_of(header.schema.key_type), codec_of(state.namespace_type)))
    types = (state.namespace_type, header.schema.key_type, stored_value_type(state))
    return Layout(tuple(map(codec_of, types)), partial(key_groups, header.schema))


def _spans(handle: KeyGroupsStateHandle, header: KeyedHeader, what: str) -> list[GroupSpan]:
    """Return the positions of all key groups in the order of the stream. Every key group has an offset, also without
    entries."""
    size = handle.stream.size_bytes
    ordered = sorted((offset, i) for i, offset in enumerate(handle.offsets))
    ends = [offset for offset, _ in ordered[1:]] + [size]
    spans = []
    for (offset, i), end in zip(ordered, ends, strict=True):
        key_group = handle.key_group_range.start + i
        if offset <= 0:
            raise unexpected(what, key_group, f"offset {offset}, but a heap stream has one for each key group")
        if offset < header.size_bytes or end < offset + KEY_GROUP.size:
            raise CorruptStateError(
                f"{what}: key group {key_group} at offset {offset} up to {end}, "
                f"expected it after the header ({number_of(header.size_bytes, 'byte')}) and within {size} bytes",
                kind="bad-offsets",
            )
        spans.append(GroupSpan(key_group, offset, end, exact=True))
    return spans


def _contents(
    view: memoryview, batch: Sequence[GroupSpan], compressed: bool, what: str
) -> Iterator[tuple[Sequence[GroupSpan], _Contents]]:
    """Yield the contents of the key groups, a few at a time, without their numbers.

    The number of each key group is checked before anything is decoded, so that a stream of another format is detected
    first.
    """
    base = batch[0].start
    if len(view) != batch[-1].end - base:
        raise CorruptStateError(
            f"{what}: {number_of(len(view), 'byte')} at offset {base}, expected {batch[-1].end - base}",
            kind="truncated-group",
        )
    for span in batch:
        check_key_group(view[span.start - base :], span, what)
    bounds = [(span.start - base + KEY_GROUP.size, span.end - base) for span in batch]
    if not compressed:
        yield batch, _Contents(np.frombuffer(view, np.uint8), tuple(bounds))
        return
    first = size = 0
    parts: list[Bytes] = []
    for number, (span, (start, end)) in enumerate(zip(batch, bounds, strict=True)):
        parts.append(_decompress(view[start:end], f"{what}, key group {span.key_group}"))
        size += len(parts[-1])
        if size >= CONTENT_BYTES or number + 1 == len(batch):
            yield batch[first : number + 1], _joined(parts)
            first, size, parts = number + 1, 0, []


def _joined(parts: Sequence[Bytes]) -> _Contents:
    ends = np.cumsum([len(part) for part in parts]).tolist()
    return _Contents(np.concatenate(parts), tuple(zip([0, *ends[:-1]], ends, strict=True)))


def _decompress(view: memoryview, what: str) -> Bytes:
    """Return the joined contents of the framed streams in a key group, one per state."""
    parts = [np.empty(0, np.uint8)]
    while len(view):
        content, consumed = snappy_framing.decompress(view, what)
        parts.append(content)
        view = view[consumed:]
    return np.concatenate(parts)


def _walk_all(
    contents: _Contents, batch: Sequence[GroupSpan], layouts: Sequence[Layout], what: str, only: int | None
) -> tuple[_EntryBounds, ...]:
    """Return, per state id, the bounds of its entries in all key groups of the batch. ``only``: the state that is
    needed; the bounds of others are not complete if a value behind it cannot be skipped."""
    by_state = tuple(_EntryBounds() for _ in layouts)
    raw = contents.data.tobytes()  # indexing bytes is about twice as fast as indexing a view
    for span, (start, end) in zip(batch, contents.bounds, strict=True):
        place = f"{what}, key group {span.key_group}"
        walked = set()
        try:
            for state_id, starts, stop in _walk(raw, start, Group(span.key_group, end, layouts, place)):
                walked.add(state_id)
                if len(starts):
                    by_state[state_id].key_groups.append(span.key_group)
                    by_state[state_id].starts.append(starts)
                    by_state[state_id].ends.append(stop)
        except UnsupportedError:
            if only not in walked:
                raise
    return by_state


def _walk(
    raw: bytes, at: int, group: Group, missing: Collection[int] | None = None
) -> Iterator[tuple[int, npt.NDArray[np.int64], int]]:
    """Yield (state id, starts of its entries, end of the last one) per state of one key group, from ``at`` on.

    ``missing``: the ids of the states that are still to come; by default all.
    """
    left, end, what = set(range(len(group.layouts)) if missing is None else missing), group.end, group.what
    while left:
        if at + STATE.size > end:
            raise CorruptStateError(
                f"{what}: expected entries of {len(left)} more states at offset {at}, found the end of the key group",
                kind="truncated-group",
            )
        state_id, count = next_state(raw, at, left, what)
        layout, span = group.layouts[state_id], (at + STATE.size, end)
        try:
            starts, at = entry_starts(raw, span, count, layout, f"{what}, state id {state_id}")
        except UnsupportedError as error:
            ends = possible_ends(raw, span[0], group, left, _walk) if error.kind == "opaque-entries" else []
            proved = only_entries(raw, (span[0], ends), count, layout, group.key_group)
            if proved is None:
                raise
            starts, at = proved
        yield state_id, starts, at
    if at != end:
        raise CorruptStateError(f"{what}: {end - at} bytes after its last state", kind="trailing-bytes")
