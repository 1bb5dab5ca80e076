"""Snapshots of serializers whose payload is of their own kind: enums, POJOs, Kryo.

Source: flink-formats.md sections 6.1 (optional map), 6.3, 6.5 and 6.6.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.model.types import Enumeration, Field, Opaque, Pojo, StateType
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

ENUM = "org.apache.flink.api.common.typeutils.base.EnumSerializer$EnumSerializerSnapshot"
POJO = "org.apache.flink.api.java.typeutils.runtime.PojoSerializerSnapshot"
KRYO = "org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializerSnapshot"
VERSIONS = {ENUM: 3, POJO: 2, KRYO: 2}
KRYO_SERIALIZER = "org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializer"

_MAP_MAGIC = 0x000004F2C69A3D70

ReadType = Callable[[Reader], StateType]
WriteType = Callable[[Writer, StateType], None]


@dataclass(frozen=True)
class _Entry:
    """Of an optional map; None where the class could not be loaded when the snapshot was taken."""

    name: str
    key: memoryview | None
    value: memoryview | None


def _read_map(reader: Reader) -> Iterator[_Entry]:
    at, magic = reader.offset, reader.i64("magic of a map")
    if magic != _MAP_MAGIC:
        raise CorruptStateError(
            f"{reader.what} at offset {at}: expected an optional map, found {magic:#018x}",
            kind="bad-serializer-snapshot",
        )
    for _ in range(reader.count(4, "entries")):
        name = reader.utf("name")
        key = _read_part(reader, "key")
        yield _Entry(name, key, _read_part(reader, "value"))


def _read_part(reader: Reader, name: str) -> memoryview | None:
    return reader.take(reader.i32("length"), name) if reader.bool(f"has {name}") else None


def _write_map(writer: Writer, entries: Sequence[tuple[str, bytes, bytes]]) -> None:
    writer.i64(_MAP_MAGIC)
    writer.i32(len(entries))
    for name, key, value in entries:
        writer.utf(name)
        for part in (key, value):
            writer.u8(1)
            writer.i32(len(part))
            writer.put(part)


def read_enum(reader: Reader) -> Enumeration:
    name = reader.utf("enum class")
    return Enumeration(name, tuple(reader.utf("constant") for _ in range(reader.count(2, "constants"))))


def write_enum(writer: Writer, kind: Enumeration) -> None:
    writer.utf(kind.java_class)
    writer.i32(len(kind.constants))
    for constant in kind.constants:
        writer.utf(constant)


def read_pojo(reader: Reader, read: ReadType) -> Pojo:
    """``read`` reads the snapshot of a field's serializer."""
    name = reader.utf("POJO class")
    fields = tuple(Field(entry.name, _inner(reader, entry, read)) for entry in list(_read_map(reader)))
    registered, seen = (tuple(_subclass(reader, entry, read) for entry in list(_read_map(reader))) for _ in range(2))
    return Pojo(name, fields, registered, seen)


def _inner(reader: Reader, entry: _Entry, read: ReadType) -> StateType:
    if entry.value is None:
        raise UnsupportedError(
            f"{reader.what} before offset {reader.offset}: nothing says how {entry.name[:200]!r} is written",
            kind="unknown-serializer",
        )
    inner = Reader(entry.value, f"{reader.what}, {entry.name[:200]}")
    try:
        found = read(inner)
    except UnsupportedError as error:
        if error.kind != "unknown-serializer":
            raise
        return foreign(Reader(entry.value, inner.what).utf(), entry.value)
    if inner.remaining:
        raise CorruptStateError(
            f"{inner.what}: expected the end at offset {inner.offset}, found {inner.remaining} bytes more",
            kind="bad-serializer-snapshot",
        )
    return found


def foreign(snapshot_class: str, snapshot: bytes | memoryview) -> Opaque:
    """A type that only a user's serializer knows, whose snapshot's class is often one within it."""
    return Opaque(snapshot_class.rpartition("$")[0] or snapshot_class, "", bytes(snapshot))


def _subclass(reader: Reader, entry: _Entry, read: ReadType) -> Pojo:
    found = _inner(reader, entry, read)
    if not isinstance(found, Pojo):
        raise UnsupportedError(
            f"{reader.what} before offset {reader.offset}: subclass {entry.name[:200]!r} is no POJO but {found}",
            kind="unknown-serializer",
        )
    return found


def write_pojo(writer: Writer, kind: Pojo, write: WriteType) -> None:
    """``write`` writes the snapshot of a field's serializer."""
    writer.utf(kind.java_class)
    _write_map(writer, [(field.name, _field_key(kind, field), _bytes(field.type, write)) for field in kind.fields])
    for subclasses in (kind.registered, kind.seen):
        _write_map(writer, [(subclass.java_class, b"", _bytes(subclass, write)) for subclass in subclasses])


def _field_key(kind: Pojo, field: Field) -> bytes:
    """The class that declares the field, and its name."""
    key = Writer()
    key.utf(kind.java_class)
    key.utf(field.name)
    return key.getvalue()


def _bytes(type_: StateType, write: WriteType) -> bytes:
    writer = Writer()
    write(writer, type_)
    return writer.getvalue()


def read_kryo(reader: Reader, start: int) -> Opaque:
    """``start``: where the snapshot begins, its class name included."""
    name = reader.utf("kryo class")
    for _ in range(3):
        for _entry in _read_map(reader):
            pass
    return Opaque(KRYO_SERIALIZER, name, bytes(reader.since(start)))
