"""Reading at one cursor per row and writing one row per value: bounds, counts, numbers of fixed and variable length."""

import numpy as np
import numpy.typing as npt

from statelib.errors import CorruptStateError
from statelib.serializers.columns.codec import Cursor
from statelib.wire.ragged import Bytes, Ragged, equally_spaced, from_fixed, is_equally_spaced, offsets_of


def require(cursor: Cursor, size: Cursor | int, limit: Cursor, what: object) -> None:
    """Raise CorruptStateError (``truncated-value``) unless each row has ``size`` bytes at its cursor.

    ``what`` (a type, or a name) is the name of the value in the message."""
    short = np.flatnonzero(cursor + size > limit)
    if len(short):
        row = int(short[0])
        need = int(np.broadcast_to(size, cursor.shape)[row])
        raise CorruptStateError(
            f"{what} in row {row}: expected {need} bytes at offset {cursor[row]}, found {limit[row] - cursor[row]}",
            kind="truncated-value",
        )


def refuse(bad: npt.NDArray[np.bool_], actual: npt.NDArray[np.generic], what: object, expected: str, kind: str) -> None:
    """Raise CorruptStateError of ``kind`` for the first row that is ``bad``. The message shows its ``actual`` value."""
    rows = np.flatnonzero(bad)
    if len(rows):
        raise CorruptStateError(f"{what} in row {rows[0]}: expected {expected}, found {actual[rows[0]]}", kind=kind)


def read_unsigned(data: Bytes, cursor: Cursor, width: int, dtype: str | None = None) -> npt.NDArray[np.generic]:
    """Return the big-endian number of ``width`` bytes at each cursor, as a native unsigned number or as the native
    ``dtype`` of that width. The caller has checked the bounds."""
    wanted = np.dtype(dtype or f"u{width}")
    if not len(cursor):
        return np.empty(0, wanted)
    step = int(cursor[1] - cursor[0]) if len(cursor) > 1 else width
    if step >= 0 and is_equally_spaced(cursor, step):
        swapped = wanted.newbyteorder(">").str
        return equally_spaced(np.ascontiguousarray(data), int(cursor[0]), len(cursor), step, swapped).astype(wanted)
    everywhere: npt.NDArray[np.generic] = np.ndarray(
        (len(data) - width + 1,), wanted.newbyteorder(">"), np.ascontiguousarray(data), strides=(1,)
    )
    return everywhere[cursor].astype(wanted)


def fixed(slots: npt.NDArray[np.generic]) -> Ragged:
    """Return native numbers as rows of big-endian bytes."""
    return from_fixed(big_endian(slots))


def big_endian(slots: npt.NDArray[np.generic]) -> Bytes:
    """Return native numbers as a matrix (rows, width) of big-endian bytes."""
    swapped = np.ascontiguousarray(slots.astype(slots.dtype.newbyteorder(">")))
    return swapped.view(np.uint8).reshape(len(slots), slots.dtype.itemsize)


def encode_varlen(values: npt.NDArray[np.int64], bits: int, more: int) -> Ragged:
    """Return numbers >= 0 in groups of ``bits`` bits, one byte per group, the low group first. ``more`` is set in every
    byte but the last. Strings use (7, 0x80), composite keys use (8, 0)."""
    rest = values >> bits
    if not rest.any():
        return from_fixed(values.astype(np.uint8).reshape(-1, 1))
    sizes = np.ones(len(values), np.int64)
    while rest.any():
        sizes += rest > 0
        rest = rest >> bits
    offsets = offsets_of(sizes)
    out = np.empty(int(offsets[-1]), np.uint8)
    mask = (1 << bits) - 1
    for k in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > k)
        group = (values[rows] >> (k * bits)) & mask
        out[offsets[rows] + k] = np.where(sizes[rows] > k + 1, group | more, group)
    return Ragged(out, offsets)


def read_varlen(data: Bytes, cursor: Cursor, limit: Cursor, what: object) -> tuple[npt.NDArray[np.int64], Cursor]:
    """Read the variable-length number of a string at each cursor. Return the numbers and the cursors after them.

    Raise CorruptStateError (``truncated-value``, ``bad-length``)."""
    require(cursor, 1, limit, what)
    byte = data[cursor].astype(np.int64)
    value, at = byte & 0x7F, cursor + 1
    rows, shift = np.flatnonzero(byte >= 0x80), 7
    while len(rows):
        if shift > 28:
            raise CorruptStateError(
                f"{what} in row {rows[0]}: expected a length of at most 5 bytes at offset {cursor[rows[0]]}",
                kind="bad-length",
            )
        require(at[rows], 1, limit[rows], what)
        byte = data[at[rows]].astype(np.int64)
        value[rows] |= (byte & 0x7F) << shift
        at[rows] += 1
        rows, shift = rows[byte >= 0x80], shift + 7
    return value, at


def read_count(data: Bytes, cursor: Cursor, limit: Cursor, width: int, what: object) -> npt.NDArray[np.int64]:
    """Return the i32 count at each cursor. That many elements of at least ``width`` bytes must fit before the limit.

    Raise CorruptStateError (``truncated-value``, ``bad-length``)."""
    require(cursor, 4, limit, what)
    counts = read_unsigned(data, cursor, 4, "i4").astype(np.int64)
    refuse(counts < 0, counts, what, "a count of 0 or more", "bad-length")
    require(cursor + 4, counts * width, limit, what)
    return counts


def spread(rows: Ragged, valid: npt.NDArray[np.bool_]) -> Ragged:
    """Return one row per element of ``valid``: the next of ``rows`` if it is true, else a row without bytes."""
    if valid.all():
        return rows
    lengths = np.zeros(len(valid), np.int64)
    lengths[valid] = rows.lengths
    return Ragged(rows.data[rows.offsets[0] :], offsets_of(lengths))
