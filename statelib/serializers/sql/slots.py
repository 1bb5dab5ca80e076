"""Reading the slots of binary rows and arrays: where a value lies, and what column it becomes.

Source: docs/spec/formats.md#binary-rows.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.model.sql import ROWS, LogicalType
from statelib.model.types import Sql, StateType
from statelib.serializers.columns.arrow import (
    byte_array,
    map_column,
    number_array,
    small_offsets,
    struct_column,
    with_nulls,
)
from statelib.serializers.columns.codec import Cursor
from statelib.serializers.columns.cursors import refuse
from statelib.serializers.columns.elements import strided
from statelib.serializers.sql.snapshots import MULTIPLICITY
from statelib.wire.ragged import Bytes, gather, offsets_of

FIXED: dict[str, tuple[str, pa.DataType]] = {
    "TINYINT": ("<i1", pa.int8()), "SMALLINT": ("<i2", pa.int16()), "INTEGER": ("<i4", pa.int32()),
    "BIGINT": ("<i8", pa.int64()), "FLOAT": ("<f4", pa.float32()), "DOUBLE": ("<f8", pa.float64()),
    "DATE": ("<i4", pa.date32()), "TIME_WITHOUT_TIME_ZONE": ("<i4", pa.time32("ms")),
    "INTERVAL_YEAR_MONTH": ("<i4", pa.int32()), "INTERVAL_DAY_TIME": ("<i8", pa.duration("ms")),
}  # fmt: skip
"""How a number lies in its slot, and the column it becomes."""
TEXTS, BINARIES = ("CHAR", "VARCHAR"), ("BINARY", "VARBINARY")
ZONES = {"TIMESTAMP_WITHOUT_TIME_ZONE": None, "TIMESTAMP_WITH_LOCAL_TIME_ZONE": "UTC"}
COMPACT_DECIMAL, COMPACT_TIMESTAMP, DECIMAL_BYTES = 18, 3, 16
_KIND_BITS = 8

Valid = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Spans:
    """One stretch of bytes a row: ``data[start:end]``; offsets within it count from ``start``."""

    data: Bytes
    start: Cursor
    end: Cursor

    def take(self, rows: npt.NDArray[np.generic]) -> "Spans":
        return Spans(self.data, self.start[rows], self.end[rows])

    def check(self, at: Cursor, size: Cursor | int, what: LogicalType) -> None:
        """Raise CorruptStateError (``bad-binary-row``) unless ``size`` bytes at ``at`` are within."""
        bad = (at < self.start) | (np.asarray(size) < 0) | (at + size > self.end)
        if bad.any():
            row = int(np.argmax(bad))
            raise CorruptStateError(
                f"{Sql(what)} in row {row}: expected a value within {self.end[row] - self.start[row]} bytes, "
                f"found one at byte {at[row] - self.start[row]}",
                kind="bad-binary-row",
            )

    def slots(self, at: Cursor, dtype: str, what: LogicalType) -> npt.NDArray[np.generic]:
        """The little-endian number at each place."""
        width = np.dtype(dtype).itemsize
        self.check(at, width, what)
        return np.ascontiguousarray(self.data[at[:, None] + np.arange(width)]).view(dtype).reshape(-1)


def arrow_of(type_: LogicalType) -> pa.DataType:
    """The column that a logical type becomes."""
    return FIXED[type_.root][1] if type_.root in FIXED else _ARROW[type_.root](type_)


def _timestamp_column(type_: LogicalType) -> pa.DataType:
    return pa.timestamp("ms" if type_.parameters[0] <= COMPACT_TIMESTAMP else "ns", ZONES[type_.root])


_ARROW: dict[str, Callable[[LogicalType], pa.DataType]] = {
    "BOOLEAN": lambda _: pa.bool_(),
    **dict.fromkeys(TEXTS, lambda _: pa.string()),
    **dict.fromkeys(BINARIES, lambda _: pa.binary()),
    **dict.fromkeys(ZONES, _timestamp_column),
    "DECIMAL": lambda t: pa.decimal128(*t.parameters),
    "ARRAY": lambda t: pa.list_(arrow_of(t.parts[0].type)),
    "MAP": lambda t: pa.map_(*(arrow_of(part.type) for part in t.parts)),
    "MULTISET": lambda t: pa.map_(arrow_of(t.parts[0].type), arrow_of(MULTIPLICITY)),
    **dict.fromkeys(ROWS, lambda t: pa.struct([pa.field(part.name, arrow_of(part.type)) for part in t.parts])),
    "RAW": lambda _: pa.binary(),
}


def _read_slots(type_: LogicalType, spans: Spans, at: Cursor, valid: Valid) -> pa.Array:
    """The values whose slots lie at ``at``, null where not ``valid``."""
    return with_nulls(_read(type_, spans.take(valid), at[valid]), valid)


def _read(type_: LogicalType, spans: Spans, at: Cursor) -> pa.Array:
    root = type_.root
    if root in FIXED:
        layout, arrow = FIXED[root]
        return number_array(spans.slots(at, layout, type_), arrow)
    if root == "BOOLEAN":
        return pa.array(spans.slots(at, "u1", type_) != 0)
    if root == "DECIMAL":
        return _decimals(type_, spans, at)
    if root in ZONES:
        return _timestamps(type_, spans, at)
    if root in (*TEXTS, *BINARIES):
        return _bytes(type_, spans, at)
    return read_spans(type_, Spans(spans.data, *_outside(type_, spans, at)))


def _outside(type_: LogicalType, spans: Spans, at: Cursor) -> tuple[Cursor, Cursor]:
    """Start and end of what a slot refers to: offset above, length below."""
    slot = spans.slots(at, "<u8", type_).astype(np.uint64)
    start = spans.start + (slot >> np.uint64(32)).astype(np.int64)
    size = (slot & np.uint64(0xFFFFFFFF)).astype(np.int64)
    spans.check(start, size, type_)
    if int(size.sum()) > len(spans.data):  # values that share their bytes would make columns far larger than the file
        raise CorruptStateError(
            f"{Sql(type_)}: values of {size.sum()} bytes within {len(spans.data)}", kind="bad-binary-row"
        )
    return start, start + size


def _bytes(type_: LogicalType, spans: Spans, at: Cursor) -> pa.Array:
    """Up to seven bytes lie in the slot itself, whose last byte is then 0x80 and their number."""
    spans.check(at, 8, type_)
    last = spans.data[at + 7]
    inside = last >= 0x80
    start, size = at.copy(), (last & 0x7F).astype(np.int64)
    refuse(inside & (size > 7), size, Sql(type_), "at most 7 bytes within the slot", "bad-binary-row")
    begin, end = _outside(type_, spans.take(~inside), at[~inside])
    start[~inside], size[~inside] = begin, end - begin
    rows = gather(spans.data, start, size)
    values = byte_array(rows, arrow_of(type_))
    return checked_text(values, Sql(type_)) if type_.root in TEXTS else values


def checked_text(values: pa.Array, what: StateType) -> pa.Array:
    """``values`` once they are UTF-8."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CorruptStateError(f"{what}: expected UTF-8: {error}", kind="bad-string") from error
    return values


