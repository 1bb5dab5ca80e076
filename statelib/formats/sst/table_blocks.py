"""Data blocks of RocksDB's tables, decoded side by side.

An entry repeats the first bytes of the key before it by their number only; at each restart of a block, keys begin anew.
The stretches between restarts are therefore independent: one step decodes one entry of each stretch. Source:
docs/spec/formats.md#rocksdb-tables.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from statelib.errors import CorruptStateError
from statelib.formats.sst.stored_blocks import Contents
from statelib.serializers.columns.cursors import read_varlen
from statelib.wire.ragged import Bytes, Ragged, concat, from_fixed, gather, offsets_of, spans

Numbers = npt.NDArray[np.int64]

TRAILING = 8
"""The size in bytes of what follows the user key: a byte for the kind of entry, and a sequence number."""
_DELETES, _PUTS = (0, 7), 1
MATRIX_BYTES = 8 << 20
"""The size in bytes of the keys that are decoded at once, each padded to the longest."""
_HASH_INDEX = 1 << 31


@dataclass(frozen=True, eq=False)
class BlockEntries:
    """The entries of one or more blocks as columns.

    ``sequence``: RocksDB's sequence number; a newer entry has a higher one. ``deleted``: whether the entry deletes its
    key.
    """

    keys: Ragged
    values: Ragged
    sequence: npt.NDArray[np.uint64]
    deleted: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: Numbers) -> "BlockEntries":
        """Return the given rows in the given order."""
        return BlockEntries(self.keys.take(rows), self.values.take(rows), self.sequence[rows], self.deleted[rows])

    def slice(self, start: int, stop: int) -> "BlockEntries":
        """Return the rows from ``start`` to ``stop`` (exclusive)."""
        cut = slice(start, stop)
        return BlockEntries(
            self.keys.slice(start, stop), self.values.slice(start, stop), self.sequence[cut], self.deleted[cut]
        )


def joined(parts: Sequence[BlockEntries]) -> BlockEntries:
    """Return all entries of the first part, then of the second, and so on. There must be at least one part."""
    if len(parts) == 1:
        return parts[0]
    return BlockEntries(
        concat([part.keys for part in parts]),
        concat([part.values for part in parts]),
        np.concatenate([part.sequence for part in parts]),
        np.concatenate([part.deleted for part in parts]),
    )


def entries_of(blocks: Contents, what: str) -> BlockEntries:
    """Return the entries of blocks in order. Raise CorruptStateError (``corrupt-rocksdb``)."""
    starts, stops = _stretch_bounds(blocks.data, np.array(blocks.lengths, np.int64), what)
    try:
        return _entries(blocks.data, starts, stops, what)
    except (IndexError, ValueError) as error:
        raise _corrupt(what, str(error)) from error


def _stretch_bounds(data: Bytes, lengths: Numbers, what: str) -> tuple[Numbers, Numbers]:
    """Return the start and the end of each stretch: the entries from one restart to the next."""
    if int(lengths.min()) < 4:
        raise _corrupt(what, f"a block of {lengths.min()} bytes")
    bounds = offsets_of(lengths)
    begins, ends = bounds[:-1], bounds[1:] - 4
    counts = _u32(data, ends)
    hashed = np.flatnonzero(counts & _HASH_INDEX)  # a hash index and its size, before the number of restarts
    if len(hashed):
        counts[hashed] ^= _HASH_INDEX
        ends[hashed] -= 2 + (_u32(data, np.maximum(ends[hashed] - 2, 0)) & 0xFFFF)
    ends -= 4 * counts
    malformed = np.flatnonzero((ends < begins) | (counts == 0))
    if len(malformed):
        raise _corrupt(what, f"a block of {lengths[malformed[0]]} bytes with {counts[malformed[0]]} restarts")
    first = offsets_of(counts)
    places = np.repeat(ends - 4 * first[:-1], counts) + 4 * np.arange(first[-1])
    starts = _u32(data, places) + np.repeat(begins, counts)
    stops = np.append(starts[1:], 0)
    stops[first[1:] - 1] = ends
    return starts, stops


def _u32(data: Bytes, at: Numbers) -> Numbers:
    numbers: Numbers = spans(data, at, 4).view("<u4").reshape(-1).astype(np.int64)
    return numbers


def _entries(data: Bytes, starts: Numbers, stops: Numbers, what: str) -> BlockEntries:
    walk = _Walk.of(data, starts, stops, what)
    width = int(walk.lengths.max(initial=0))
    if width * len(walk.lengths) > MATRIX_BYTES and len(starts) > 1:
        half = len(starts) // 2
        return joined(
            [_entries(data, starts[:half], stops[:half], what), _entries(data, starts[half:], stops[half:], what)]
        )
    keys, trailing = _keys(data, walk, width)
    kinds = trailing & np.uint64(0xFF)
    deleted = (kinds == _DELETES[0]) | (kinds == _DELETES[1])
    unknown = np.flatnonzero(~deleted & (kinds != _PUTS))
    if len(unknown):
        raise _corrupt(what, f"an entry of kind {kinds[unknown[0]]}: expected keys that are put or deleted")
    return BlockEntries(keys, gather(data, walk.values, walk.sizes), trailing >> np.uint64(8), deleted)


@dataclass(frozen=True, eq=False)
class _Walk:
    """The positions of the parts of all entries.

    Per entry: ``shared``, the number of bytes that its key shares with the key before it; ``lengths``, the length of
    its key; ``rest``, the offset of the other bytes of the key; ``values`` and ``sizes``, the offset and the length of
    its value.
    """

    shared: Numbers
    lengths: Numbers
    rest: Numbers
    values: Numbers
    sizes: Numbers

    @classmethod
    def of(cls, data: Bytes, starts: Numbers, stops: Numbers, what: str) -> "_Walk":
        """Return the positions of the entries in the given stretches of ``data``. Raise CorruptStateError
        (``corrupt-rocksdb``)."""
        steps = list(_steps(data, starts, stops, what))
        counts = np.zeros(len(starts), np.int64)
        for lanes, *_ in steps:
            counts[lanes] += 1
        first = offsets_of(counts)[:-1]
        columns = np.empty((4, int(counts.sum())), np.int64)
        for number, (lanes, *fields) in enumerate(steps):
            at = first[lanes] + number
            for column, values in zip(columns, fields, strict=True):
                column[at] = values
        shared, unshared, sizes, rest = columns
        lengths = shared + unshared
        before = np.append(0, lengths[:-1])
        before[first[counts > 0]] = 0
        if len(lengths) and (bool((shared > before).any()) or int(lengths.min()) < TRAILING):
            raise _corrupt(what, "a key that shares more bytes than the key before it has, or that is too short")
        return cls(shared, lengths, rest, rest + unshared, sizes)


def _steps(data: Bytes, starts: Numbers, stops: Numbers, what: str) -> Any:
    """Yield (stretches, shared, unshared, length of the value, offset of the unshared bytes) for the first entry of
    each stretch, then for the second, and so on.

    ``shared`` and ``unshared`` are numbers of bytes of the key. A stretch that has ended takes no part in later steps.
    """
    lanes = np.flatnonzero(starts < stops)
    at, ends = starts[lanes], stops[lanes]
    if len(lanes) and bool((at > ends).any()):
        raise _corrupt(what, "restarts that do not ascend")
    while len(lanes):
        shared, unshared, size, at = _heads(data, at, ends, what)
        yield lanes, shared, unshared, size, at
        at = at + unshared + size
        if bool((at > ends).any()):
            raise _corrupt(what, "an entry that is longer than its block")
        going = at < ends
        if not going.all():
            lanes, at, ends = lanes[going], at[going], ends[going]


def _heads(data: Bytes, at: Numbers, ends: Numbers, what: str) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Return the three leading numbers of each entry, and the offset of their end. Nearly all numbers take one byte."""
    shared, unshared, size = data[at], data[at + 1], data[at + 2]
    if int((shared | unshared | size).max()) < 0x80:
        return shared.astype(np.int64), unshared.astype(np.int64), size.astype(np.int64), at + 3
    one, at = read_varlen(data, at, ends, what)
    two, at = read_varlen(data, at, ends, what)
    three, at = read_varlen(data, at, ends, what)
    return one, two, three, at


