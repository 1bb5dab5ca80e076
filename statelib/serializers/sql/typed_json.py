"""SQL's internal values of :mod:`statelib.serializers.typed_json`: little-endian binary rows, arrays and maps.

Source: docs/spec/formats.md#sql-types, #binary-rows.
"""

import struct
from typing import Any

from statelib.errors import CorruptStateError
from statelib.model.sql import ROWS, LogicalType
from statelib.serializers.scalars.big_numbers import decimal_json
from statelib.serializers.scalars.numbers import float_json
from statelib.serializers.temporal.datetimes import datetime_json
from statelib.wire.reader import Reader

Json = dict[str, Any]
_NULL: Json = {"type": "null"}
_KINDS = ("+I", "-U", "+U", "-D")
_FIXED = {
    "BOOLEAN": ("?", "boolean"), "TINYINT": ("b", "byte"), "SMALLINT": ("h", "short"), "INTEGER": ("i", "int"),
    "DATE": ("i", "int"), "TIME_WITHOUT_TIME_ZONE": ("i", "int"), "INTERVAL_YEAR_MONTH": ("i", "int"),
    "BIGINT": ("q", "long"), "INTERVAL_DAY_TIME": ("q", "long"), "FLOAT": ("f", "float"), "DOUBLE": ("d", "double"),
}  # fmt: skip
"""Layout of a slot, and the type of the Java value in it."""
_TEXTS, _BYTES = ("CHAR", "VARCHAR"), ("BINARY", "VARBINARY")
_TIMESTAMPS = ("TIMESTAMP_WITHOUT_TIME_ZONE", "TIMESTAMP_WITH_LOCAL_TIME_ZONE")
_COMPACT_DECIMAL, _COMPACT_TIMESTAMP = 18, 3
_INLINE = 0x80


def read_sql(type_: LogicalType, reader: Reader) -> Json:
    """One value of a logical type as its serializer writes it outside of a row."""
    root, parameters = type_.root, type_.parameters
    if root in _TEXTS:
        return _text(reader.take(reader.count()), reader.what)
    if root in _BYTES:
        return {"type": "bytes", "hex": bytes(reader.take(reader.count())).hex()}
    if root == "DECIMAL":
        raw = reader.take(8 if parameters[0] <= _COMPACT_DECIMAL else reader.count())
        return decimal_json(int.from_bytes(raw, "big", signed=True), parameters[1])
    if root in _TIMESTAMPS:
        return datetime_json(reader.i64(), reader.i32() if parameters[0] > _COMPACT_TIMESTAMP else 0)
    if root in _FIXED:
        layout, name = _FIXED[root]
        return _scalar(name, ">" + layout, bytes(reader.take(struct.calcsize(layout))))
    return _composite(type_, memoryview(reader.take(reader.count())), reader.what)


def _composite(type_: LogicalType, data: memoryview, what: str) -> Json:
    if type_.root in ROWS:
        return _row(type_, data, what)
    if type_.root == "RAW":
        return {"type": "raw", "class": type_.variant, "hex": bytes(data).hex()}
    if type_.root == "ARRAY":
        return {"type": "list", "v": _array(type_.parts[0].type, data, what)}
    size = int.from_bytes(_span(data, 0, 4, what), "little")
    value = type_.parts[1].type if type_.root == "MAP" else LogicalType("INTEGER")
    keys = _array(type_.parts[0].type, _span(data, 4, size, what), what)
    values = _array(value, _span(data, 4 + size, len(data) - 4 - size, what), what)
    if len(keys) != len(values):
        raise CorruptStateError(f"{what}: {len(keys)} keys of a map with {len(values)} values", kind="bad-binary-row")
    return {"type": "map", "v": [list(pair) for pair in zip(keys, values, strict=True)]}


def _span(data: memoryview, start: int, size: int, what: str) -> memoryview:
    if start < 0 or size < 0 or start + size > len(data):
        raise CorruptStateError(
            f"{what}: expected {size} bytes at byte {start} of a binary row, found {len(data)} in all",
            kind="bad-binary-row",
        )
    return data[start : start + size]


