"""Flink's TupleN: the fields one after the other, of which none is null.

Source: docs/spec/formats.md#containers, #rows, #hash-codes-of-keys.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from statelib.errors import UnsupportedError
from statelib.model.types import Tuple
from statelib.serializers.aspects.json_values import Json, ReaderOf, ReadJson
from statelib.serializers.aspects.plain_hashing import PlainHash, PlainHasher, combined
from statelib.serializers.aspects.snapshot_payloads import (
    RUNTIME,
    SnapshotPayload,
    SnapshotSupport,
    WriteType,
    bad_snapshot,
    name_bytes,
    unknown_serializer,
    write_composite,
)
from statelib.serializers.aspects.steps import Step, StepsOf
from statelib.serializers.aspects.type_support import CodecOf, TypeSupport, no_last_part, no_serializer
from statelib.serializers.columns.arrow import struct_fields
from statelib.serializers.columns.codec import Codec, Cursor, Hashes
from statelib.serializers.columns.cursors import require
from statelib.serializers.columns.java_hashes import Words, field_hash, nulls_to_zero, signed
from statelib.wire.ragged import Bytes, Ragged, join
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

MAX_TUPLE_FIELDS = 25
_CLASS, _OWN_VERSION = RUNTIME + "TupleSerializerSnapshot", 2
_TUPLE_CLASS = "org.apache.flink.api.java.tuple.Tuple"


@dataclass(frozen=True)
class TupleCodec:
    """The codec of a tuple: a struct of ``f0``, ``f1``, ..."""

    type: Tuple
    fields: tuple[Codec, ...]

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.struct([pa.field(f"f{i}", field.arrow_type) for i, field in enumerate(self.fields)])

    @property
    def width(self) -> int:
        widths = [field.width for field in self.fields]
        return sum(widths) if min(widths) > 0 else -1

    @property
    def reported_length(self) -> int:
        return self.width

    def encode(self, values: pa.Array) -> Ragged:
        columns = struct_fields(values, self.arrow_type, self.type)
        return join([field.encode(column) for field, column in zip(self.fields, columns, strict=True)])

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        columns = []
        for field in self.fields:
            column, cursor = field.decode(data, cursor, limit)
            columns.append(column)
        return pa.StructArray.from_arrays(columns, fields=list(self.arrow_type)), cursor

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        if self.width > 0:
            require(cursor, self.width, limit, self.type)
            return cursor + self.width
        for field in self.fields:
            cursor = field.skip(data, cursor, limit)
        return cursor

    def steps(self, steps_of: StepsOf) -> list[Step]:
        return [step for field in self.fields for step in steps_of(field)]

    def java_hash(self, values: pa.Array) -> Hashes:
        return signed(nulls_to_zero(self._hash, values))

    def deep_hash(self, values: pa.Array) -> Hashes:
        return field_hash(values, self.java_hash(values))

    def _hash(self, values: pa.Array) -> Hashes:
        columns = struct_fields(values, self.arrow_type, self.type)
        total: Words = np.zeros(len(values), np.uint32)
        for field, column in zip(self.fields, columns, strict=True):
            total = total * np.uint32(31) + field.java_hash(column).view(np.uint32)
        return signed(total)


def _codec(type_: Tuple, codec_of: CodecOf) -> Codec:
    if not 1 <= len(type_.fields) <= MAX_TUPLE_FIELDS:
        raise no_serializer(type_, f"a tuple has 1 to {MAX_TUPLE_FIELDS} fields; use a row for more")
    return TupleCodec(type_, tuple(map(codec_of, type_.fields)))


def _json_reader(type_: Tuple, reader_of: ReaderOf) -> ReadJson:
    return partial(_read_json, tuple(map(reader_of, type_.fields)))


def _read_json(fields: tuple[ReadJson, ...], reader: Reader) -> Json:
    return {"type": f"tuple{len(fields)}", "v": [field(reader) for field in fields]}


def _read_snapshot(payload: SnapshotPayload) -> Tuple:
    payload.begin_composite(_OWN_VERSION)
    reader = payload.reader
    name = reader.utf("tuple class")
    if not name.startswith(_TUPLE_CLASS):
        raise UnsupportedError(
            f"{reader.what}: tuple class {name[:200]!r} is not one of Flink's", kind="unknown-serializer"
        )
    fields = payload.nested()
    if not 1 <= len(fields) <= MAX_TUPLE_FIELDS:
        raise unknown_serializer(reader, f"a tuple of 1 to {MAX_TUPLE_FIELDS} fields", str(len(fields)))
    if name != f"{_TUPLE_CLASS}{len(fields)}":
        raise bad_snapshot(reader, f"the fields of {name}", str(len(fields)))
    return Tuple(tuple(fields))


def _write_snapshot(writer: Writer, type_: Tuple, write_type: WriteType) -> None:
    java_class = name_bytes(f"{_TUPLE_CLASS}{len(type_.fields)}")
    write_composite(writer, _CLASS, _OWN_VERSION, list(type_.fields), write_type, own_data=java_class)


def _plain_hash(type_: Tuple, value: Any, hasher: PlainHasher) -> int:
    first, *rest = [hasher.of_key(field, value[f"f{i}"]) for i, field in enumerate(type_.fields)]
    return combined(rest, first)


TUPLES = TypeSupport(
    of=Tuple,
    codec=_codec,
    json_reader=_json_reader,
    snapshot=SnapshotSupport(_write_snapshot, readers={_CLASS: _read_snapshot}),
    plain_hash=PlainHash(of_key=_plain_hash),
    last_parts=no_last_part,
)
