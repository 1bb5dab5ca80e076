"""POJOs, a user's Java classes by their fields: flags, then the fields, each after a byte that is 1 if it is null.

A value of a subclass is written with the number of a registered subclass, or with the name of its class.

Source: docs/spec/formats.md#serializer-snapshots (optional map), #pojos.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.model.types import Field, Pojo, StateType
from statelib.serializers.aspects.json_values import NULL, Json, ReaderOf
from statelib.serializers.aspects.plain_hashing import NO_PLAIN_HASH
from statelib.serializers.aspects.snapshot_payloads import (
    RUNTIME,
    SnapshotPayload,
    SnapshotSupport,
    WriteType,
    name_bytes,
    write_head,
)
from statelib.serializers.aspects.type_support import TypeSupport, no_last_part
from statelib.serializers.columns.arrow import present, struct_column, struct_fields, with_nulls
from statelib.serializers.columns.codec import Codec, Cursor
from statelib.serializers.columns.cursors import require, spread
from statelib.serializers.columns.unkeyed import Unkeyed
from statelib.serializers.containers.nullable import FlaggedCodec
from statelib.serializers.java.opaque import foreign
from statelib.serializers.java.optional_maps import OptionalEntry, read_optional_map, write_optional_map
from statelib.wire.ragged import Bytes, Ragged, from_fixed, join
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

_CLASS, _VERSION = RUNTIME + "PojoSerializerSnapshot", 2
_NULL, _SELF, _SEEN, _REGISTERED = 1, 2, 4, 8
"""Flags before a value: null, a value of the class itself, of a subclass by its name, of a subclass by its number."""


@dataclass(frozen=True)
class PojoCodec(Unkeyed):
    """The codec of values of the class itself: a struct of its fields. A value of a subclass does not fit into it."""

    type: Pojo
    fields: tuple[Codec, ...]
    width: int = -1
    reported_length: int = -1

    @property
    def arrow_type(self) -> pa.DataType:
        pairs = zip(self.type.fields, self.fields, strict=True)
        return pa.struct([pa.field(field.name, codec.arrow_type) for field, codec in pairs])

    def encode(self, values: pa.Array) -> Ragged:
        without_nulls, valid = present(values)
        columns = struct_fields(without_nulls, self.arrow_type, self.type)
        flags = np.where(valid, _SELF, _NULL).astype(np.uint8)
        parts = [FlaggedCodec(field).encode(column) for field, column in zip(self.fields, columns, strict=True)]
        return join([from_fixed(flags.reshape(-1, 1)), *(spread(part, valid) for part in parts)])

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        valid, at = self._flags(data, cursor, limit)
        columns, inside, end = [], at[valid], limit[valid]
        for field in self.fields:
            column, inside = FlaggedCodec(field).decode(data, inside, end)
            columns.append(column)
        at[valid] = inside
        return with_nulls(struct_column(columns, self.arrow_type, len(inside)), valid), at

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        valid, at = self._flags(data, cursor, limit)
        inside = at[valid]
        for field in self.fields:
            inside = FlaggedCodec(field).skip(data, inside, limit[valid])
        at[valid] = inside
        return at

    def _flags(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[npt.NDArray[np.bool_], Cursor]:
        """Return one boolean per row, true if the row has a value, and the cursors of the fields.

        Raise UnsupportedError (``pojo-subclass``)."""
        require(cursor, 1, limit, self.type)
        flags = data[cursor]
        other = np.flatnonzero((flags != _NULL) & (flags != _SELF))
        if len(other):
            raise UnsupportedError(
                f"{self.type.java_class} in row {other[0]}: expected the class itself, found a subclass "
                f"(flags {int(flags[other[0]]):#04x}), which columns of that class cannot hold",
                kind="pojo-subclass",
                hint="statelib export --format typed-jsonl shows every value",
            )
        return flags == _SELF, cursor + 1


class _PojoReader:
    """Reads one value of a class or of one of its subclasses."""

    def __init__(self, type_: Pojo, reader_of: ReaderOf) -> None:
        self._type = type_
        self._fields = [(field.name, reader_of(field.type)) for field in type_.fields]
        self._registered = [_PojoReader(subclass, reader_of) for subclass in type_.registered]
        self._seen = {subclass.java_class: _PojoReader(subclass, reader_of) for subclass in type_.seen}

    def __call__(self, reader: Reader) -> Json:
        at, flags = reader.offset, reader.u8()
        if flags == _NULL:
            return NULL
        if flags == _REGISTERED:
            tag = reader.u8()
            if tag < len(self._registered):
                return self._registered[tag](reader)
        elif flags == _SEEN:
            name = reader.utf()
            if name in self._seen:
                return self._seen[name](reader)
            raise UnsupportedError(
                f"{reader.what} at offset {at}: the snapshot does not describe {name}, a subclass of "
                f"{self._type.java_class}",
                kind="unknown-subclass",
            )
        elif flags == _SELF:
            values = {name: NULL if reader.bool() else read(reader) for name, read in self._fields}
            return {"type": "pojo", "class": self._type.java_class, "v": values}
        raise CorruptStateError(
            f"{reader.what} at offset {at}: expected a value of {self._type.java_class}, found flags {flags:#04x}",
            kind="bad-pojo",
        )


def _read_snapshot(payload: SnapshotPayload) -> Pojo:
    payload.check_version(_VERSION)
    reader = payload.reader
    name = reader.utf("POJO class")
    fields = tuple(Field(entry.name, _entry_type(payload, entry)) for entry in list(read_optional_map(reader)))
    registered, seen = (tuple(_subclass(payload, entry) for entry in list(read_optional_map(reader))) for _ in range(2))
    return Pojo(name, fields, registered, seen)


def _entry_type(payload: SnapshotPayload, entry: OptionalEntry) -> StateType:
    """Return the type whose snapshot is the value of an entry."""
    reader = payload.reader
    if entry.value is None:
        raise UnsupportedError(
            f"{reader.what} before offset {reader.offset}: expected the serializer snapshot of {entry.name[:200]!r}, "
            "found none",
            kind="unknown-serializer",
        )
    inner = Reader(entry.value, f"{reader.what}, {entry.name[:200]}")
    try:
        type_ = payload.read_type(inner)
    except UnsupportedError as error:
        if error.kind != "unknown-serializer":
            raise
        return foreign(Reader(entry.value, inner.what).utf(), entry.value)
    if inner.remaining:
        raise CorruptStateError(
            f"{inner.what}: expected the end at offset {inner.offset}, found {inner.remaining} bytes more",
            kind="bad-serializer-snapshot",
        )
    return type_


def _subclass(payload: SnapshotPayload, entry: OptionalEntry) -> Pojo:
    type_ = _entry_type(payload, entry)
    if not isinstance(type_, Pojo):
        raise UnsupportedError(
            f"{payload.reader.what} before offset {payload.reader.offset}: subclass {entry.name[:200]!r} is no POJO "
            f"but {type_}",
            kind="unknown-serializer",
        )
    return type_


def _write_snapshot(writer: Writer, type_: Pojo, write_type: WriteType) -> None:
    write_head(writer, _CLASS, _VERSION)
    writer.utf(type_.java_class)
    fields = []
    for field in type_.fields:
        declaring = name_bytes(type_.java_class, field.name)
        fields.append((field.name, declaring, _snapshot_bytes(field.type, write_type)))
    write_optional_map(writer, fields)
    for subclasses in (type_.registered, type_.seen):
        entries = [(subclass.java_class, b"", _snapshot_bytes(subclass, write_type)) for subclass in subclasses]
        write_optional_map(writer, entries)


def _snapshot_bytes(type_: StateType, write_type: WriteType) -> bytes:
    writer = Writer()
    write_type(writer, type_)
    return writer.getvalue()


POJOS = TypeSupport(
    of=Pojo,
    codec=lambda type_, codec_of: PojoCodec(type_, tuple(codec_of(field.type) for field in type_.fields)),
    json_reader=_PojoReader,
    snapshot=SnapshotSupport(_write_snapshot, readers={_CLASS: _read_snapshot}),
    plain_hash=NO_PLAIN_HASH,
    last_parts=no_last_part,
)
