"""Writing binary rows, arrays and maps: slots of fixed width, and behind them what does not fit into one.

Source: docs/spec/formats.md#binary-rows.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.model.sql import ROWS, LogicalType
from statelib.model.types import Sql
from statelib.serializers.columns.arrow import (
    byte_rows,
    list_bounds,
    nested_column,
    numbers,
    present,
    scalar_column,
    struct_fields,
)
from statelib.serializers.columns.codec import Cursor
from statelib.serializers.columns.cursors import spread
from statelib.serializers.columns.elements import strided
from statelib.serializers.sql.slots import (
    BINARIES,
    COMPACT_DECIMAL,
    COMPACT_TIMESTAMP,
    DECIMAL_BYTES,
    FIXED,
    TEXTS,
    ZONES,
    arrow_of,
    null_bits_bytes,
)
from statelib.serializers.sql.snapshots import MULTIPLICITY
from statelib.wire.ragged import Bytes, Offsets, Ragged, from_fixed, join, offsets_of

_INLINE_BYTES = 7
_Written = tuple[Bytes, Ragged]
"""Slots of values without nulls, a matrix (rows, 8), and the bytes behind the slots. A slot refers to them as if they
began where its row or array does: :func:`_moved` says where they do."""


def _write_rows(type_: LogicalType, values: pa.Array) -> Ragged:
    """The bytes of each row, without its size."""
    columns = struct_fields(values, arrow_of(type_), Sql(type_))
    head = null_bits_bytes(len(type_.parts))
    table = np.zeros((len(values), head + 8 * len(type_.parts)), np.uint8)
    ends = np.full(len(values), table.shape[1], np.int64)
    outside: list[Ragged] = []
    for i, field in enumerate(type_.parts):
        kept, valid = present(columns[i])
        byte, bit = divmod(8 + i, 8)
        table[~valid, byte] |= np.uint8(1 << bit)
        slots, more = write_slots(field.type, kept)
        table[valid, head + 8 * i : head + 8 * i + 8] = _moved(slots, more.lengths, ends[valid])
        outside.append(spread(more, valid))
        ends += outside[-1].lengths
    return join([from_fixed(table), *outside])


def write_spans(type_: LogicalType, values: pa.Array) -> Ragged:
    """The bytes of each row, array or map, without its size."""
    return _PARTS[type_.root](type_, values)


def write_slots(type_: LogicalType, values: pa.Array) -> _Written:
    """The slots of values of which none is null."""
    root = type_.root
    if root == "BOOLEAN":
        return _alone(numbers(scalar_column(values, pa.bool_(), Sql(type_)).cast(pa.uint8()), "u1"))
    if root in FIXED:
        layout, arrow = FIXED[root]
        return _alone(numbers(scalar_column(values, arrow, Sql(type_)), layout))
    if root in (*TEXTS, *BINARIES):
        return _write_bytes(byte_rows(scalar_column(values, arrow_of(type_), Sql(type_))))
    if root == "DECIMAL":
        return _write_decimals(type_, values)
    if root in ZONES:
        return _write_timestamps(type_, values)
    rows = write_spans(type_, values)
    return _padded(rows.lengths), _filled(rows)


def _arrays(type_: LogicalType, values: pa.Array) -> Ragged:
    values = nested_column(values, arrow_of(type_), Sql(type_))
    bounds = list_bounds(values)
    return _write_arrays(type_.parts[0].type, values.values.slice(bounds[0], bounds[-1] - bounds[0]), bounds)


def _maps(type_: LogicalType, values: pa.Array) -> Ragged:
    """The size of the array of keys, that array, and the array of values; a MULTISET's are how often each is there."""
    values = nested_column(values, arrow_of(type_), Sql(type_))
    bounds = list_bounds(values)
    first, size = bounds[0], bounds[-1] - bounds[0]
    value = type_.parts[1].type if type_.root == "MAP" else MULTIPLICITY
    keys = _write_arrays(type_.parts[0].type, values.keys.slice(first, size), bounds)
    items = _write_arrays(value, values.items.slice(first, size), bounds)
    return join([from_fixed(_little(keys.lengths.astype("<i4"))), keys, items])


def _raw(type_: LogicalType, values: pa.Array) -> Ragged:
    return byte_rows(scalar_column(values, arrow_of(type_), Sql(type_)))


_PARTS: dict[str, Callable[[LogicalType, pa.Array], Ragged]] = {
    **dict.fromkeys(ROWS, _write_rows), "ARRAY": _arrays, "RAW": _raw, "MAP": _maps, "MULTISET": _maps,
}  # fmt: skip


