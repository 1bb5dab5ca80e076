"""Runs of entries as the canonical stream holds them: ``i32 keyLen, key, i32 valueLen, value``.

Both directions move whole arrays; only finding the boundaries of entries of different lengths
takes a loop, over integers. Source: flink-formats.md section 3.1.
"""

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from statelib.errors import CorruptStateError
from statelib.serializers.rows import StateRows
from statelib.wire.ragged import Bytes, Offsets, Ragged, from_fixed, offsets_of

FOLLOWS = 0x80
"""Flag in the first byte of a key: a state id follows this entry."""
_U32 = struct.Struct(">I")
_MIN_ENTRY = 8
_PROBE = 64
"""Entries first tried at once when they look alike."""
_MAX_BURST = 8192
_MAX_WINDOW = 1 << 22


@dataclass(frozen=True, eq=False)
class Framed:
    """Framed entries without flags and state ids: entry ``i`` is ``data[offsets[i]:offsets[i + 1]]``."""

    data: Bytes
    offsets: Offsets


def frame(rows: StateRows) -> Framed:
    """Put the two lengths in front of each key and value."""
    key_lengths, value_lengths = rows.keys.lengths, rows.values.lengths
    keys = rows.keys.data[rows.keys.offsets[0] : rows.keys.offsets[-1]]
    values = rows.values.data[rows.values.offsets[0] : rows.values.offsets[-1]]
    if _constant(key_lengths) and _constant(value_lengths):
        return _frame_fixed(keys, values, len(rows))
    lengths = np.empty((len(rows), 4), np.int64)
    lengths[:, 0] = lengths[:, 2] = 4
    lengths[:, 1], lengths[:, 3] = key_lengths, value_lengths
    parts = np.repeat(np.tile(np.arange(4, dtype=np.uint8), len(rows)), lengths.reshape(-1))
    data = np.empty(len(parts), np.uint8)
    data[parts == 0] = _big_endian(key_lengths)
    data[parts == 1] = keys
    data[parts == 2] = _big_endian(value_lengths)
    data[parts == 3] = values
    return Framed(data, offsets_of(lengths.sum(axis=1)))


def unframe(data: Bytes, starts: npt.NDArray[np.int64]) -> StateRows:
    """The inverse of :func:`frame`: ``data`` is a gapless run whose entries begin at ``starts``.

    Flags stay in the keys. Raises CorruptStateError (``bad-entry``) where lengths and starts disagree.
    """
    if not len(starts):
        return StateRows(from_fixed(np.empty((0, 0), np.uint8)), from_fixed(np.empty((0, 0), np.uint8)))
    ends = np.append(starts[1:], len(data))
    key_lengths = _numbers(data, starts)
    value_lengths = _numbers(data, starts + 4 + key_lengths)
    if not np.array_equal(starts + _MIN_ENTRY + key_lengths + value_lengths, ends):
        raise CorruptStateError("entries of a key group do not fill it without gaps", kind="bad-entry")
    if _constant(key_lengths) and _constant(value_lengths):
        return _unframe_fixed(data, len(starts), int(key_lengths[0]))
    lengths = np.empty((len(starts), 4), np.int64)
    lengths[:, 0] = lengths[:, 2] = 4
    lengths[:, 1], lengths[:, 3] = key_lengths, value_lengths
    parts = np.repeat(np.tile(np.array([0, 1, 0, 2], np.uint8), len(starts)), lengths.reshape(-1))
    keys = Ragged(data[parts == 1], offsets_of(key_lengths))
    return StateRows(keys, Ragged(data[parts == 2], offsets_of(value_lengths)))


def entry_starts(raw: bytes | memoryview, data: Bytes, at: int, what: str) -> tuple[npt.NDArray[np.int64], int]:
    """Follow the lengths from the entry at ``at`` to the first one flagged :data:`FOLLOWS`.

    ``raw`` and ``data`` are the same bytes. Returns where each entry starts, and where the flagged
    one ends. Raises CorruptStateError (``truncated-group``) when the bytes end before that.
    """
    starts, end, ended = whole_entries(raw, data, at)
    if not ended:
        raise CorruptStateError(
            f"{what}: the entry at offset {end} reaches beyond the {len(raw)} bytes there are", kind="truncated-group"
        )
    return starts, end


