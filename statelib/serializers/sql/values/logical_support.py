"""The port of a logical type: what each family of them provides for its values.

Source: docs/spec/formats.md#sql-types, #binary-rows.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from statelib.errors import UnsupportedError
from statelib.model.sql import LogicalType
from statelib.model.types import Sql
from statelib.serializers.aspects.json_values import Json
from statelib.serializers.columns.arrow import with_nulls
from statelib.serializers.columns.codec import Codec, Cursor
from statelib.serializers.sql.values.json_slots import Region
from statelib.serializers.sql.values.slots import SLOT_BYTES, Spans, Valid, Written, filled, padded
from statelib.wire.ragged import Ragged
from statelib.wire.reader import Reader

ArrowType = Callable[[LogicalType, "LogicalTypes"], pa.DataType]
ReadSpans = Callable[[LogicalType, Spans, "LogicalTypes"], pa.Array]
WriteSpans = Callable[[LogicalType, pa.Array, "LogicalTypes"], Ragged]
SpanJson = Callable[[LogicalType, Region, "LogicalTypes"], Json]
MakeCodec = Callable[[Sql, "LogicalTypes"], Codec]


@dataclass(frozen=True)
class LogicalSupport:
    """All aspects of the values of a family of logical types.

    ``roots``: the names of the types. ``arrow_type``: the type of a column of values. ``slot_bytes``: the size of a
    slot in an array; in a row all slots have eight bytes. ``read_slots`` and ``write_slots``: from slots to columns and
    back. ``slot_json``: the typed JSON of one slot.
    ``codec`` and ``read_json``: for values outside of rows, such as the elements that an aggregate collects.
    ``reserved_bytes``: the size of what lies after the slots of a key for a null."""

    roots: tuple[str, ...]
    arrow_type: ArrowType
    slot_bytes: Callable[[LogicalType], int]
    read_slots: Callable[[LogicalType, Spans, Cursor, "LogicalTypes"], pa.Array]
    write_slots: Callable[[LogicalType, pa.Array, "LogicalTypes"], Written]
    slot_json: Callable[[LogicalType, Region, int, "LogicalTypes"], Json]
    codec: MakeCodec
    read_json: Callable[[LogicalType, Reader, "LogicalTypes"], Json]
    reserved_bytes: Callable[[LogicalType], int] = lambda _type: 0


class LogicalTypes:
    """The support of all logical types. A type with parts uses it to handle its parts."""

    def __init__(self, supports: Iterable[LogicalSupport]) -> None:
        self._by_root = {root: support for support in supports for root in support.roots}

    def of(self, type_: LogicalType) -> LogicalSupport:
        """Return the support of a type."""
        return self._by_root[type_.root]

    def arrow_of(self, type_: LogicalType) -> pa.DataType:
        """Return the type of a column of values."""
        return self.of(type_).arrow_type(type_, self)

    def read_slots(self, type_: LogicalType, spans: Spans, at: Cursor, valid: Valid) -> pa.Array:
        """Return the values whose slots lie at ``at``, with nulls for those that are not ``valid``."""
        return with_nulls(self.of(type_).read_slots(type_, spans.take(valid), at[valid], self), valid)

    def write_slots(self, type_: LogicalType, values: pa.Array) -> Written:
        """Return the slots of values of which none is null."""
        return self.of(type_).write_slots(type_, values, self)


def eight_bytes(_type: LogicalType) -> int:
    """Return the size of a slot whose type has no width of its own."""
    return SLOT_BYTES


def no_columns(type_: Sql, _types: LogicalTypes) -> Codec:
    """Raise UnsupportedError (``no-columns``): outside of rows there is no codec for the type."""
    raise UnsupportedError(
        f"type {type_}: statelib has columns of it within rows only",
        kind="no-columns",
        hint="statelib export --format typed-jsonl shows every value",
    )


def span_support(
    *roots: str, arrow_type: ArrowType, read: ReadSpans, write: WriteSpans, span_json: SpanJson, codec: MakeCodec
) -> LogicalSupport:
    """Return the support of types whose slots always refer to bytes after the slots. The functions handle the bytes of
    whole values."""

    def read_slots(type_: LogicalType, spans: Spans, at: Cursor, types: LogicalTypes) -> pa.Array:
        return read(type_, Spans(spans.data, *spans.outside(at, type_)), types)

    def write_slots(type_: LogicalType, values: pa.Array, types: LogicalTypes) -> Written:
        rows = write(type_, values, types)
        return padded(rows.lengths), filled(rows)

    def slot_json(type_: LogicalType, region: Region, at: int, types: LogicalTypes) -> Json:
        _, size, start = region.slot(at)
        return span_json(type_, Region(region.part(start, size), region.what), types)

    def read_json(type_: LogicalType, reader: Reader, types: LogicalTypes) -> Json:
        return span_json(type_, Region(memoryview(reader.take(reader.count())), reader.what), types)

    return LogicalSupport(roots, arrow_type, eight_bytes, read_slots, write_slots, slot_json, codec, read_json)