def _write_arrays(element: LogicalType, elements: pa.Array, bounds: Offsets) -> Ragged:
    """One array a row, of the row's share of all elements: count, null bits, slots as wide as the type, the rest."""
    offsets, counts = bounds - bounds[0], np.diff(bounds)
    kept, valid = present(elements)
    slots, more = write_slots(element, kept)
    more = spread(more, valid)
    width = (
        np.dtype(FIXED[element.root][0]).itemsize if element.root in FIXED else 1 if element.root == "BOOLEAN" else 8
    )
    heads = 4 + (counts + 31) // 32 * 4
    sizes = (heads + counts * width + 7) // 8 * 8
    starts, owners = offsets_of(sizes), np.repeat(np.arange(len(counts)), counts)
    behind = more.offsets - more.offsets[0]
    ends = sizes[owners] + behind[:-1] - behind[offsets[owners]]
    fixed = np.zeros(int(starts[-1]), np.uint8)
    fixed[starts[:-1, None] + np.arange(4)] = _little(counts.astype("<i4"))
    at = strided(starts[:-1] + heads, counts, width)
    fixed[at[valid, None] + np.arange(width)] = _moved(slots, more.lengths[valid], ends[valid])[:, :width]
    index = np.flatnonzero(~valid) - offsets[owners[~valid]]
    bits = np.left_shift(1, index % 8).astype(np.uint8)
    np.bitwise_or.at(fixed, starts[owners[~valid]] + 4 + index // 8, bits)
    return join([Ragged(fixed, starts), Ragged(more.data, more.offsets[offsets])])


def _moved(slots: Bytes, lengths: Offsets, ends: Cursor) -> Bytes:
    """The slots, of which those with bytes behind them, ``lengths``, refer to where these begin: ``ends``."""
    moved = slots.view("<u8").reshape(-1) + np.where(lengths > 0, ends, 0).astype(np.uint64) * np.uint64(1 << 32)
    return _little(moved.astype("<u8"))


def _alone(column: npt.NDArray[np.generic]) -> _Written:
    return _padded(column), Ragged(np.empty(0, np.uint8), np.zeros(len(column) + 1, np.int64))


def _padded(slots: npt.NDArray[np.generic]) -> Bytes:
    table = np.zeros((len(slots), 8), np.uint8)
    table[:, : slots.dtype.itemsize] = _little(slots)
    return table


def _little(slots: npt.NDArray[np.generic]) -> Bytes:
    raw = np.ascontiguousarray(slots.astype(slots.dtype.newbyteorder("<"))).view(np.uint8)
    return raw.reshape(len(slots), slots.dtype.itemsize)


def _filled(rows: Ragged) -> Ragged:
    """Each with zeros up to a multiple of eight bytes."""
    zeros = -rows.lengths % 8
    return join([rows, Ragged(np.zeros(int(zeros.sum()), np.uint8), offsets_of(zeros))])


def _write_bytes(rows: Ragged) -> _Written:
    short = rows.lengths <= _INLINE_BYTES
    slots = _padded(rows.lengths)
    inline = rows.take(np.flatnonzero(short))
    table = np.zeros((len(inline), 8), np.uint8)
    owners = np.repeat(np.arange(len(inline)), inline.lengths)
    table[owners, np.arange(len(owners)) - inline.offsets[owners]] = inline.data
    table[:, 7] = 0x80 | inline.lengths
    slots[short] = table
    return slots, spread(_filled(rows.take(np.flatnonzero(~short))), ~short)


def _write_decimals(type_: LogicalType, values: pa.Array) -> _Written:
    column = values.cast(arrow_of(type_))
    words = np.frombuffer(column.buffers()[1] or b"", np.uint8)[16 * column.offset :][: 16 * len(column)].reshape(
        -1, 16
    )
    if type_.parameters[0] <= COMPACT_DECIMAL:
        return _alone(np.ascontiguousarray(words[:, :8]).view("<i8").reshape(-1))
    big = words[:, ::-1]
    # as short as two's complement can be: a leading byte goes where it only repeats the sign of the next
    extra = (big[:, :-1] == np.where(big[:, 1:] >= 0x80, 0xFF, 0)).cumprod(axis=1).sum(axis=1)
    sizes = DECIMAL_BYTES - extra
    table = np.zeros((len(big), DECIMAL_BYTES), np.uint8)
    for size in np.unique(sizes).tolist():
        rows = np.flatnonzero(sizes == size)
        table[rows, :size] = big[rows, DECIMAL_BYTES - size :]
    return _padded(sizes.astype(np.int64)), from_fixed(table)


def _write_timestamps(type_: LogicalType, values: pa.Array) -> _Written:
    ticks = numbers(scalar_column(values, arrow_of(type_), Sql(type_)), "i8").astype(np.int64)
    if type_.parameters[0] <= COMPACT_TIMESTAMP:
        return _alone(ticks)
    return _padded(ticks % 1_000_000), from_fixed(_padded(ticks // 1_000_000))
