"""The reader of the canonical savepoint stream: a keyed header, then one block of entries per key group.

A key group is ``u16 stateId, entry+``. The first bit of a key means that another state id follows the entry; the id
0xFFFF ends the key group. Source: docs/spec/formats.md#canonical-stream (FullSnapshotAsyncWriter,
FullSnapshotRestoreOperation). The writer is ``formats.canonical.encoder``.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from statelib.errors import CorruptStateError
from statelib.formats import snappy_framing
from statelib.formats.canonical.entry_framing import FOLLOWS, entry_starts, unframe, whole_entries
from statelib.formats.keyed.group_spans import (
    BATCH_BYTES,
    CONTENT_BYTES,
    Buffered,
    GroupSpan,
    ReadRange,
    batches,
    is_large,
    pieces,
)
from statelib.formats.keyed.header import KeyedHeader, decode_keyed_header
from statelib.model.amounts import number_of
from statelib.model.handles import KeyGroupsSavepointStateHandle, KeyGroupsStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.serializers.entries.rows import StateRows, key_groups_of
from statelib.wire.ragged import Bytes

END_OF_GROUP = 0xFFFF
_NO_STATE = -1
_U16 = struct.Struct(">H")


@dataclass(frozen=True, eq=False)
class _Segment:
    """Entries of one state and one key group without gaps; ``starts`` are offsets in ``data``."""

    state_id: int
    key_group: int
    data: Bytes
    starts: npt.NDArray[np.int64]


def read_header(
    read_range: ReadRange,
    handle: KeyGroupsSavepointStateHandle | KeyGroupsStateHandle,
    max_parallelism: int,
    what: str = "canonical stream",
) -> KeyedHeader:
    """Return the keyed header of a canonical or heap stream. Only bytes before the first key group are read.

    Raise the errors of :func:`~statelib.formats.keyed.header.decode_keyed_header`.
    """
    used = [offset for offset in handle.offsets if offset > 0]
    stop = min([*used, handle.stream.size_bytes])
    return decode_keyed_header(read_range(0, stop), max_parallelism, what)


def iter_canonical(
    read_range: ReadRange,
    handle: KeyGroupsSavepointStateHandle,
    header: KeyedHeader,
    key_group_range: KeyGroupRange | None = None,
    *,
    what: str = "canonical stream",
    batch_bytes: int = BATCH_BYTES,
    only: int | None = None,
) -> Iterator[tuple[int, StateRows]]:
    """Yield (index in ``header.schema.states``, rows) for the key groups in the range of the handle and in
    ``key_group_range``.

    A state comes several times, in the order of the stream. ``only``: yield that state; of others only the lengths are
    read. About ``batch_bytes`` are read at a time; a large key group is read piece by piece. Raise CorruptStateError,
    naming the key group.
    """
    states = header.schema.states
    wanted = handle.key_group_range if key_group_range is None else handle.key_group_range.intersection(key_group_range)
    groups = [group for group in _groups(handle, header, what) if group.key_group in wanted]
    for batch in batches(groups, batch_bytes):
        for segments in _segments(read_range, batch, header.compressed, batch_bytes, what):
            for state_id in sorted({segment.state_id for segment in segments}):
                if state_id >= len(states):
                    raise CorruptStateError(
                        f"{what}: state id {state_id}, expected less than {len(states)}", kind="unknown-state-id"
                    )
                if only not in (None, state_id):
                    continue
                of_state = [segment for segment in segments if segment.state_id == state_id]
                yield state_id, _rows(of_state, header.prefix_width, f"{what}, state {states[state_id].name!r}")


def _segments(
    read_range: ReadRange, batch: Sequence[GroupSpan], compressed: bool, batch_bytes: int, what: str
) -> Iterator[list[_Segment]]:
    """Yield the content of the batch, a few key groups at a time."""
    if is_large(batch[0], batch_bytes):
        parts = pieces(read_range, batch[0].start, batch[0].end, batch_bytes)
        for segment in _large_group(parts, batch[0], compressed, f"{what}, key group {batch[0].key_group}"):
            yield [segment]
        return
    data = read_range(batch[0].start, batch[-1].end)
    segments: list[_Segment] = []
    size = 0
    for group in batch:
        group_segments = _read_group(data, group, batch[0].start, compressed, what)
        segments += group_segments
        size += sum(len(segment.data) for segment in group_segments)
        if size >= CONTENT_BYTES:
            yield segments
            segments, size = [], 0
    if segments:
        yield segments


def _large_group(parts: Iterator[memoryview], group: GroupSpan, compressed: bool, what: str) -> Iterator[_Segment]:
    """Yield the segments of one key group; the entries of a segment arrived together, and its last key may be
    flagged."""
    state_id, entries = _NO_STATE, 0
    buffered = Buffered(_contents(parts, compressed, what))
    for data in buffered:
        raw, at = data.tobytes(), 0
        while state_id != END_OF_GROUP and at + 2 <= len(raw):
            if state_id == _NO_STATE:
                state_id, at = _read_state_id(raw, at, what)
                continue
            starts, end, ended = whole_entries(raw, data, at)
            if len(starts):
                entries += len(starts)
                yield _Segment(state_id, group.key_group, data[at:end], starts - at)
            at = end
            if not ended:
                break
            state_id = _NO_STATE
        buffered.rest = data[at:]
        if state_id == END_OF_GROUP and not group.exact:
            return
    if state_id != END_OF_GROUP:
        raise CorruptStateError(f"{what}: the key group ends within its entries", kind="truncated-group")
    _check_large_end(entries, len(buffered.rest), what)


def _check_large_end(entries: int, left_bytes: int, what: str) -> None:
    """Raise CorruptStateError unless a large key group had entries and ended where it should."""
    if not entries or left_bytes:
        kind = "trailing-bytes" if entries else "empty-group"
        raise CorruptStateError(f"{what}: {entries} entries, {number_of(left_bytes, 'byte')} after its end", kind=kind)


def _contents(parts: Iterator[memoryview], compressed: bool, what: str) -> Iterator[Bytes]:
    if compressed:
        return snappy_framing.decompress_pieces(parts, what)
    return (np.frombuffer(part, np.uint8) for part in parts)


def decode_key_group(
    data: bytes | memoryview, compressed: bool, what: str = "key group"
) -> tuple[dict[int, StateRows], int]:
    """Return the rows per state id of the key group at the start of ``data``, and the number of bytes it takes there.

    Raise CorruptStateError (``truncated-group``, ``bad-compression``, ...).
    """
    view = memoryview(data).cast("B")
    content, consumed = _content(view, compressed, what)
    segments, end = _walk(content, 0, what)
    if compressed and end != len(content):
        raise CorruptStateError(f"{what}: {len(content) - end} bytes after its end", kind="trailing-bytes")
    by_state: dict[int, list[_Segment]] = {}
    for segment in segments:
        by_state.setdefault(segment.state_id, []).append(segment)
    rows = {state_id: _unframed(parts) for state_id, parts in by_state.items()}
    return rows, consumed if compressed else end


def _groups(handle: KeyGroupsSavepointStateHandle, header: KeyedHeader, what: str) -> list[GroupSpan]:
    """Return the positions of the key groups that have entries, in the order of the stream."""
    size = handle.stream.size_bytes
    used = sorted((offset, i) for i, offset in enumerate(handle.offsets) if offset != 0)
    groups = []
    for place, (offset, i) in enumerate(used):
        key_group, last = handle.key_group_range.start + i, place + 1 == len(used)
        end = size if last else used[place + 1][0]
        if not header.size_bytes <= offset < end <= size:
            raise CorruptStateError(
                f"{what}: key group {key_group} at offset {offset} up to {end}, "
                f"expected it after the header ({number_of(header.size_bytes, 'byte')}) and within {size} bytes",
                kind="bad-offsets",
            )
        groups.append(GroupSpan(key_group, offset, end, exact=not last))
    return groups


def _read_group(data: memoryview, group: GroupSpan, base: int, compressed: bool, what: str) -> list[_Segment]:
    name = f"{what}, key group {group.key_group}"
    view = data[group.start - base : group.end - base]
    if len(view) != group.end - group.start:
        raise CorruptStateError(
            f"{name}: {number_of(len(view), 'byte')}, expected {group.end - group.start}", kind="truncated-group"
        )
    content, consumed = _content(view, compressed, name)
    segments, end = _walk(content, 0, name)
    if group.exact and (end != len(content) or consumed != len(view)):
        raise CorruptStateError(f"{name}: ends before the next key group begins", kind="trailing-bytes")
    return [replace(segment, key_group=group.key_group) for segment in segments]


def _content(view: memoryview, compressed: bool, what: str) -> tuple[Bytes, int]:
    """Return the uncompressed content, and the number of bytes of ``view`` that it takes."""
    if compressed:
        return snappy_framing.decompress(view, what)
    return np.frombuffer(view, np.uint8), len(view)


def _walk(data: Bytes, at: int, what: str) -> tuple[list[_Segment], int]:
    """Return the segments of the key group at ``at``, and where it ends."""
    raw = data.tobytes()  # indexing bytes is about twice as fast as indexing a view
    segments = []
    state_id, at = _read_state_id(raw, at, what)
    if state_id == END_OF_GROUP:
        raise CorruptStateError(f"{what}: no entry at offset {at}", kind="empty-group")
    while state_id != END_OF_GROUP:
        starts, end = entry_starts(raw, data, at, what)
        segments.append(_Segment(state_id, -1, data[at:end], starts - at))
        state_id, at = _read_state_id(raw, end, what)
    return segments, at


def _read_state_id(raw: bytes, at: int, what: str) -> tuple[int, int]:
    if at + 2 > len(raw):
        raise CorruptStateError(f"{what}: expected a state id at offset {at} of {len(raw)}", kind="truncated-group")
    return int(_U16.unpack_from(raw, at)[0]), at + 2


def _rows(segments: Sequence[_Segment], width: int, what: str) -> StateRows:
    """Return all entries of one state. Raise CorruptStateError unless each belongs to the key group that it was read
    from."""
    rows = _unframed(segments)
    if int(rows.keys.lengths.min()) < width:
        raise CorruptStateError(f"{what}: a key shorter than its key-group prefix", kind="bad-entry")
    counts = [len(segment.starts) for segment in segments]
    expected = np.repeat(np.array([segment.key_group for segment in segments], np.int32), counts)
    actual = key_groups_of(rows.keys, width)
    wrong = np.flatnonzero(actual != expected)
    if len(wrong):
        raise CorruptStateError(
            f"{what}: a key of key group {actual[wrong[0]]} among those of key group {expected[wrong[0]]}",
            kind="foreign-key-group",
        )
    return rows


def _unframed(segments: Sequence[_Segment]) -> StateRows:
    """Return the rows of the segments, with the flag of each segment's last key removed."""
    ends = np.cumsum([len(segment.data) for segment in segments])
    data = segments[0].data if len(segments) == 1 else np.concatenate([segment.data for segment in segments])
    starts = [segment.starts + end - len(segment.data) for segment, end in zip(segments, ends, strict=True)]
    rows = unframe(data, np.concatenate(starts))
    lasts = np.cumsum([len(segment.starts) for segment in segments]) - 1
    if int(rows.keys.lengths[lasts].min()) == 0:
        raise CorruptStateError("an entry without a key", kind="bad-entry")
    rows.keys.data[rows.keys.starts[lasts]] &= 0xFF ^ FOLLOWS
    return rows
