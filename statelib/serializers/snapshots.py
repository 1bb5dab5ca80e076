"""Serializer snapshots: how a header says which serializer wrote a state.

Nothing in front of a snapshot tells its length, so one of an unknown class ends the reading.

Source: flink-formats.md sections 6.1 to 6.4 (TypeSerializerSnapshot, CompositeTypeSerializerSnapshot).
"""

from collections.abc import Callable, Iterator

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.model.types import (
    BYTE,
    BYTES,
    SCALARS,
    VOID,
    ArrayOf,
    Field,
    ListOf,
    MapOf,
    Row,
    Scalar,
    StateType,
    Tuple,
)
from statelib.serializers.registry import ARRAY_ELEMENTS, codec_of
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

_BASE = "org.apache.flink.api.common.typeutils.base."
_RUNTIME = "org.apache.flink.api.java.typeutils.runtime."
_TUPLE_CLASS = "org.apache.flink.api.java.tuple.Tuple"
_LIST, _MAP = _BASE + "ListSerializerSnapshot", _BASE + "MapSerializerSnapshot"
_TUPLE, _ROW = _RUNTIME + "TupleSerializerSnapshot", _RUNTIME + "RowSerializer$RowSerializerSnapshot"
_NAMESPACE = "org.apache.flink.runtime.state.VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot"

_NESTED_MAGIC, _NESTED_VERSION = 0x001457FD, 1
_COMPOSITE_MAGIC, _COMPOSITE_VERSION = 0x000DE704, 3
_SIMPLE_VERSION = 3
MAX_DEPTH = 64


def _simple_class(serializer: str, package: str = _BASE) -> str:
    return f"{package}{serializer}${serializer}Snapshot"


def _array_types() -> Iterator[tuple[StateType, Scalar]]:
    yield BYTES, BYTE
    for element in ARRAY_ELEMENTS:
        yield ArrayOf(element), element


_WORDS = {"date": "LocalDate", "time": "LocalTime", "datetime": "LocalDateTime"}
_PLAIN: dict[StateType, str] = {
    scalar: _simple_class(f"{_WORDS.get(name, name.capitalize())}Serializer")
    for name, scalar in SCALARS.items()
    if scalar != BYTES
}
_ARRAYS: dict[StateType, str] = {
    type_: _simple_class(f"{element.name.capitalize()}PrimitiveArraySerializer", _BASE + "array.")
    for type_, element in _array_types()
}
_SIMPLE: dict[StateType, str] = {**_PLAIN, **_ARRAYS}
_SIMPLE_TYPES: dict[str, StateType] = {name: type_ for type_, name in _SIMPLE.items()} | {_NAMESPACE: VOID}


def encode_serializer_snapshot(type: StateType) -> bytes:  # noqa: A002
    """The versioned snapshot of a type's serializer: class name, version, payload; no framing int.

    ``void`` alone is the void *namespace*; within another type it is ``java.lang.Void``.
    Raises InvalidRequestError (``bad-type``) for a type without a serializer."""
    codec_of(type)
    writer = Writer()
    if type == VOID:
        _write_head(writer, _NAMESPACE, _SIMPLE_VERSION)
    else:
        _write(writer, type)
    return writer.getvalue()


def decode_serializer_snapshot(reader: Reader) -> StateType:
    """Read one versioned snapshot; the fields of a Row are called f0, f1, ... because Flink stores no names.

    Raises UnsupportedError (``unknown-serializer`` naming the class, ``serializer-version``,
    ``row-without-kind``), CorruptStateError (``bad-serializer-snapshot``, ``truncated``)."""
    return _read(reader, 0)


def _write_head(writer: Writer, name: str, version: int) -> None:
    writer.utf(name)
    writer.i32(version)


def _write(writer: Writer, type_: StateType) -> None:
    match type_:
        case ListOf(element):
            _write_composite(writer, _LIST, 1, b"", (element,))
        case MapOf(key, value):
            _write_composite(writer, _MAP, 1, b"", (key, value))
        case Tuple(fields):
            outer = Writer()
            outer.utf(f"{_TUPLE_CLASS}{len(fields)}")
            _write_composite(writer, _TUPLE, 2, outer.getvalue(), fields)
        case Row(fields):
            _write_composite(writer, _ROW, 4, b"\x01", tuple(field.type for field in fields))
        case Scalar() | ArrayOf():
            _write_head(writer, _SIMPLE[type_], _SIMPLE_VERSION)


