"""Serializer snapshots, by which the header of a state names the serializer that wrote its values.

No length precedes a snapshot, so reading cannot go on after one of an unknown class.

Source: docs/spec/formats.md#serializer-snapshots, #scalars, #containers, #rows.
"""

from functools import partial

from statelib.errors import UnsupportedError
from statelib.model.types import VOID, StateType
from statelib.serializers.aspects.snapshot_payloads import (
    PLAIN_VERSION,
    ReadPayload,
    SnapshotPayload,
    check_version,
    unknown_serializer,
    write_head,
)
from statelib.serializers.java.opaque import foreign
from statelib.serializers.registry import TYPES, codec_of, support_of
from statelib.serializers.scalars.void import VOID_NAMESPACE
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

MAX_DEPTH = 64
_PLAIN: dict[str, StateType] = {name: type_ for support in TYPES for name, type_ in support.snapshot.plain.items()}
_READERS: dict[str, ReadPayload] = {name: read for support in TYPES for name, read in support.snapshot.readers.items()}


def encode_serializer_snapshot(type: StateType) -> bytes:  # noqa: A002
    """Return the snapshot of a type's serializer: class name, version and payload, without a length.

    ``void`` by itself is the void *namespace*; inside of another type it is ``java.lang.Void``.
    Raise InvalidRequestError (``bad-type``) for a type without a serializer, UnsupportedError
    (``opaque-without-snapshot``, ``sql-type-not-written``) for a type whose snapshot only Flink can write."""
    codec_of(type)
    writer = Writer()
    if type == VOID:
        write_head(writer, VOID_NAMESPACE, PLAIN_VERSION)
    else:
        _write(writer, type)
    return writer.getvalue()


class ForeignReader(Reader):
    """A reader that takes the snapshot of a user's class for one without payload, which is what Flink's
    SimpleTypeSerializerSnapshot writes. Whoever reads with it must check that the bytes after it make sense."""


def decode_serializer_snapshot(reader: Reader) -> StateType:
    """Read one snapshot. The fields of a Row are called f0, f1, ..., because Flink stores no names.

    Raise UnsupportedError (``unknown-serializer`` naming the class, ``serializer-version``, ``row-without-kind``),
    CorruptStateError (``bad-serializer-snapshot``, ``truncated``)."""
    return _read(reader, 0)


def _write(writer: Writer, type_: StateType) -> None:
    support_of(type_).snapshot.write(writer, type_, _write)


def _read(reader: Reader, depth: int) -> StateType:
    at = reader.offset
    name, version = reader.utf("class"), reader.i32("version")
    if name in _PLAIN:
        check_version(reader, name, version, (2, PLAIN_VERSION))
        if version == 2:
            reader.utf("serializer")
        return _PLAIN[name]
    if depth == MAX_DEPTH:
        raise unknown_serializer(reader, f"at most {MAX_DEPTH} nested serializers", "more")
    read = _READERS.get(name)
    if read is not None:
        return read(SnapshotPayload(reader, name, version, at, partial(_read, depth=depth + 1)))
    if isinstance(reader, ForeignReader) and version == PLAIN_VERSION and not name.startswith("org.apache.flink."):
        return foreign(name, reader.since(at))
    raise UnsupportedError(
        f"{reader.what} at offset {at}: serializer snapshot of class {name[:200]!r} is not known to statelib",
        kind="unknown-serializer",
    )