def _decimals(type_: LogicalType, spans: Spans, at: Cursor) -> pa.Array:
    if type_.parameters[0] <= COMPACT_DECIMAL:
        low = spans.slots(at, "<i8", type_).astype(np.int64)
        words = np.stack([low, low >> 63], axis=1)
        return _checked_decimals(type_, np.ascontiguousarray(words))
    return decimals_of(type_, spans.data, *_outside(type_, spans, at))


def decimals_of(type_: LogicalType, data: Bytes, start: Cursor, end: Cursor) -> pa.Array:
    """The big-endian unscaled numbers ``data[start:end]``."""
    refuse((end == start) | (end - start > DECIMAL_BYTES), end - start, Sql(type_), "1 to 16 bytes", "bad-binary-row")
    sign = np.where(data[start] >= 0x80, 0xFF, 0).astype(np.uint8)
    digits = np.repeat(sign, DECIMAL_BYTES).reshape(-1, DECIMAL_BYTES)
    for size in np.unique(end - start).tolist():
        rows = np.flatnonzero(end - start == size)
        digits[rows, :size] = data[start[rows, None] + np.arange(size)][:, ::-1]
    return _checked_decimals(type_, digits)


def _checked_decimals(type_: LogicalType, words: npt.NDArray[np.generic]) -> pa.Array:
    """Rows of 16 bytes as a column, once no number has more digits than the type."""
    values = pa.Array.from_buffers(arrow_of(type_), len(words), [None, pa.py_buffer(words)])
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CorruptStateError(f"{Sql(type_)}: {error}", kind="bad-binary-row") from error
    return values


