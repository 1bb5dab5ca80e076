"""A value that expires: the time of its last access as a long, then the value.

Source: docs/spec/formats.md#time-to-live, #containers (TtlStateFactory.TtlSerializer).
"""

from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from statelib.model.types import LONG, StateType, Ttl
from statelib.serializers.aspects.json_values import Json, ReadJson
from statelib.serializers.aspects.plain_hashing import NO_PLAIN_HASH
from statelib.serializers.aspects.snapshot_payloads import (
    SnapshotPayload,
    SnapshotSupport,
    WriteType,
    unknown_serializer,
    write_composite,
)
from statelib.serializers.aspects.steps import Step, StepsOf
from statelib.serializers.aspects.type_support import TypeSupport
from statelib.serializers.columns.arrow import nested_column
from statelib.serializers.columns.codec import Codec, Cursor
from statelib.serializers.columns.cursors import require
from statelib.serializers.columns.unkeyed import Unkeyed
from statelib.serializers.scalars.numbers import LONG_CODEC
from statelib.wire.ragged import Bytes, Ragged, join
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

TIMESTAMP, VALUE = "last_access_ms", "value"
"""The fields of the Arrow struct. The time is in milliseconds since 1970-01-01."""
TIMESTAMP_BYTES = 8
_CLASS, _OWN_VERSION = "org.apache.flink.runtime.state.ttl.TtlStateFactory$TtlSerializerSnapshot", 2
_CLASS_V2 = "org.apache.flink.runtime.state.v2.ttl.TtlStateFactory$TtlSerializerSnapshot"


@dataclass(frozen=True)
class TtlCodec(Unkeyed):
    """The codec of a long and a value, of which neither is null."""

    type: Ttl
    value: Codec

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.struct([pa.field(TIMESTAMP, pa.int64()), pa.field(VALUE, self.value.arrow_type)])

    @property
    def width(self) -> int:
        return TIMESTAMP_BYTES + self.value.width if self.value.width > 0 else -1

    @property
    def reported_length(self) -> int:
        return TIMESTAMP_BYTES + self.value.reported_length if self.value.reported_length > 0 else -1

    def encode(self, values: pa.Array) -> Ragged:
        values = nested_column(values, self.arrow_type, self.type)
        return join([LONG_CODEC.encode(values.field(0)), self.value.encode(values.field(1))])

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        timestamps, at = LONG_CODEC.decode(data, cursor, limit)
        values, end = self.value.decode(data, at, limit)
        return pa.StructArray.from_arrays([timestamps, values], fields=list(self.arrow_type)), end

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        require(cursor, TIMESTAMP_BYTES, limit, self.type)
        return self.value.skip(data, cursor + TIMESTAMP_BYTES, limit)

    def steps(self, steps_of: StepsOf) -> list[Step]:
        return [TIMESTAMP_BYTES, *steps_of(self.value)]


def _read_json(value: ReadJson, reader: Reader) -> Json:
    """Read the value. Its JSON does not show the time of its last access."""
    reader.i64()
    return value(reader)


def _read_snapshot(payload: SnapshotPayload) -> StateType:
    payload.begin_composite(_OWN_VERSION)
    timestamp, value = payload.nested(2)
    if timestamp != LONG:
        raise unknown_serializer(payload.reader, "a long in front of a value that expires", str(timestamp))
    return Ttl(value)


def _write_snapshot(writer: Writer, type_: Ttl, write_type: WriteType) -> None:
    write_composite(writer, _CLASS, _OWN_VERSION, [LONG, type_.value], write_type)


TTL = TypeSupport(
    of=Ttl,
    codec=lambda type_, codec_of: TtlCodec(type_, codec_of(type_.value)),
    json_reader=lambda type_, reader_of: partial(_read_json, reader_of(type_.value)),
    snapshot=SnapshotSupport(_write_snapshot, readers={_CLASS: _read_snapshot, _CLASS_V2: _read_snapshot}),
    plain_hash=NO_PLAIN_HASH,
    last_parts=lambda type_: (type_.value,),
)