class _Region:
    """The bytes of a row or an array, of which what its slots refer to are separate parts: otherwise a short row
    could stand for endlessly many values."""

    def __init__(self, data: memoryview, what: str) -> None:
        self.data = data
        self.what = what
        self._left = len(data)

    def part(self, start: int, size: int) -> memoryview:
        self._left -= size
        if self._left < 0:
            raise CorruptStateError(
                f"{self.what}: values of more than the {len(self.data)} bytes of their binary row",
                kind="bad-binary-row",
            )
        return _span(self.data, start, size, self.what)


def _row(type_: LogicalType, data: memoryview, what: str) -> Json:
    """A byte of kind and the null bits, low bit first, then a slot of eight bytes a field."""
    fields = type_.parts
    bits = (len(fields) + 63 + 8) // 64 * 8
    head = int.from_bytes(_span(data, 0, bits, what), "little")
    if head & 0xFF >= len(_KINDS):
        raise CorruptStateError(f"{what}: expected a RowKind of 0 to 3, found {head & 0xFF}", kind="bad-binary-row")
    region = _Region(data, what)
    values = [
        _NULL if head >> (8 + i) & 1 else _slot(field.type, region, bits + 8 * i) for i, field in enumerate(fields)
    ]
    return {"type": "rowdata", "kind": _KINDS[head & 0xFF], "v": values}


def _array(element: LogicalType, data: memoryview, what: str) -> list[Json]:
    count = int.from_bytes(_span(data, 0, 4, what), "little")
    start = 4 + (count + 31) // 32 * 4
    nulls = int.from_bytes(_span(data, 4, start - 4, what), "little")
    width = struct.calcsize(_FIXED[element.root][0]) if element.root in _FIXED else 8
    _span(data, start, count * width, what)
    region = _Region(data, what)
    return [_NULL if nulls >> i & 1 else _slot(element, region, start + width * i) for i in range(count)]


def _slot(type_: LogicalType, region: _Region, at: int) -> Json:  # noqa: PLR0911 - one a kind of slot
    """The value of the slot at ``at``: itself, or where in the row it lies."""
    root, parameters, data, what = type_.root, type_.parameters, region.data, region.what
    if root in _FIXED:
        layout, name = _FIXED[root]
        raw = bytes(_span(data, at, struct.calcsize(layout), what))
        return _scalar(name, ">" + layout, raw[::-1])
    slot = bytes(_span(data, at, 8, what))
    low, high = struct.unpack("<II", slot)
    if root == "DECIMAL":
        if parameters[0] <= _COMPACT_DECIMAL:
            return decimal_json(int.from_bytes(slot, "little", signed=True), parameters[1])
        return decimal_json(int.from_bytes(region.part(high, low), "big", signed=True), parameters[1])
    if root in _TIMESTAMPS:
        if parameters[0] <= _COMPACT_TIMESTAMP:
            return datetime_json(int.from_bytes(slot, "little", signed=True), 0)
        return datetime_json(int.from_bytes(region.part(high, 8), "little", signed=True), low)
    if root in (*_TEXTS, *_BYTES):
        short = slot[7] & _INLINE
        raw = bytes(_span(memoryview(slot)[:7], 0, slot[7] & 0x7F, what)) if short else bytes(region.part(high, low))
        return _text(raw, what) if root in _TEXTS else {"type": "bytes", "hex": raw.hex()}
    return _composite(type_, region.part(high, low), what)


def _scalar(name: str, layout: str, raw: bytes) -> Json:
    if name in ("float", "double"):
        return float_json(layout, raw)
    (value,) = struct.unpack(layout, raw)
    return {"type": name, "v": value}


def _text(raw: bytes | memoryview, what: str) -> Json:
    try:
        return {"type": "string", "v": str(raw, "utf-8")}
    except UnicodeDecodeError as error:
        raise CorruptStateError(
            f"{what}: expected UTF-8, found byte {error.start} of none", kind="bad-string"
        ) from error
