"""Optional maps: how snapshots store parts by name, each of which may be absent.

Source: docs/spec/formats.md#serializer-snapshots.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from statelib.errors import CorruptStateError
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

_MAP_MAGIC = 0x000004F2C69A3D70


@dataclass(frozen=True)
class OptionalEntry:
    """An entry of an optional map. A part is None if its class could not be loaded when Flink took the snapshot."""

    name: str
    key: memoryview | None
    value: memoryview | None


def read_optional_map(reader: Reader) -> Iterator[OptionalEntry]:
    """Yield the entries of the map that begins at the reader's offset.

    Raise CorruptStateError (``bad-serializer-snapshot``)."""
    at, magic = reader.offset, reader.i64("magic of a map")
    if magic != _MAP_MAGIC:
        raise CorruptStateError(
            f"{reader.what} at offset {at}: expected an optional map, found {magic:#018x}",
            kind="bad-serializer-snapshot",
        )
    for _ in range(reader.count(4, "entries")):
        name = reader.utf("name")
        key = _read_part(reader, "key")
        yield OptionalEntry(name, key, _read_part(reader, "value"))


def _read_part(reader: Reader, name: str) -> memoryview | None:
    return reader.take(reader.i32("length"), name) if reader.bool(f"has {name}") else None


def write_optional_map(writer: Writer, entries: Sequence[tuple[str, bytes, bytes]]) -> None:
    """Write a map of (name, key, value), of which no part is absent."""
    writer.i64(_MAP_MAGIC)
    writer.i32(len(entries))
    for name, key, value in entries:
        writer.utf(name)
        for part in (key, value):
            writer.u8(1)
            writer.i32(len(part))
            writer.put(part)
