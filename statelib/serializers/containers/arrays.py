"""Java's arrays of numbers and booleans, such as ``long[]``, and ``String[]``: an i32 count, then the elements.

``byte[]`` is a type of its own; see ``scalars/byte_arrays.py``.

Source: docs/spec/formats.md#containers.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from statelib.model.types import (
    BOOLEAN,
    BYTE,
    BYTES,
    CHAR,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    SHORT,
    STRING,
    ArrayOf,
    Scalar,
    StateType,
)
from statelib.serializers.aspects.json_values import ReaderOf, ReadJson, read_sequence
from statelib.serializers.aspects.plain_hashing import NO_PLAIN_HASH
from statelib.serializers.aspects.snapshot_payloads import (
    BASE,
    PLAIN_VERSION,
    SnapshotSupport,
    WriteType,
    never_written,
    plain_class,
    write_head,
)
from statelib.serializers.aspects.type_support import CodecOf, TypeSupport, no_last_part, no_serializer
from statelib.serializers.columns.arrow import present
from statelib.serializers.columns.codec import Codec, Cursor, Hashes
from statelib.serializers.columns.cursors import spread
from statelib.serializers.containers.sequence_codec import SequenceCodec
from statelib.wire.ragged import Bytes, Ragged, from_fixed, join
from statelib.wire.writer import Writer

ARRAY_ELEMENTS = (BOOLEAN, SHORT, INT, LONG, FLOAT, DOUBLE)
"""The elements of the arrays that a pipeline file may declare."""
_CLASSES: dict[Scalar, str] = {
    element: plain_class(f"{element.name.capitalize()}PrimitiveArraySerializer", BASE + "array.")
    for element in (CHAR, *ARRAY_ELEMENTS)
} | {STRING: plain_class("StringArraySerializer", BASE + "array.")}
"""The class of the snapshot per type of the elements."""
_NULL_STRING = b"\0"


@dataclass(frozen=True)
class OwnNullCodec:
    """A codec that reads a null of its own, extended to write it: ``null`` are the bytes of that null."""

    element: Codec
    null: bytes
    width: int = -1
    reported_length: int = -1

    @property
    def type(self) -> StateType:
        return self.element.type

    @property
    def arrow_type(self) -> pa.DataType:
        return self.element.arrow_type

    def encode(self, values: pa.Array) -> Ragged:
        without_nulls, valid = present(values)
        nulls = np.tile(np.frombuffer(self.null, np.uint8), (int((~valid).sum()), 1))
        return join([spread(self.element.encode(without_nulls), valid), spread(from_fixed(nulls), ~valid)])

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        return self.element.decode(data, cursor, limit)

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        return self.element.skip(data, cursor, limit)

    def java_hash(self, values: pa.Array) -> Hashes:
        return self.element.java_hash(values)

    def deep_hash(self, values: pa.Array) -> Hashes:
        return self.element.deep_hash(values)


def _codec(type_: ArrayOf, codec_of: CodecOf) -> Codec:
    if type_.element == STRING:
        return SequenceCodec(type_, OwnNullCodec(codec_of(STRING), _NULL_STRING))
    if type_.element not in _CLASSES:
        raise no_serializer(type_, f"write byte[] as {BYTES}" if type_.element == BYTE else "use list<...>")
    return SequenceCodec(type_, codec_of(type_.element))


def _json_reader(type_: ArrayOf, reader_of: ReaderOf) -> ReadJson:
    name = "String" if type_.element == STRING else type_.element.name
    return partial(read_sequence, f"{name}[]", reader_of(type_.element))


def _write_snapshot(writer: Writer, type_: ArrayOf, write_type: WriteType) -> None:
    if type_.element in _CLASSES:
        write_head(writer, _CLASSES[type_.element], PLAIN_VERSION)
    else:
        never_written(writer, type_, write_type)


ARRAYS = TypeSupport(
    of=ArrayOf,
    codec=_codec,
    json_reader=_json_reader,
    snapshot=SnapshotSupport(_write_snapshot, {name: ArrayOf(element) for element, name in _CLASSES.items()}),
    plain_hash=NO_PLAIN_HASH,
    last_parts=no_last_part,
)
