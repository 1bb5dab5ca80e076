"""Data blocks of RocksDB's tables, made of columns: the inverse of :mod:`statelib.formats.sst.table_blocks`.

Source: docs/spec/formats.md#rocksdb-tables.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from statelib.formats.sst.table_blocks import TRAILING
from statelib.serializers.columns.cursors import encode_varlen
from statelib.serializers.entries.rows import StateRows
from statelib.wire.ragged import Ragged, big_endian_words, copy_spans, from_fixed, gather, join, padded

BLOCK_BYTES = 4 * 1024
"""The size in bytes from which on a block takes no more entries, before its compression."""
STRETCH = 16
"""The number of entries from one restart to the next. It is RocksDB's default."""
_PUT_FIRST = np.array([[1, *bytes(TRAILING - 1)]], np.uint8)
"""What follows the user key of an entry that is put and has the sequence number 0."""
_WORD, _WORD_BITS = 8, 64
_MANTISSA_BITS, _EXPONENT_BIAS = 52, 1023
_HEADS = 3
Numbers = npt.NDArray[np.int64]


def data_blocks(rows: StateRows) -> Iterator[tuple[bytes, int]]:
    """Yield (block without its trailer, number of its entries). There must be at least one entry, and the keys must be
    distinct and in ascending order."""
    keys, values = rows.keys.lengths, rows.values.lengths
    shared = _shared_bytes(rows.keys)
    ends = np.cumsum(_HEADS + TRAILING + keys - shared + values)
    number = np.append(0, ends[:-1] // BLOCK_BYTES)
    first = np.flatnonzero(np.append(True, number[1:] != number[:-1]))
    counts = np.diff(np.append(first, len(rows)))
    restarts = np.flatnonzero((np.arange(len(rows)) - np.repeat(first, counts)) % STRETCH == 0)
    shared[restarts] = 0
    entries = _entries(rows, shared, keys - shared)
    begins = entries.starts[first]
    per_block = -(-counts // STRETCH)
    places = (entries.starts[restarts] - np.repeat(begins, per_block)).astype("<u4").tobytes()
    data, bounds, at = entries.data.data, [*begins.tolist(), int(entries.offsets[-1])], 0
    for block, (several, count) in enumerate(zip(per_block.tolist(), counts.tolist(), strict=True)):
        stop = at + 4 * several
        parts = data[bounds[block] : bounds[block + 1]], places[at:stop], several.to_bytes(4, "little")
        yield b"".join(parts), count
        at = stop


def _entries(rows: StateRows, shared: Numbers, unshared: Numbers) -> Ragged:
    """Return the bytes of each entry, whose key repeats ``shared`` bytes of the key before it by their number only."""
    numbers = (shared, unshared + TRAILING, rows.values.lengths)
    heads = join([encode_varlen(column, 7, 0x80) for column in numbers])
    trailing = from_fixed(np.repeat(_PUT_FIRST, len(rows), 0))
    if any(part.width is None for part in (heads, rows.keys, rows.values)):
        rest = gather(rows.keys.data, rows.keys.starts + shared, unshared)
        return join([heads, rest, trailing, rows.values])
    # Rows of one length are made whole. Then each head is written before the bytes of the key that are not shared.
    whole = join([heads, rows.keys, trailing, rows.values])
    starts = whole.starts + shared
    copy_spans(heads.data, heads.starts, whole.data, starts, heads.lengths)
    return gather(whole.data, starts, whole.offsets[1:] - starts)


def _shared_bytes(keys: Ragged) -> Numbers:
    """Return the number of bytes that each key has in common with the key before it, at its beginning, or a smaller
    number."""
    shared = np.zeros(len(keys), np.int64)
    lengths = keys.lengths
    least = np.append(0, np.minimum(lengths[1:], lengths[:-1]))
    data, starts = padded(keys, _WORD)
    rows, at = np.flatnonzero(least > 0), 0
    while len(rows):
        alike = _equal_bytes(big_endian_words(data, starts[rows] + at) ^ big_endian_words(data, starts[rows - 1] + at))
        shared[rows] += alike
        at += _WORD
        rows = rows[(alike == _WORD) & (least[rows] > at)]
    return np.asarray(np.minimum(shared, least), np.int64)


def _equal_bytes(differences: npt.NDArray[np.uint64]) -> Numbers:
    """Return the number of leading zero bytes of each number, from the exponent of the float nearest to it. If that is
    the next power of two, the result is one less than it could be."""
    exponents = (differences.astype(np.float64).view(np.int64) >> _MANTISSA_BITS) - _EXPONENT_BIAS
    return np.asarray(np.clip((_WORD_BITS - 1 - exponents) >> 3, 0, _WORD), np.int64)
