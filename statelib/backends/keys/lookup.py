"""Finding serialized keys among others, and equal ones among themselves, computed on columns."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelib.backends.keys.numbers import Words, first_numbers, is_ascending, key_numbers
from statelib.backends.keys.order import coded
from statelib.wire.digest import byte_hashes
from statelib.wire.ragged import Ragged, as_arrow
from statelib.wire.sorting import order_of, sort_kind

Rows = npt.NDArray[np.int64]
_LARGE = 1 << 16
"""The number of rows from which on sorting takes less time than a hash table, which then is larger than the processor's
cache."""
_HASHED_BYTES = 64
"""The longest keys, in bytes, whose hashes are computed in less time than a hash table takes."""
_FEW_SHARED = 16
"""Stored keys are found by their first bytes if at most one of so many has those of another key."""
_ROW_BITS, _ROW = np.uint64(32), np.uint64(0xFFFFFFFF)


def find_rows(held: Ragged, keys: Ragged) -> Rows:
    """Return the row in ``held`` of each of ``keys``, as int64; -1 if ``held`` does not have the key. The keys of each
    side are distinct."""
    if not len(held) or not len(keys):
        return np.full(len(keys), -1, np.int64)
    are_large = min(len(held), len(keys)) >= _LARGE
    numbers = key_numbers(held, keys)
    if numbers is not None:
        if are_large or is_ascending(numbers[:1]):
            return _rows_of_numbers(*numbers)
        return _rows_in_hash_table(*map(pa.array, numbers))
    rows = None
    if are_large and held.width and held.width == keys.width:
        rows = _rows_by_first_bytes(held, keys)
        rows = _rows_by_hash(held, keys) if rows is None else rows
    return _rows_in_hash_table(as_arrow(held), as_arrow(keys)) if rows is None else rows


def grouped(keys: Ragged) -> tuple[Rows, Rows]:
    """Return (row numbers, starts): equal keys are neighbours, in ascending order of their rows, and ``starts`` are the
    places among the row numbers at which another key begins."""
    numbers = key_numbers(keys)
    if numbers is None:
        codes, order = coded(keys)[0].astype(np.uint64), np.arange(len(keys), dtype=np.uint64)
    else:
        order = order_of(numbers[0]).astype(np.uint64)
        codes = np.cumsum(_begins(numbers[0][order]), dtype=np.uint64)
    # the order of equal keys is that of their rows; sorting such numbers is several times faster than a stable sort
    places = codes << _ROW_BITS | order
    places.sort(kind=sort_kind(places))
    return (places & _ROW).astype(np.int64), np.flatnonzero(_begins(places >> _ROW_BITS))


def _begins(numbers: Words) -> npt.NDArray[np.bool_]:
    """Return whether each number differs from the one before it. The first one does."""
    begins = np.ones(len(numbers), np.bool_)
    begins[1:] = numbers[1:] != numbers[:-1]
    return begins


def _rows_of_numbers(held: Words, keys: Words) -> Rows:
    """Return the row of each number. Both sides are sorted first, because a search for ascending numbers in ascending
    numbers stays in the processor's cache."""
    if not is_ascending([keys]):
        order = order_of(keys)
        rows = np.empty(len(keys), np.int64)
        rows[order] = _rows_of_numbers(held, keys[order])
        return rows
    if not is_ascending([held]):
        order = order_of(held)
        rows = _rows_of_numbers(held[order], keys)
        return np.where(rows < 0, -1, order[rows])
    at = np.minimum(np.searchsorted(held, keys), len(held) - 1)
    return np.where(held[at] == keys, at, -1)


def _rows_by_first_bytes(held: Ragged, keys: Ragged) -> Rows | None:
    """Return the row of each key, found by the first bytes in which keys differ. All keys have one length. Return None
    if many keys of ``held`` are equal in these bytes.

    Stored keys are in the order of their bytes, so that sorting them costs next to nothing."""
    of_held, of_keys = first_numbers(held, keys)
    order = order_of(of_held)
    of_held = of_held[order]
    is_shared = np.append(False, of_held[1:] == of_held[:-1])
    if np.count_nonzero(is_shared) * _FEW_SHARED > len(held):
        return None
    rows = _rows_of_numbers(of_held, of_keys)
    hits = np.flatnonzero(rows >= 0)
    if not len(hits):
        return rows
    is_shared[:-1] |= is_shared[1:]
    unsure = hits[is_shared[rows[hits]]]
    rows[hits] = order[rows[hits]]
    differs = (held.take(rows[hits]).matrix != keys.take(hits).matrix).any(axis=1)
    rows[hits[differs]] = -1
    if len(unsure):
        shared = order[is_shared]
        places = _rows_in_hash_table(as_arrow(held.take(shared)), as_arrow(keys.take(unsure)))
        rows[unsure] = np.where(places < 0, -1, shared[places])
    return rows


def _rows_by_hash(held: Ragged, keys: Ragged) -> Rows | None:
    """Return the row of each key, found by hashes of keys of one length. Return None if different keys have the same
    hash, and if this takes more time than a hash table."""
    if held.width is None or held.width > _HASHED_BYTES:
        return None
    rows = _rows_of_numbers(byte_hashes(held), byte_hashes(keys))
    hits = np.flatnonzero(rows >= 0)
    return rows if np.array_equal(held.take(rows[hits]).data, keys.take(hits).data) else None


def _rows_in_hash_table(held: pa.Array, keys: pa.Array) -> Rows:
    if len(held) <= len(keys):
        return _row_numbers(pc.index_in(keys, value_set=held))
    # The hash table is built over the smaller side, so that it fits into the processor's cache.
    hits = _row_numbers(pc.index_in(held, value_set=keys))
    at = np.flatnonzero(hits >= 0)
    rows = np.full(len(keys), -1, np.int64)
    rows[hits[at]] = at
    return rows


def _row_numbers(indices: pa.Int32Array) -> npt.NDArray[np.int64]:
    """Return Arrow's indices as int64, null as -1."""
    return np.asarray(pc.fill_null(indices, -1), np.int64)