def whole_entries(raw: bytes | memoryview, data: Bytes, at: int) -> tuple[npt.NDArray[np.int64], int, bool]:
    """As :func:`entry_starts`, of the entries that are there whole; whether the last one is flagged."""
    found: list[npt.NDArray[np.int64]] = []
    burst, more, ended = _PROBE, True, False
    while more:
        run = _equal_run(raw, data, at)
        if len(run):
            found.append(run)
            at = int(run[-1]) + (int(run[1] - run[0]) if len(run) > 1 else _length(raw, at))
        burst = _PROBE if len(run) >= burst else min(burst * 2, _MAX_BURST)
        loop, at, ended = _follow(raw, at, burst)
        found.append(np.array(loop, np.int64))
        more = not ended and len(loop) == burst
    return np.concatenate(found), at, ended


def _follow(raw: bytes | memoryview, at: int, burst: int) -> tuple[list[int], int, bool]:
    """At most ``burst`` entries one by one, as far as they are whole. Unsigned lengths: a negative one points
    beyond the end."""
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


def _length(raw: bytes | memoryview, at: int) -> int:
    (key_length,) = _U32.unpack_from(raw, at)
    (value_length,) = _U32.unpack_from(raw, at + 4 + key_length)
    return _MIN_ENTRY + int(key_length) + int(value_length)


def _equal_run(raw: bytes | memoryview, data: Bytes, at: int) -> npt.NDArray[np.int64]:
    """Starts of the unflagged entries from ``at`` on that have the lengths of the first one."""
    try:
        stride = _length(raw, at)
    except struct.error:
        return np.empty(0, np.int64)
    (key_length,) = _U32.unpack_from(raw, at)
    count, window, total = (len(raw) - at) // stride, _PROBE, 0
    first = data[at : at + stride]
    while total < count:
        size = min(window, count - total)
        block = data[at + total * stride : at + (total + size) * stride].reshape(size, stride)
        same = (block[:, 4] & FOLLOWS) == 0
        for column in (*range(4), *range(4 + key_length, 8 + key_length)):
            same &= block[:, column] == first[column]
        if not same.all():
            total += int(same.argmin())
            break
        total += size
        window = min(window * 8, _MAX_WINDOW)
    return at + np.arange(total, dtype=np.int64) * stride


def _frame_fixed(keys: Bytes, values: Bytes, rows: int) -> Framed:
    key_width = len(keys) // rows if rows else 0
    value_width = len(values) // rows if rows else 0
    matrix = np.empty((rows, _MIN_ENTRY + key_width + value_width), np.uint8)
    matrix[:, :4] = np.frombuffer(_U32.pack(key_width), np.uint8)
    matrix[:, 4 : 4 + key_width] = keys.reshape(rows, key_width)
    matrix[:, 4 + key_width : _MIN_ENTRY + key_width] = np.frombuffer(_U32.pack(value_width), np.uint8)
    matrix[:, _MIN_ENTRY + key_width :] = values.reshape(rows, value_width)
    framed = from_fixed(matrix)
    return Framed(framed.data, framed.offsets)


def _unframe_fixed(data: Bytes, rows: int, key_width: int) -> StateRows:
    matrix = data.reshape(rows, -1)
    return StateRows(from_fixed(matrix[:, 4 : 4 + key_width].copy()), from_fixed(matrix[:, 8 + key_width :].copy()))


def _constant(lengths: npt.NDArray[np.int64]) -> bool:
    return not len(lengths) or bool((lengths == lengths[0]).all())


def _big_endian(numbers: npt.NDArray[np.int64]) -> Bytes:
    return numbers.astype(">u4").view(np.uint8)


def _numbers(data: Bytes, at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The big-endian u32 at each position; callers have followed them, so they lie inside."""
    result = data[at].astype(np.int64)
    for index in (1, 2, 3):
        result = (result << 8) | data[at + index]
    return result
