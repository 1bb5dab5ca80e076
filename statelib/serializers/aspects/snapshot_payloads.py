"""Serializer snapshots of single types: their forms, and the tools that types share to read and write them.

A snapshot is a class name, a version and a payload. A serializer with parts has a composite payload: a mark, a version
of its own, data of its own, and the snapshots of the parts.

Source: docs/spec/formats.md#serializer-snapshots, #scalars, #containers, #rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.model.types import StateType
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

BASE = "org.apache.flink.api.common.typeutils.base."
RUNTIME = "org.apache.flink.api.java.typeutils.runtime."
PLAIN_VERSION = 3
"""The version of a snapshot without payload. A snapshot of version 2 also names the serializer."""
_NESTED_MAGIC, _NESTED_VERSION = 0x001457FD, 1
_COMPOSITE_MAGIC, _COMPOSITE_VERSION = 0x000DE704, 3

WriteType = Callable[[Writer, StateType], None]
"""Writes the whole snapshot of a type. It is how a type with parts writes those of its parts."""


@dataclass(frozen=True)
class SnapshotPayload:
    """A snapshot of which class name and version have been read. ``start`` is the offset of the class name.

    ``read_type`` reads the snapshot of a part."""

    reader: Reader
    name: str
    version: int
    start: int
    read_type: Callable[[Reader], StateType]

    def check_version(self, *supported: int) -> None:
        """Raise UnsupportedError (``serializer-version``) unless the version is one of these."""
        check_version(self.reader, self.name, self.version, supported)

    def begin_composite(self, *own_versions: int) -> int:
        """Read the head of a composite payload and return its own version, which may be any if none is given.

        Raise UnsupportedError (``serializer-version``), CorruptStateError (``bad-serializer-snapshot``)."""
        self.check_version(_COMPOSITE_VERSION)
        _check_magic(self.reader, _COMPOSITE_MAGIC)
        own_version = self.reader.i32("own version")
        if own_versions:
            check_version(self.reader, self.name, own_version, own_versions)
        return own_version

    def nested(self, count: int | None = None) -> list[StateType]:
        """Read the snapshots of the parts, ``count`` of them or any number.

        Raise UnsupportedError (``unknown-serializer``, ``serializer-version``), CorruptStateError
        (``bad-serializer-snapshot``)."""
        reader = self.reader
        _check_magic(reader, _NESTED_MAGIC)
        version = reader.i32("version of nested serializers")
        check_version(reader, "nested serializers", version, (_NESTED_VERSION,))
        actual = reader.count(6, "nested serializers")
        if count not in (None, actual):
            raise unknown_serializer(reader, f"{count} nested serializers", str(actual))
        return [self._nested_type(number) for number in range(actual)]

    def whole(self) -> bytes:
        """Return the bytes of the snapshot from its class name to the reader's offset."""
        return bytes(self.reader.since(self.start))

    def _nested_type(self, number: int) -> StateType:
        with self.reader.part(f"nested {number}"):
            return self.read_type(self.reader)


ReadPayload = Callable[[SnapshotPayload], StateType]


@dataclass(frozen=True)
class SnapshotSupport:
    """The snapshots of a type's serializers.

    ``write`` writes a whole snapshot, class name included. ``plain``: class names of snapshots without payload, with
    the type of each. ``readers``: class names of all others, with the function that reads the payload."""

    write: Callable[[Writer, Any, WriteType], None]
    plain: Mapping[str, StateType] = field(default_factory=dict)
    readers: Mapping[str, ReadPayload] = field(default_factory=dict)


def plain_class(serializer: str, package: str = BASE) -> str:
    """Return the class name of the snapshot of a serializer that nests its snapshot's class."""
    return f"{package}{serializer}${serializer}Snapshot"


def plain_snapshot(type_: StateType, name: str) -> SnapshotSupport:
    """Return the support of a type whose snapshot is the class ``name`` without payload."""
    return SnapshotSupport(lambda writer, _type, _write: write_head(writer, name, PLAIN_VERSION), {name: type_})