def _keys(data: Bytes, walk: _Walk, width: int) -> tuple[Ragged, npt.NDArray[np.uint64]]:
    """Return the user keys, and the eight bytes that follow each.

    The keys are made column by column: byte ``c`` of a key is stored with the last entry, up to this one, that does not
    share it. ``width``: the length of the longest key with its trailing bytes.
    """
    count = len(walk.lengths)
    own, every = walk.rest - walk.shared, np.arange(count)
    begins = np.bincount(walk.shared, minlength=width + 1) > 0
    deepest = int(walk.shared.max(initial=0))
    columns = np.empty((width, count), np.uint8)
    source = own
    for c in range(width):
        if c == deepest:
            source = own
        elif begins[c]:
            source = own[np.maximum.accumulate(np.where(walk.shared <= c, every, 0))]
        data.take(source + c, out=columns[c], mode="clip")
    if bool((walk.lengths == width).all()):
        cut = width - TRAILING
        trailing = np.ascontiguousarray(columns[cut:].T).view("<u8").reshape(-1)
        return from_fixed(np.ascontiguousarray(columns[:cut].T)), trailing.astype(np.uint64)
    rows, begin, sizes = np.ascontiguousarray(columns.T).reshape(-1), every * width, walk.lengths - TRAILING
    trailing = spans(rows, begin + sizes, TRAILING).view("<u8").reshape(-1)
    return gather(rows, begin, sizes), trailing.astype(np.uint64)


def _corrupt(what: str, problem: str) -> CorruptStateError:
    return CorruptStateError(f"RocksDB's table {what}: {problem}", kind="corrupt-rocksdb")
