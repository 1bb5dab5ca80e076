"""The framing of entries in the canonical stream: ``i32 keyLen, key, i32 valueLen, value``.

Both directions move whole arrays; only finding the boundaries of entries whose keys have different lengths takes a
loop, over integers. Source: docs/spec/formats.md#canonical-stream.
"""

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from statelib.errors import CorruptStateError
from statelib.serializers.columns.cursors import read_unsigned
from statelib.serializers.entries.rows import StateRows
from statelib.wire.ragged import (
    Bytes,
    Offsets,
    Ragged,
    equally_spaced,
    from_fixed,
    gather,
    is_equally_spaced,
    join,
    side_by_side,
)

FOLLOWS = 0x80
"""The flag in the first byte of a key which means that a state id follows this entry."""
_U32 = struct.Struct(">I")
_MIN_ENTRY = 8
_PROBE = 64
"""The number of entries that are compared first, when they may all have the same lengths."""
_MAX_BURST = 8192
_MAX_WINDOW = 1 << 22
_SEARCHED = 1 << 18
"""The number of bytes that are searched at once for places at which entries may begin."""


@dataclass(frozen=True, eq=False)
class Framed:
    """Framed entries without flags and state ids: entry ``i`` is ``data[offsets[i]:offsets[i + 1]]``."""

    data: Bytes
    offsets: Offsets


def frame(rows: StateRows) -> Framed:
    """Return the rows as framed entries: the two lengths stand in front of each key and value."""
    key_lengths, value_lengths = rows.keys.lengths, rows.values.lengths
    if len(rows) and _constant(key_lengths) and _constant(value_lengths):
        keys = rows.keys.data[rows.keys.offsets[0] : rows.keys.offsets[-1]]
        values = rows.values.data[rows.values.offsets[0] : rows.values.offsets[-1]]
        return _frame_fixed(keys, values, len(rows))
    framed = join([_sizes(key_lengths), rows.keys, _sizes(value_lengths), rows.values])
    return Framed(framed.data, framed.offsets)


def unframe(data: Bytes, starts: npt.NDArray[np.int64]) -> StateRows:
    """Return the rows of framed entries; inverse of :func:`frame`.

    ``data`` holds entries without gaps, which begin at ``starts``. Flags stay in the keys. Raise CorruptStateError
    (``bad-entry``) if lengths and starts disagree.
    """
    if not len(starts):
        return StateRows(from_fixed(np.empty((0, 0), np.uint8)), from_fixed(np.empty((0, 0), np.uint8)))
    if (alike := _unframe_alike(data, starts)) is not None:
        return alike
    ends = np.append(starts[1:], len(data))
    key_lengths = read_unsigned(data, starts, 4).astype(np.int64)  # callers have checked that they lie inside
    value_lengths = read_unsigned(data, starts + 4 + key_lengths, 4).astype(np.int64)
    if not np.array_equal(starts + _MIN_ENTRY + key_lengths + value_lengths, ends):
        raise CorruptStateError("entries of a key group do not fill it without gaps", kind="bad-entry")
    keys = gather(data, starts + 4, key_lengths)
    return StateRows(keys, gather(data, starts + _MIN_ENTRY + key_lengths, value_lengths))


def entry_starts(raw: bytes | memoryview, data: Bytes, at: int, what: str) -> tuple[npt.NDArray[np.int64], int]:
    """Return the start of each entry from ``at`` to the first one flagged :data:`FOLLOWS`, and where the flagged one
    ends.

    ``raw`` and ``data`` are the same bytes. Raise CorruptStateError (``truncated-group``) if the bytes end first.
    """
    starts, end, ended = whole_entries(raw, data, at)
    if not ended:
        raise CorruptStateError(
            f"{what}: the entry at offset {end} reaches beyond the end at offset {len(raw)}", kind="truncated-group"
        )
    return starts, end


def whole_entries(raw: bytes | memoryview, data: Bytes, at: int) -> tuple[npt.NDArray[np.int64], int, bool]:
    """Return the starts of the complete entries from ``at`` on, where the last one ends, and whether it is flagged.

    ``raw`` and ``data`` are the same bytes. The entries end with the first one flagged :data:`FOLLOWS`, or with the
    last complete one.
    """
    runs: list[npt.NDArray[np.int64]] = []
    burst, going_on, ended = _PROBE, True, False
    while going_on:
        run = _equal_run(raw, data, at)
        if len(run):
            runs.append(run)
            at = int(run[-1]) + (int(run[1] - run[0]) if len(run) > 1 else _entry_length(raw, at))
        if len(run) < burst:
            run, at = _like_keyed_run(data, at)
            runs.append(run)
        burst = _PROBE if len(run) >= burst else min(burst * 2, _MAX_BURST)
        singles, at, ended = _single_starts(raw, at, burst)
        runs.append(np.array(singles, np.int64))
        going_on = not ended and len(singles) == burst
    return np.concatenate(runs), at, ended


def _single_starts(raw: bytes | memoryview, at: int, burst: int) -> tuple[list[int], int, bool]:
    """Return the starts of at most ``burst`` complete entries, where the last one ends, and whether it is flagged.

    The entries are read one by one. Lengths are unsigned: a negative one points beyond the end.
    """
    starts: list[int] = []
    append, unpack, size = starts.append, _U32.unpack_from, len(raw)
    try:
        for _ in range(burst):
            (key_length,) = unpack(raw, at)
            (value_length,) = unpack(raw, at + 4 + key_length)
            flagged = raw[at + 4] & FOLLOWS
            end = at + 8 + key_length + value_length
            if end > size:
                break
            append(at)
            at = end
            if flagged:
                return starts, at, True
    except (struct.error, IndexError):
        pass
    return starts, at, False