def _timestamps(type_: LogicalType, spans: Spans, at: Cursor) -> pa.Array:
    if type_.parameters[0] <= COMPACT_TIMESTAMP:
        return number_array(spans.slots(at, "<i8", type_), arrow_of(type_))
    slot = spans.slots(at, "<u8", type_).astype(np.uint64)
    where = spans.start + (slot >> np.uint64(32)).astype(np.int64)
    millis = spans.slots(where, "<i8", type_).astype(np.int64)
    return timestamps_of(type_, millis, (slot & np.uint64(0xFFFFFFFF)).astype(np.int64))


def timestamps_of(type_: LogicalType, millis: npt.NDArray[np.int64], nanos: npt.NDArray[np.int64]) -> pa.Array:
    """Moments in ms, and the nanoseconds of the millisecond; a column in ms where the type is that coarse."""
    if type_.parameters[0] <= COMPACT_TIMESTAMP:
        return number_array(millis, arrow_of(type_))
    ticks = millis * 1_000_000 + nanos
    if (ticks // 1_000_000 != millis).any():
        raise UnsupportedError(f"{Sql(type_)}: outside the years that columns can hold", kind="time-out-of-range")
    return number_array(ticks, arrow_of(type_))


def read_spans(type_: LogicalType, spans: Spans) -> pa.Array:
    """One whole row, array, map or RAW value a span."""
    if type_.root in ROWS:
        return _rows(type_, spans)
    if type_.root == "RAW":
        return byte_array(gather(spans.data, spans.start, spans.end - spans.start), arrow_of(type_))
    if type_.root == "ARRAY":
        elements, offsets = _elements(type_.parts[0].type, spans)
        bounds = pa.array(small_offsets(offsets, Sql(type_)))
        return pa.ListArray.from_arrays(bounds, elements, type=arrow_of(type_))
    size = spans.slots(spans.start, "<i4", type_).astype(np.int64)
    middle = spans.start + 4 + size
    spans.check(spans.start + 4, size, type_)
    value = type_.parts[1].type if type_.root == "MAP" else MULTIPLICITY
    keys, offsets = _elements(type_.parts[0].type, Spans(spans.data, spans.start + 4, middle))
    items, others = _elements(value, Spans(spans.data, middle, spans.end))
    refuse(np.diff(offsets) != np.diff(others), np.diff(others), Sql(type_), "a value a key", "bad-binary-row")
    return map_column(offsets, keys, items, arrow_of(type_), Sql(type_))


def null_bits_bytes(fields: int) -> int:
    """Bytes in front of the first slot of a row: kind and null bits, in words of eight."""
    return (fields + 63 + _KIND_BITS) // 64 * 8


def _rows(type_: LogicalType, spans: Spans) -> pa.Array:
    head = null_bits_bytes(len(type_.parts))
    spans.check(spans.start, head + 8 * len(type_.parts), type_)
    kinds = np.flatnonzero(spans.data[spans.start])
    if len(kinds):
        found = int(spans.data[spans.start[kinds[0]]])
        raise UnsupportedError(
            f"{Sql(type_)} in row {kinds[0]}: expected RowKind INSERT (+I), found kind {found}",
            kind="row-kind",
            hint="statelib export --format typed-jsonl shows rows of every kind",
        )
    columns = []
    for i, part in enumerate(type_.parts):
        byte, bit = divmod(_KIND_BITS + i, 8)
        valid = (spans.data[spans.start + byte] >> bit & 1) == 0
        columns.append(_read_slots(part.type, spans, spans.start + head + 8 * i, valid))
    return struct_column(columns, arrow_of(type_), len(spans.start))


def _slot_bytes(element: LogicalType) -> int:
    """Of an element of an array; in rows all slots are of eight bytes."""
    return np.dtype(FIXED[element.root][0]).itemsize if element.root in FIXED else 1 if element.root == "BOOLEAN" else 8


def _elements(type_: LogicalType, spans: Spans) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """All elements of one array a span, and each span's share of them."""
    counts = spans.slots(spans.start, "<i4", type_).astype(np.int64)
    width = _slot_bytes(type_)
    first = spans.start + 4 + (counts + 31) // 32 * 4
    refuse(counts < 0, counts, Sql(type_), "a count of 0 or more", "bad-binary-row")
    spans.check(first, counts * width, type_)
    owners = np.repeat(np.arange(len(counts)), counts)
    index = np.arange(len(owners)) - offsets_of(counts)[owners]
    valid = (spans.data[spans.start[owners] + 4 + index // 8] >> (index % 8).astype(np.uint8) & 1) == 0
    return _read_slots(type_, spans.take(owners), strided(first, counts, width), valid), offsets_of(counts)
