"""A Java enum: the index of a constant as an i32. Columns hold the name of the constant.

Source: docs/spec/formats.md#containers.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.model.types import Enumeration
from statelib.serializers.aspects.json_values import Json
from statelib.serializers.aspects.plain_hashing import NO_PLAIN_HASH
from statelib.serializers.aspects.snapshot_payloads import (
    BASE,
    SnapshotPayload,
    SnapshotSupport,
    WriteType,
    plain_class,
    write_head,
)
from statelib.serializers.aspects.type_support import TypeSupport, no_last_part
from statelib.serializers.columns.arrow import scalar_column, valid_rows
from statelib.serializers.columns.codec import Cursor
from statelib.serializers.columns.cursors import fixed, read_unsigned, refuse, require
from statelib.serializers.columns.unkeyed import Unkeyed
from statelib.wire.ragged import Bytes, Ragged
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

_STRING = pa.string()
_CLASS, _VERSION = plain_class("EnumSerializer", BASE), 3


@dataclass(frozen=True)
class EnumCodec(Unkeyed):
    """The codec of an enum."""

    type: Enumeration
    arrow_type: pa.DataType = _STRING
    width: int = 4
    reported_length: int = 4

    def encode(self, values: pa.Array) -> Ragged:
        names = scalar_column(values, self.arrow_type, self.type)
        index = pc.index_in(names, pa.array(self.type.constants, _STRING))
        if index.null_count:
            name = names[int(np.argmin(valid_rows(index)))].as_py()
            raise InvalidRequestError(
                f"enum {self.type.java_class}: expected one of {', '.join(self.type.constants)}, found {name!r}",
                kind="bad-enum",
            )
        return fixed(np.asarray(index.to_numpy(), np.int32))

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        end = self.skip(data, cursor, limit)
        index = read_unsigned(data, cursor, 4, "i4").astype(np.int64)
        outside = (index < 0) | (index >= len(self.type.constants))
        refuse(outside, index, self.type, f"an index below {len(self.type.constants)}", "bad-enum")
        return pa.array(self.type.constants, _STRING).take(pa.array(index)), end

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:  # noqa: ARG002
        require(cursor, 4, limit, self.type)
        return cursor + 4


def _read_json(type_: Enumeration, reader: Reader) -> Json:
    at, index = reader.offset, reader.i32()
    if not 0 <= index < len(type_.constants):
        raise CorruptStateError(
            f"{reader.what} at offset {at}: expected one of the {len(type_.constants)} constants of "
            f"{type_.java_class}, found index {index}",
            kind="bad-enum",
        )
    return {"type": "enum", "v": type_.constants[index], "ordinal": index}


def _read_snapshot(payload: SnapshotPayload) -> Enumeration:
    payload.check_version(_VERSION)
    reader = payload.reader
    name = reader.utf("enum class")
    return Enumeration(name, tuple(reader.utf("constant") for _ in range(reader.count(2, "constants"))))


def _write_snapshot(writer: Writer, type_: Enumeration, _write_type: WriteType) -> None:
    write_head(writer, _CLASS, _VERSION)
    writer.utf(type_.java_class)
    writer.i32(len(type_.constants))
    for constant in type_.constants:
        writer.utf(constant)


ENUMS = TypeSupport(
    of=Enumeration,
    codec=lambda type_, _codec_of: EnumCodec(type_),
    json_reader=lambda type_, _reader_of: partial(_read_json, type_),
    snapshot=SnapshotSupport(_write_snapshot, readers={_CLASS: _read_snapshot}),
    plain_hash=NO_PLAIN_HASH,
    last_parts=no_last_part,
)
