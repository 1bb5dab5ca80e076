"""CHAR and VARCHAR, BINARY and VARBINARY. Up to seven bytes lie in the slot itself, more lie after the slots.

Outside of rows, an i32 size and the bytes. Texts are UTF-8.

Source: docs/spec/formats.md#sql-types, #binary-rows.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statelib.errors import CorruptStateError
from statelib.model.sql import LogicalType
from statelib.model.types import Sql, StateType
from statelib.serializers.aspects.json_values import Json
from statelib.serializers.columns.arrow import byte_array, byte_rows, scalar_column
from statelib.serializers.columns.codec import Codec, Cursor
from statelib.serializers.columns.cursors import refuse, spread
from statelib.serializers.scalars.byte_arrays import BytesCodec, read_bytes
from statelib.serializers.sql.values.json_slots import Region
from statelib.serializers.sql.values.logical_support import LogicalSupport, LogicalTypes, eight_bytes
from statelib.serializers.sql.values.slots import SLOT_BYTES, Spans, Written, filled, padded
from statelib.wire.ragged import Bytes, gather
from statelib.wire.reader import Reader

_TEXTS, _BINARIES = ("CHAR", "VARCHAR"), ("BINARY", "VARBINARY")
_INLINE_BYTES, _INLINE_FLAG = 7, 0x80
"""The most bytes in a slot, and the bit of its last byte that marks such a slot. The other bits are the size."""


@dataclass(frozen=True)
class SqlTextCodec(BytesCodec):
    """The codec of texts outside of rows."""

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        values, end = super().decode(data, cursor, limit)
        return _checked_texts(values, self.type), end


def _arrow_type(type_: LogicalType, _types: LogicalTypes) -> pa.DataType:
    return pa.string() if type_.root in _TEXTS else pa.binary()


def _codec(type_: Sql, types: LogicalTypes) -> Codec:
    if type_.type.root in _TEXTS:
        return SqlTextCodec(type_, types.arrow_of(type_.type))
    return BytesCodec(type_)


def _checked_texts(values: pa.Array, what: StateType) -> pa.Array:
    """Return ``values`` if they are UTF-8. Raise CorruptStateError (``bad-string``) if not."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CorruptStateError(f"{what}: expected UTF-8: {error}", kind="bad-string") from error
    return values


def _read_slots(type_: LogicalType, spans: Spans, at: Cursor, types: LogicalTypes) -> pa.Array:
    spans.check(at, SLOT_BYTES, type_)
    last = spans.data[at + _INLINE_BYTES]
    inside = last >= _INLINE_FLAG
    start, size = at.copy(), (last & 0x7F).astype(np.int64)
    refuse(inside & (size > _INLINE_BYTES), size, Sql(type_), "at most 7 bytes within the slot", "bad-binary-row")
    begin, end = spans.take(~inside).outside(at[~inside], type_)
    start[~inside], size[~inside] = begin, end - begin
    values = byte_array(gather(spans.data, start, size), types.arrow_of(type_))
    return _checked_texts(values, Sql(type_)) if type_.root in _TEXTS else values


def _write_slots(type_: LogicalType, values: pa.Array, types: LogicalTypes) -> Written:
    rows = byte_rows(scalar_column(values, types.arrow_of(type_), Sql(type_)))
    short = rows.lengths <= _INLINE_BYTES
    slots = padded(rows.lengths)
    inline = rows.take(np.flatnonzero(short))
    table = np.zeros((len(inline), SLOT_BYTES), np.uint8)
    owners = np.repeat(np.arange(len(inline)), inline.lengths)
    table[owners, np.arange(len(owners)) - inline.offsets[owners]] = inline.data
    table[:, _INLINE_BYTES] = _INLINE_FLAG | inline.lengths
    slots[short] = table
    return slots, spread(filled(rows.take(np.flatnonzero(~short))), ~short)


def _slot_json(type_: LogicalType, region: Region, at: int, _types: LogicalTypes) -> Json:
    slot, size, start = region.slot(at)
    if slot[_INLINE_BYTES] & _INLINE_FLAG:
        inline = Region(memoryview(slot)[:_INLINE_BYTES], region.what)
        raw = bytes(inline.bytes_at(0, slot[_INLINE_BYTES] & 0x7F))
    else:
        raw = bytes(region.part(start, size))
    return _text_json(raw, region.what) if type_.root in _TEXTS else {"type": "bytes", "hex": raw.hex()}


def _read_json(type_: LogicalType, reader: Reader, _types: LogicalTypes) -> Json:
    if type_.root in _TEXTS:
        return _text_json(bytes(reader.take(reader.count())), reader.what)
    return read_bytes(reader)


def _text_json(raw: bytes, what: str) -> Json:
    try:
        return {"type": "string", "v": str(raw, "utf-8")}
    except UnicodeDecodeError as error:
        raise CorruptStateError(
            f"{what}: expected UTF-8, found another byte at index {error.start}", kind="bad-string"
        ) from error


TEXTS = LogicalSupport(
    (*_TEXTS, *_BINARIES), _arrow_type, eight_bytes, _read_slots, _write_slots, _slot_json, _codec, _read_json
)