def _entry_length(raw: bytes | memoryview, at: int) -> int:
    (key_length,) = _U32.unpack_from(raw, at)
    (value_length,) = _U32.unpack_from(raw, at + 4 + key_length)
    return _MIN_ENTRY + int(key_length) + int(value_length)


def _equal_run(raw: bytes | memoryview, data: Bytes, at: int) -> npt.NDArray[np.int64]:
    """Return the starts of the unflagged entries from ``at`` on that have the lengths of the first one."""
    try:
        stride = _entry_length(raw, at)
    except struct.error:
        return np.empty(0, np.int64)
    (key_length,) = _U32.unpack_from(raw, at)
    count, window, total = (len(raw) - at) // stride, _PROBE, 0
    if not count:
        return np.empty(0, np.int64)
    first = data[at : at + stride].reshape(1, stride)
    while total < count:
        size = min(window, count - total)
        block = data[at + total * stride : at + (total + size) * stride].reshape(size, stride)
        same = (block[:, 4] & FOLLOWS) == 0
        for place in (0, 4 + key_length):
            same &= _words(block, place) == _words(first, place)
        if not same.all():
            total += int(same.argmin())
            break
        total += size
        window = min(window * 8, _MAX_WINDOW)
    return at + np.arange(total, dtype=np.int64) * stride


def _like_keyed_run(data: Bytes, at: int) -> tuple[npt.NDArray[np.int64], int]:
    """Return the starts of unflagged entries from ``at`` on whose keys have the length and the first byte of the first
    one, and where the last of them ends.

    These two bytes are searched for in a window of the data. They may also occur inside of an entry. Therefore a place
    counts only if the entry before it ends there.
    """
    runs: list[npt.NDArray[np.int64]] = []
    pattern = data[at + 3 : at + 5]
    key_length = int.from_bytes(data[at : at + 4].tobytes(), "big")
    while at + _MIN_ENTRY < len(data) and not pattern[1] & FOLLOWS:
        window = data[at : at + _SEARCHED]
        places = np.flatnonzero((window[3:-1] == pattern[0]) & (window[4:] == pattern[1]))
        starts, end = _chained(window, places, key_length)
        if not len(starts):
            break
        runs.append(starts + at)
        at += end
    return np.concatenate(runs) if runs else np.empty(0, np.int64), at


def _chained(window: Bytes, places: npt.NDArray[np.int64], key_length: int) -> tuple[npt.NDArray[np.int64], int]:
    """Return the ``places``, which are in ascending order, at which complete unflagged entries with keys of this length
    follow each other, from 0 on, and where the last of them ends."""
    places = places[: np.searchsorted(places, len(window) - _MIN_ENTRY - key_length, side="right")]
    places = _filtered(places, read_unsigned(window, places, 4) == key_length)
    value_lengths = read_unsigned(window, places + 4 + key_length, 4).astype(np.int64)
    ends = places + _MIN_ENTRY + key_length + value_lengths
    inside = ends <= len(window)
    places, ends = _filtered(places, inside), _filtered(ends, inside)
    runs: list[npt.NDArray[np.int64]] = []
    lasts = np.append(np.flatnonzero(places[1:] != ends[:-1]), len(places) - 1)
    first, end = 0, 0
    while first < len(places) and int(places[first]) == end:
        last = int(lasts[np.searchsorted(lasts, first)])
        runs.append(places[first : last + 1])
        end = int(ends[last])
        first = int(np.searchsorted(places, end))
    return np.concatenate(runs) if runs else places[:0], end


def _filtered(rows: npt.NDArray[np.int64], mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    return rows if bool(mask.all()) else rows[mask]


def _frame_fixed(keys: Bytes, values: Bytes, rows: int) -> Framed:
    key_width, value_width = len(keys) // rows, len(values) // rows
    sizes = [np.frombuffer(_U32.pack(width), np.uint8).reshape(1, 4) for width in (key_width, value_width)]
    parts = [sizes[0], keys.reshape(rows, key_width), sizes[1], values.reshape(rows, value_width)]
    framed = from_fixed(side_by_side(parts))
    return Framed(framed.data, framed.offsets)


def _unframe_alike(data: Bytes, starts: npt.NDArray[np.int64]) -> StateRows | None:
    """Return the rows of entries that all have the same lengths, as slices of a matrix; None for others and for one
    alone."""
    stride, rest = divmod(len(data), len(starts))
    if len(starts) == 1 or rest or int(starts[0]) or not is_equally_spaced(starts, stride):
        return None
    matrix = data.reshape(len(starts), stride)
    value_length_at = 4 + int(_words(matrix, 0)[0].byteswap())
    for place in (0, value_length_at):
        if place + 4 > stride or bool((_words(matrix, place) != _words(matrix, place)[0]).any()):
            return None
    if value_length_at + 4 + int(_words(matrix, value_length_at)[0].byteswap()) != stride:
        return None
    return StateRows(from_fixed(matrix[:, 4:value_length_at]), from_fixed(matrix[:, value_length_at + 4 :]))


def _words(matrix: Bytes, place: int) -> npt.NDArray[np.uint32]:
    """Return the four bytes from ``place`` on of each row, in the byte order of this machine."""
    rows, stride = matrix.shape
    return np.asarray(equally_spaced(matrix.reshape(-1), place, rows, stride, "u4"), np.uint32)


def _constant(lengths: npt.NDArray[np.int64]) -> bool:
    return bool((lengths == lengths[0]).all())


def _sizes(lengths: npt.NDArray[np.int64]) -> Ragged:
    """Return each length as it stands in front of a key or a value."""
    return from_fixed(lengths.astype(">u4").view(np.uint8).reshape(-1, 4))