def _write_composite(writer: Writer, name: str, version: int, outer: bytes, nested: tuple[StateType, ...]) -> None:
    _write_head(writer, name, _COMPOSITE_VERSION)
    writer.u32(_COMPOSITE_MAGIC)
    writer.i32(version)
    writer.put(outer)
    writer.u32(_NESTED_MAGIC)
    writer.i32(_NESTED_VERSION)
    writer.i32(len(nested))
    for type_ in nested:
        _write(writer, type_)


def _read(reader: Reader, depth: int) -> StateType:
    at = reader.offset
    name, version = reader.utf(), reader.i32()
    if name in _SIMPLE_TYPES:
        _check_version(reader, name, version, (2, _SIMPLE_VERSION))
        if version == 2:
            reader.utf()
        return _SIMPLE_TYPES[name]
    read = _COMPOSITES.get(name)
    if read is None:
        raise UnsupportedError(
            f"{reader.what} at offset {at}: serializer snapshot of class {name[:200]!r} is not known to statelib",
            kind="unknown-serializer",
        )
    if depth == MAX_DEPTH:
        raise _bad(reader, f"at most {MAX_DEPTH} nested serializers", "more")
    _check_version(reader, name, version, (_COMPOSITE_VERSION,))
    _check_magic(reader, _COMPOSITE_MAGIC)
    return read(reader, reader.i32(), depth + 1)


def _read_list(reader: Reader, version: int, depth: int) -> StateType:
    _check_version(reader, _LIST, version, (1,))
    return ListOf(_read_nested(reader, depth, 1)[0])


def _read_map(reader: Reader, version: int, depth: int) -> StateType:
    _check_version(reader, _MAP, version, (1,))
    key, value = _read_nested(reader, depth, 2)
    return MapOf(key, value)


def _read_tuple(reader: Reader, version: int, depth: int) -> StateType:
    _check_version(reader, _TUPLE, version, (2,))
    name = reader.utf()
    if not name.startswith(_TUPLE_CLASS):
        raise UnsupportedError(
            f"{reader.what}: tuple class {name[:200]!r} is not one of Flink's", kind="unknown-serializer"
        )
    fields = _read_nested(reader, depth, None)
    if name != f"{_TUPLE_CLASS}{len(fields)}":
        raise _bad(reader, f"the fields of {name}", str(len(fields)))
    return Tuple(tuple(fields))


def _read_row(reader: Reader, version: int, depth: int) -> StateType:
    _check_version(reader, _ROW, version, (3, 4))
    if version == 4 and not reader.bool():
        raise UnsupportedError(f"{reader.what}: Row without RowKind in its mask", kind="row-without-kind")
    types = _read_nested(reader, depth, None)
    return Row(tuple(Field(f"f{i}", type_) for i, type_ in enumerate(types)))


def _read_nested(reader: Reader, depth: int, count: int | None) -> list[StateType]:
    _check_magic(reader, _NESTED_MAGIC)
    _check_version(reader, "nested serializers", reader.i32(), (_NESTED_VERSION,))
    found = reader.count(6)
    if count not in (None, found):
        raise _bad(reader, f"{count} nested serializers", str(found))
    return [_read(reader, depth) for _ in range(found)]


_COMPOSITES: dict[str, Callable[[Reader, int, int], StateType]] = {
    _LIST: _read_list,
    _MAP: _read_map,
    _TUPLE: _read_tuple,
    _ROW: _read_row,
}


def _check_magic(reader: Reader, magic: int) -> None:
    found = reader.u32()
    if found != magic:
        raise _bad(reader, f"mark {magic:#010x}", f"{found:#010x}")


def _check_version(reader: Reader, what: str, found: int, known: tuple[int, ...]) -> None:
    if found not in known:
        raise UnsupportedError(
            f"{reader.what} before offset {reader.offset}: {what} of version {found}, known are {known}",
            kind="serializer-version",
        )


def _bad(reader: Reader, expected: str, found: str) -> CorruptStateError:
    return CorruptStateError(
        f"{reader.what} before offset {reader.offset}: expected {expected}, found {found}",
        kind="bad-serializer-snapshot",
    )
