"""A value that may be null: a flag, and the value if there is one.

Source: docs/spec/formats.md#containers.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.model.types import Nullable, Option, StateType
from statelib.serializers.aspects.json_values import NULL, Json, ReaderOf, ReadJson
from statelib.serializers.aspects.plain_hashing import PlainHash
from statelib.serializers.aspects.snapshot_payloads import (
    RUNTIME,
    SnapshotPayload,
    SnapshotSupport,
    WriteType,
    plain_class,
    unknown_serializer,
    write_composite,
)
from statelib.serializers.aspects.type_support import TypeSupport
from statelib.serializers.columns.arrow import present, with_nulls
from statelib.serializers.columns.codec import Codec, Cursor, Hashes
from statelib.serializers.columns.cursors import require, spread
from statelib.wire.ragged import Bytes, Ragged, from_fixed, join
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

MAX_PADDING = 1 << 20
_CLASS, _OWN_VERSION = plain_class("NullableSerializer", RUNTIME), 2


@dataclass(frozen=True)
class FlaggedCodec:
    """The codec of a flag and a value. ``null_flag`` is the flag of a null, which ``padding`` zeros follow. The column
    may hold nulls."""

    element: Codec
    null_flag: int = 1
    padding: int = 0

    @property
    def type(self) -> StateType:
        return Nullable(self.element.type, self.padding) if self.null_flag else Option(self.element.type)

    @property
    def arrow_type(self) -> pa.DataType:
        return self.element.arrow_type

    @property
    def width(self) -> int:
        return 1 + self.padding if self.padding and self.element.width == self.padding else -1

    @property
    def reported_length(self) -> int:
        return self.width

    def encode(self, values: pa.Array) -> Ragged:
        without_nulls, valid = present(values)
        flags = np.where(valid, 1 - self.null_flag, self.null_flag).astype(np.uint8)
        zeros = np.zeros((int((~valid).sum()), self.padding), np.uint8)
        return join(
            [
                from_fixed(flags.reshape(-1, 1)),
                spread(self.element.encode(without_nulls), valid),
                spread(from_fixed(zeros), ~valid),
            ]
        )

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        valid, at = self._flags(data, cursor, limit)
        values, at[valid] = self.element.decode(data, at[valid], limit[valid])
        return with_nulls(values, valid), at

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        valid, at = self._flags(data, cursor, limit)
        at[valid] = self.element.skip(data, at[valid], limit[valid])
        return at

    def java_hash(self, values: pa.Array) -> Hashes:
        return self.element.java_hash(values)

    def deep_hash(self, values: pa.Array) -> Hashes:
        return self.element.deep_hash(values)

    def _flags(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[npt.NDArray[np.bool_], Cursor]:
        """Return one boolean per row, true if the row has a value, and the cursors of the values. The cursors of nulls
        are moved past the padding."""
        require(cursor, 1, limit, self.type)
        valid = (data[cursor] != 0) != bool(self.null_flag)
        at = cursor + 1
        require(at[~valid], self.padding, limit[~valid], self.type)
        at[~valid] += self.padding
        return valid, at


def _json_reader(type_: Nullable, reader_of: ReaderOf) -> ReadJson:
    read_element, padding = reader_of(type_.element), type_.padding

    def read(reader: Reader) -> Json:
        if reader.bool():
            reader.take(padding)
            return NULL
        return read_element(reader)

    return read


def _read_snapshot(payload: SnapshotPayload) -> Nullable:
    payload.begin_composite(_OWN_VERSION)
    padding = payload.reader.i32("padding")
    if not 0 <= padding <= MAX_PADDING:
        raise unknown_serializer(payload.reader, f"a padding of 0 to {MAX_PADDING} bytes", str(padding))
    return Nullable(payload.nested(1)[0], padding)


def _write_snapshot(writer: Writer, type_: Nullable, write_type: WriteType) -> None:
    padding = type_.padding.to_bytes(4, "big")
    write_composite(writer, _CLASS, _OWN_VERSION, [type_.element], write_type, own_data=padding)


NULLABLE = TypeSupport(
    of=Nullable,
    codec=lambda type_, codec_of: FlaggedCodec(codec_of(type_.element), padding=type_.padding),
    json_reader=_json_reader,
    snapshot=SnapshotSupport(_write_snapshot, readers={_CLASS: _read_snapshot}),
    plain_hash=PlainHash(of_key=lambda type_, value, hasher: hasher.of_key(type_.element, value)),
    last_parts=lambda type_: (type_.element,),
)
