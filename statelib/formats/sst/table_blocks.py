"""Data blocks of RocksDB's tables, decoded side by side: entry by entry in all stretches at once.

An entry gives the bytes that it shares with the key before it, which begin anew at each restart of a block. The
stretches between restarts know nothing of one another, so that one step decodes one entry of each.
Source: flink-formats.md section 8.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from statelib.errors import CorruptStateError
from statelib.serializers.spans import read_varlen
from statelib.wire.ragged import Bytes, Ragged, concat, from_fixed, gather, offsets_of, spans

Numbers = npt.NDArray[np.int64]

TRAILING = 8
"""Bytes behind the user key: a byte that says what the entry does, and a sequence number."""
_DELETES, _PUTS = (0, 7), 1
_PADDING = 8
MATRIX_BYTES = 8 << 20
"""Of keys that are made at once, each as long as the longest."""
_HASH_INDEX = 1 << 31


@dataclass(frozen=True, eq=False)
class BlockEntries:
    """``sequence``: the higher, the newer. ``deleted``: the key is gone from there on."""

    keys: Ragged
    values: Ragged
    sequence: npt.NDArray[np.uint64]
    deleted: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: Numbers) -> "BlockEntries":
        return BlockEntries(self.keys.take(rows), self.values.take(rows), self.sequence[rows], self.deleted[rows])

    def slice(self, start: int, stop: int) -> "BlockEntries":
        cut = slice(start, stop)
        return BlockEntries(
            self.keys.slice(start, stop), self.values.slice(start, stop), self.sequence[cut], self.deleted[cut]
        )


def joined(parts: Sequence[BlockEntries]) -> BlockEntries:
    """All entries of the first part, then of the second, and so on; one part at least."""
    if len(parts) == 1:
        return parts[0]
    return BlockEntries(
        concat([part.keys for part in parts]),
        concat([part.values for part in parts]),
        np.concatenate([part.sequence for part in parts]),
        np.concatenate([part.deleted for part in parts]),
    )


def entries_of(blocks: Sequence[bytes | memoryview], what: str) -> BlockEntries:
    """The entries of blocks without their trailers, in order. Raises CorruptStateError (``corrupt-rocksdb``)."""
    data = np.frombuffer(b"".join((*blocks, bytes(_PADDING))), np.uint8)
    starts, stops = _stretches(data, np.array([len(block) for block in blocks], np.int64), what)
    try:
        return _entries(data, starts, stops, what)
    except (IndexError, ValueError) as error:
        raise _corrupt(what, str(error)) from error


def _stretches(data: Bytes, lengths: Numbers, what: str) -> tuple[Numbers, Numbers]:
    """Where the entries after each restart begin and end."""
    if int(lengths.min()) < 4:
        raise _corrupt(what, f"a block of {lengths.min()} bytes")
    bounds = offsets_of(lengths)
    begins, ends = bounds[:-1], bounds[1:] - 4
    counts = _u32(data, ends)
    hashed = np.flatnonzero(counts & _HASH_INDEX)  # buckets, and how many, before the count
    if len(hashed):
        counts[hashed] ^= _HASH_INDEX
        ends[hashed] -= 2 + (_u32(data, np.maximum(ends[hashed] - 2, 0)) & 0xFFFF)
    ends -= 4 * counts
    odd = np.flatnonzero((ends < begins) | (counts == 0))
    if len(odd):
        raise _corrupt(what, f"a block of {lengths[odd[0]]} bytes with {counts[odd[0]]} restarts")
    first = offsets_of(counts)
    places = np.repeat(ends - 4 * first[:-1], counts) + 4 * np.arange(first[-1])
    starts = _u32(data, places) + np.repeat(begins, counts)
    stops = np.append(starts[1:], 0)
    stops[first[1:] - 1] = ends
    return starts, stops


def _u32(data: Bytes, at: Numbers) -> Numbers:
    found: Numbers = spans(data, at, 4).view("<u4").reshape(-1).astype(np.int64)
    return found


def _entries(data: Bytes, starts: Numbers, stops: Numbers, what: str) -> BlockEntries:
    found = _Walk.of(data, starts, stops, what)
    width = int(found.lengths.max(initial=0))
    if width * len(found.lengths) > MATRIX_BYTES and len(starts) > 1:
        half = len(starts) // 2
        return joined(
            [_entries(data, starts[:half], stops[:half], what), _entries(data, starts[half:], stops[half:], what)]
        )
    keys, trailing = _keys(data, found, width)
    kinds = trailing & np.uint64(0xFF)
    deleted = (kinds == _DELETES[0]) | (kinds == _DELETES[1])
    odd = np.flatnonzero(~deleted & (kinds != _PUTS))
    if len(odd):
        raise _corrupt(what, f"an entry of kind {kinds[odd[0]]}: expected keys that are put or deleted")
    return BlockEntries(keys, gather(data, found.values, found.sizes), trailing >> np.uint64(8), deleted)


@dataclass(frozen=True, eq=False)
class _Walk:
    """Of each entry: bytes of the key before it that it begins with, how long its key is, where the rest of the key
    lies, where the value lies and how long it is."""

    shared: Numbers
    lengths: Numbers
    rest: Numbers
    values: Numbers
    sizes: Numbers

    @classmethod
    def of(cls, data: Bytes, starts: Numbers, stops: Numbers, what: str) -> "_Walk":
        steps = list(_steps(data, starts, stops, what))
        counts = np.zeros(len(starts), np.int64)
        for lanes, *_ in steps:
            counts[lanes] += 1
        first = offsets_of(counts)[:-1]
        columns = np.empty((4, int(counts.sum())), np.int64)
        for number, (lanes, *found) in enumerate(steps):
            at = first[lanes] + number
            for column, values in zip(columns, found, strict=True):
                column[at] = values
        shared, fresh, sizes, rest = columns
        lengths = shared + fresh
        before = np.append(0, lengths[:-1])
        before[first[counts > 0]] = 0
        if len(lengths) and (bool((shared > before).any()) or int(lengths.min()) < TRAILING):
            raise _corrupt(what, "a key that does not go on from the one before it")
        return cls(shared, lengths, rest, rest + fresh, sizes)


def _steps(data: Bytes, starts: Numbers, stops: Numbers, what: str) -> Any:
    """(which stretches, shared, fresh, size of the value, where the fresh bytes lie) of the first entry of each
    stretch, then of the second, and so on."""
    lanes = np.flatnonzero(starts < stops)
    at, ends = starts[lanes], stops[lanes]
    if len(lanes) and bool((at > ends).any()):
        raise _corrupt(what, "restarts that do not ascend")
    while len(lanes):
        shared, fresh, size, at = _heads(data, at, ends, what)
        yield lanes, shared, fresh, size, at
        at = at + fresh + size
        if bool((at > ends).any()):
            raise _corrupt(what, "an entry that is longer than its block")
        going = at < ends
        if not going.all():
            lanes, at, ends = lanes[going], at[going], ends[going]


def _heads(data: Bytes, at: Numbers, ends: Numbers, what: str) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Three numbers, nearly always of one byte each, and where they end."""
    shared, fresh, size = data[at], data[at + 1], data[at + 2]
    if int((shared | fresh | size).max()) < 0x80:
        return shared.astype(np.int64), fresh.astype(np.int64), size.astype(np.int64), at + 3
    one, at = read_varlen(data, at, ends, what)
    two, at = read_varlen(data, at, ends, what)
    three, at = read_varlen(data, at, ends, what)
    return one, two, three, at