def composite_snapshot(
    name: str, own_version: int, count: int, build: Callable[..., StateType], parts: Callable[[Any], list[StateType]]
) -> SnapshotSupport:
    """Return the support of a composite snapshot with ``count`` parts and no data of its own. ``build`` makes the type
    from the types of its parts; ``parts`` returns them."""

    def read(payload: SnapshotPayload) -> StateType:
        payload.begin_composite(own_version)
        return build(*payload.nested(count))

    def write(writer: Writer, type_: StateType, write_type: WriteType) -> None:
        write_composite(writer, name, own_version, parts(type_), write_type)

    return SnapshotSupport(write, readers={name: read})


def write_head(writer: Writer, name: str, version: int) -> None:
    """Write class name and version of a snapshot."""
    writer.utf(name)
    writer.i32(version)


def write_composite(
    writer: Writer, name: str, own_version: int, parts: list[StateType], write_type: WriteType, *, own_data: bytes = b""
) -> None:
    """Write a whole composite snapshot. ``own_data`` precedes the snapshots of the parts."""
    write_head(writer, name, _COMPOSITE_VERSION)
    writer.u32(_COMPOSITE_MAGIC)
    writer.i32(own_version)
    writer.put(own_data)
    write_nested(writer, parts, write_type)


def write_nested(writer: Writer, parts: list[StateType], write_type: WriteType) -> None:
    """Write the snapshots of the parts of a type, with their count."""
    writer.u32(_NESTED_MAGIC)
    writer.i32(_NESTED_VERSION)
    writer.i32(len(parts))
    for part in parts:
        write_type(writer, part)


def write_stored(writer: Writer, type_: Any, _write_type: WriteType) -> None:
    """Write the snapshot that Flink wrote and the type keeps.

    Raise UnsupportedError (``opaque-without-snapshot``) if the type keeps none."""
    if not type_.snapshot:
        raise UnsupportedError(
            f"type {type_}: only Flink can write the snapshot of this serializer, and the type holds none",
            kind="opaque-without-snapshot",
            hint="take the state from a snapshot that Flink wrote",
        )
    writer.put(type_.snapshot)


def never_written(_writer: Writer, type_: StateType, _write_type: WriteType) -> None:
    """Raise UnsupportedError (``opaque-without-snapshot``): the type occurs only inside of another type's snapshot."""
    raise UnsupportedError(
        f"type {type_}: it occurs only inside of other types, so it has no serializer snapshot of its own",
        kind="opaque-without-snapshot",
        hint="take the state from a snapshot that Flink wrote",
    )


def name_bytes(*names: str) -> bytes:
    """Return the names as a snapshot stores them, each after its length."""
    writer = Writer()
    for name in names:
        writer.utf(name)
    return writer.getvalue()


def _check_magic(reader: Reader, magic: int) -> None:
    """Read a mark. Raise CorruptStateError (``bad-serializer-snapshot``) unless it is ``magic``."""
    actual = reader.u32("magic")
    if actual != magic:
        raise bad_snapshot(reader, f"mark {magic:#010x}", f"{actual:#010x}")


def check_version(reader: Reader, what: str, version: int, supported: tuple[int, ...]) -> None:
    """Raise UnsupportedError (``serializer-version``) unless ``version`` is one of ``supported``."""
    if version not in supported:
        raise UnsupportedError(
            f"{reader.what} before offset {reader.offset}: {what} of version {version}, known are {supported}",
            kind="serializer-version",
        )


def bad_snapshot(reader: Reader, expected: str, actual: str) -> CorruptStateError:
    """Return the error for a snapshot whose bytes contradict each other."""
    return CorruptStateError(
        f"{reader.what} before offset {reader.offset}: expected {expected}, found {actual}",
        kind="bad-serializer-snapshot",
    )


def unknown_serializer(reader: Reader, expected: str, actual: str) -> UnsupportedError:
    """Return the error for a snapshot that may be whole, but describes a serializer that statelib has no type for."""
    return UnsupportedError(
        f"{reader.what} before offset {reader.offset}: expected {expected}, found {actual}", kind="unknown-serializer"
    )