def _keys(data: Bytes, found: _Walk, width: int) -> tuple[Ragged, npt.NDArray[np.uint64]]:
    """User keys, and what lies behind each. Column by column: byte ``c`` of a key is that of the last entry up to it
    that does not share it."""
    count = len(found.lengths)
    own, every = found.rest - found.shared, np.arange(count)
    begins = np.bincount(found.shared, minlength=width + 1) > 0
    deepest = int(found.shared.max(initial=0))
    columns = np.empty((width, count), np.uint8)
    source = own
    for c in range(width):
        if c == deepest:
            source = own
        elif begins[c]:
            source = own[np.maximum.accumulate(np.where(found.shared <= c, every, 0))]
        data.take(source + c, out=columns[c], mode="clip")
    if bool((found.lengths == width).all()):
        cut = width - TRAILING
        trailing = np.ascontiguousarray(columns[cut:].T).view("<u8").reshape(-1)
        return from_fixed(np.ascontiguousarray(columns[:cut].T)), trailing.astype(np.uint64)
    rows, begin, sizes = np.ascontiguousarray(columns.T).reshape(-1), every * width, found.lengths - TRAILING
    trailing = spans(rows, begin + sizes, TRAILING).view("<u8").reshape(-1)
    return gather(rows, begin, sizes), trailing.astype(np.uint64)


def _corrupt(what: str, found: str) -> CorruptStateError:
    return CorruptStateError(f"RocksDB's table {what}: {found}", kind="corrupt-rocksdb")
