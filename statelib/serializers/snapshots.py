"""Serializer snapshots: how a header says which serializer wrote a state.

Nothing in front of a snapshot tells its length, so one of an unknown class ends the reading.

Source: flink-formats.md sections 6.1 to 6.4 (TypeSerializerSnapshot, CompositeTypeSerializerSnapshot).
"""

from collections.abc import Callable, Iterator
from typing import Any

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.model.types import (
    BYTE,
    BYTES,
    CHAR,
    GLOBAL_WINDOW,
    JAVA_SCALARS,
    LONG,
    SCALARS,
    STRING,
    TIME_WINDOW,
    VOID,
    ArrayOf,
    Either,
    Enumeration,
    Field,
    Like,
    ListOf,
    MapOf,
    Nullable,
    ObjectArray,
    Opaque,
    Pojo,
    Row,
    Scalar,
    SetOf,
    Sql,
    StateType,
    Ttl,
    Tuple,
)
from statelib.serializers.java import aliased_snapshots as like
from statelib.serializers.java import pojos as java
from statelib.serializers.registry import ARRAY_ELEMENTS, MAX_TUPLE_FIELDS, codec_of
from statelib.serializers.sql import snapshots as sql
from statelib.serializers.sql.logical_types import is_only_read
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

_BASE = "org.apache.flink.api.common.typeutils.base."
_RUNTIME = "org.apache.flink.api.java.typeutils.runtime."
_TUPLE_CLASS = "org.apache.flink.api.java.tuple.Tuple"
_LIST, _MAP = _BASE + "ListSerializerSnapshot", _BASE + "MapSerializerSnapshot"
_TUPLE, _ROW = _RUNTIME + "TupleSerializerSnapshot", _RUNTIME + "RowSerializer$RowSerializerSnapshot"
_GENERIC_ARRAY, _SET = _BASE + "GenericArraySerializerSnapshot", _BASE + "SetSerializerSnapshot"
_EITHER = _RUNTIME + "JavaEitherSerializerSnapshot"
_NULLABLE = _RUNTIME + "NullableSerializer$NullableSerializerSnapshot"
_TTL = "org.apache.flink.runtime.state.ttl.TtlStateFactory$TtlSerializerSnapshot"
_TTL_V2 = "org.apache.flink.runtime.state.v2.ttl.TtlStateFactory$TtlSerializerSnapshot"
_NAMESPACE = "org.apache.flink.runtime.state.VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot"

_NESTED_MAGIC, _NESTED_VERSION = 0x001457FD, 1
_COMPOSITE_MAGIC, _COMPOSITE_VERSION = 0x000DE704, 3
_SIMPLE_VERSION = 3
MAX_DEPTH = 64
MAX_PADDING = 1 << 20


def _simple_class(serializer: str, package: str = _BASE) -> str:
    return f"{package}{serializer}${serializer}Snapshot"


def _array_types() -> Iterator[tuple[StateType, Scalar]]:
    yield BYTES, BYTE
    yield ArrayOf(CHAR), CHAR
    for element in ARRAY_ELEMENTS:
        yield ArrayOf(element), element


_WORDS = {
    "date": "LocalDate", "time": "LocalTime", "datetime": "LocalDateTime", "bigint": "BigInt", "bigdecimal": "BigDec",
    "javadate": "Date", "sqldate": "SqlDate", "sqltime": "SqlTime", "sqltimestamp": "SqlTimestamp",
}  # fmt: skip
_PLAIN: dict[StateType, str] = {
    scalar: _simple_class(f"{_WORDS.get(name, name.capitalize())}Serializer")
    for name, scalar in (SCALARS | JAVA_SCALARS).items()
    if scalar != BYTES
}
_ARRAYS: dict[StateType, str] = {
    type_: _simple_class(f"{element.name.capitalize()}PrimitiveArraySerializer", _BASE + "array.")
    for type_, element in _array_types()
} | {ArrayOf(STRING): _simple_class("StringArraySerializer", _BASE + "array.")}
_WINDOW_PACKAGE = "org.apache.flink.streaming.api.windowing.windows."
_WINDOWS: dict[StateType, str] = {
    TIME_WINDOW: f"{_WINDOW_PACKAGE}TimeWindow$Serializer$TimeWindowSerializerSnapshot",
    GLOBAL_WINDOW: f"{_WINDOW_PACKAGE}GlobalWindow$Serializer$GlobalWindowSerializerSnapshot",
}
_SIMPLE: dict[StateType, str] = {**_PLAIN, **_ARRAYS, **_WINDOWS}
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


class ForeignReader(Reader):
    """Takes a snapshot of a user's class for one that stores nothing, as Flink's SimpleTypeSerializerSnapshot does:
    whoever reads so must see that what follows fits."""


def _is_flinks(name: str) -> bool:
    return name.startswith("org.apache.flink.")


def decode_serializer_snapshot(reader: Reader) -> StateType:
    """Read one versioned snapshot; the fields of a Row are called f0, f1, ... because Flink stores no names.

    Raises UnsupportedError (``unknown-serializer`` naming the class, ``serializer-version``,
    ``row-without-kind``), CorruptStateError (``bad-serializer-snapshot``, ``truncated``)."""
    return _read(reader, 0)


def _write_head(writer: Writer, name: str, version: int) -> None:
    writer.utf(name)
    writer.i32(version)


def _write(writer: Writer, type_: StateType) -> None:
    if type_ in _SIMPLE:
        _write_head(writer, _SIMPLE[type_], _SIMPLE_VERSION)
    elif type_.__class__ in _NESTED:
        name, version, outer, nested = _NESTED[type_.__class__]
        _write_composite(writer, name, version, outer(type_), nested(type_))
    elif type_.__class__ in _WRITERS:
        _WRITERS[type_.__class__](writer, type_)
    else:
        raise UnsupportedError(
            f"type {type_}: a form of Flink's own, whose snapshot is never written by itself",
            kind="opaque-without-snapshot",
            hint="take the state from a snapshot of Flink's",
        )


def _write_enum(writer: Writer, type_: Enumeration) -> None:
    _write_head(writer, java.ENUM, java.VERSIONS[java.ENUM])
    java.write_enum(writer, type_)


def _write_pojo(writer: Writer, type_: Pojo) -> None:
    _write_head(writer, java.POJO, java.VERSIONS[java.POJO])
    java.write_pojo(writer, type_, _write)


def _write_sql(writer: Writer, type_: Sql) -> None:
    sql.write_sql_snapshot(writer, type_.type, _write_nested)


def _utf(text: str) -> bytes:
    writer = Writer()
    writer.utf(text)
    return writer.getvalue()


def _write_kept(writer: Writer, type_: Opaque | Like) -> None:
    if not type_.snapshot:
        raise UnsupportedError(
            f"type {type_}: only Flink can make the snapshot of this serializer, and none is at hand",
            kind="opaque-without-snapshot",
            hint="take the state from a snapshot of Flink's",
        )
    writer.put(type_.snapshot)


_Nested = tuple[str, int, Callable[[Any], bytes], Callable[[Any], tuple[StateType, ...]]]
_NESTED: dict[Any, _Nested] = {
    ListOf: (_LIST, 1, lambda _: b"", lambda t: (t.element,)),
    MapOf: (_MAP, 1, lambda _: b"", lambda t: (t.key, t.value)),
    Tuple: (_TUPLE, 2, lambda t: _utf(f"{_TUPLE_CLASS}{len(t.fields)}"), lambda t: t.fields),
    Ttl: (_TTL, 2, lambda _: b"", lambda t: (LONG, t.value)),
    Row: (_ROW, 4, lambda _: b"\x01", lambda t: tuple(field.type for field in t.fields)),
    SetOf: (_SET, 1, lambda _: b"", lambda t: (t.element,)),
    Either: (_EITHER, 1, lambda _: b"", lambda t: (t.left, t.right)),
    ObjectArray: (_GENERIC_ARRAY, 1, lambda t: _utf(t.java_class), lambda t: (t.element,)),
    Nullable: (_NULLABLE, 2, lambda t: t.padding.to_bytes(4, "big"), lambda t: (t.element,)),
}
"""Class, version and bytes of the outer part, and the types within."""


def _write_composite(writer: Writer, name: str, version: int, outer: bytes, nested: tuple[StateType, ...]) -> None:
    _write_head(writer, name, _COMPOSITE_VERSION)
    writer.u32(_COMPOSITE_MAGIC)
    writer.i32(version)
    writer.put(outer)
    _write_nested(writer, nested)


def _write_nested(writer: Writer, nested: tuple[StateType, ...]) -> None:
    writer.u32(_NESTED_MAGIC)
    writer.i32(_NESTED_VERSION)
    writer.i32(len(nested))
    for type_ in nested:
        _write(writer, type_)


_WRITERS: dict[Any, Callable[[Writer, Any], None]] = {
    Enumeration: _write_enum,
    Pojo: _write_pojo,
    Sql: _write_sql,
    Opaque: _write_kept,
    Like: _write_kept,
}


def _read(reader: Reader, depth: int) -> StateType:
    at = reader.offset
    name, version = reader.utf("class"), reader.i32("version")
    if name in _SIMPLE_TYPES:
        _check_version(reader, name, version, (2, _SIMPLE_VERSION))
        if version == 2:
            reader.utf("serializer")
        return _SIMPLE_TYPES[name]
    if depth == MAX_DEPTH:
        raise _unknown(reader, f"at most {MAX_DEPTH} nested serializers", "more")
    found = _special(reader, name, version, at, depth + 1)
    return _composite(reader, name, version, at, depth) if found is None else found


def _special(reader: Reader, name: str, version: int, at: int, depth: int) -> StateType | None:
    """Of a snapshot with a layout of its own; None if it has none."""
    if name in java.VERSIONS:
        _check_version(reader, name, version, (java.VERSIONS[name],))
        return _read_java(reader, name, at, depth)
    if name in sql.VERSIONS:
        _check_version(reader, name, version, sql.VERSIONS[name])
        return _read_sql(reader, name, version, at, depth)
    if name in like.NAMES:
        return like.read_like(reader, name, version, at, lambda: _read_nested(reader, depth, None))
    return None


def _read_sql(reader: Reader, name: str, version: int, at: int, depth: int) -> StateType:
    found = sql.read_sql_snapshot(reader, name, version, lambda inner: _read_nested(inner, depth, None))
    return Like(found, name.partition("$")[0], bytes(reader.since(at))) if is_only_read(found.type) else found


def _composite(reader: Reader, name: str, version: int, at: int, depth: int) -> StateType:
    read = _COMPOSITES.get(name)
    if read is None and isinstance(reader, ForeignReader) and version == _SIMPLE_VERSION and not _is_flinks(name):
        return java.foreign(name, reader.since(at))
    if read is None:
        raise UnsupportedError(
            f"{reader.what} at offset {at}: serializer snapshot of class {name[:200]!r} is not known to statelib",
            kind="unknown-serializer",
        )
    _check_version(reader, name, version, (_COMPOSITE_VERSION,))
    _check_magic(reader, _COMPOSITE_MAGIC)
    return read(reader, reader.i32("own version"), depth + 1)


def _read_java(reader: Reader, name: str, start: int, depth: int) -> StateType:
    if name == java.ENUM:
        return java.read_enum(reader)
    if name == java.POJO:
        return java.read_pojo(reader, lambda inner: _read(inner, depth))
    return java.read_kryo(reader, start)


def _read_list(reader: Reader, version: int, depth: int) -> StateType:
    _check_version(reader, _LIST, version, (1,))
    return ListOf(_read_nested(reader, depth, 1)[0])


def _read_map(reader: Reader, version: int, depth: int) -> StateType:
    _check_version(reader, _MAP, version, (1,))
    key, value = _read_nested(reader, depth, 2)
    return MapOf(key, value)


def _read_tuple(reader: Reader, version: int, depth: int) -> StateType:
    _check_version(reader, _TUPLE, version, (2,))
    name = reader.utf("tuple class")
    if not name.startswith(_TUPLE_CLASS):
        raise UnsupportedError(
            f"{reader.what}: tuple class {name[:200]!r} is not one of Flink's", kind="unknown-serializer"
        )
    fields = _read_nested(reader, depth, None)
    if not 1 <= len(fields) <= MAX_TUPLE_FIELDS:
        raise _unknown(reader, f"a tuple of 1 to {MAX_TUPLE_FIELDS} fields", str(len(fields)))
    if name != f"{_TUPLE_CLASS}{len(fields)}":
        raise _bad(reader, f"the fields of {name}", str(len(fields)))
    return Tuple(tuple(fields))


def _read_ttl(reader: Reader, version: int, depth: int) -> StateType:
    _check_version(reader, _TTL, version, (2,))
    moment, value = _read_nested(reader, depth, 2)
    if moment != LONG:
        raise _unknown(reader, "a long in front of a value that expires", str(moment))
    return Ttl(value)


def _read_row(reader: Reader, version: int, depth: int) -> StateType:
    _check_version(reader, _ROW, version, (3, 4))
    if version == 4 and not reader.bool("with row kind"):
        raise UnsupportedError(f"{reader.what}: Row without RowKind in its mask", kind="row-without-kind")
    types = _read_nested(reader, depth, None)
    if not types:
        raise _unknown(reader, "a row of at least one field", "none")
    return Row(tuple(Field(f"f{i}", type_) for i, type_ in enumerate(types)))


def _read_set(reader: Reader, version: int, depth: int) -> StateType:
    _check_version(reader, _SET, version, (1,))
    return SetOf(_read_nested(reader, depth, 1)[0])


def _read_either(reader: Reader, version: int, depth: int) -> StateType:
    _check_version(reader, _EITHER, version, (1,))
    left, right = _read_nested(reader, depth, 2)
    return Either(left, right)


def _read_generic_array(reader: Reader, version: int, depth: int) -> StateType:
    _check_version(reader, _GENERIC_ARRAY, version, (1,))
    name = reader.utf("component class")
    return ObjectArray(name, _read_nested(reader, depth, 1)[0])


def _read_nullable(reader: Reader, version: int, depth: int) -> StateType:
    _check_version(reader, _NULLABLE, version, (2,))
    padding = reader.i32("padding")
    if not 0 <= padding <= MAX_PADDING:
        raise _unknown(reader, f"a padding of 0 to {MAX_PADDING} bytes", str(padding))
    return Nullable(_read_nested(reader, depth, 1)[0], padding)


def _read_nested(reader: Reader, depth: int, count: int | None) -> list[StateType]:
    _check_magic(reader, _NESTED_MAGIC)
    _check_version(reader, "nested serializers", reader.i32("version of nested serializers"), (_NESTED_VERSION,))
    found = reader.count(6, "nested serializers")
    if count not in (None, found):
        raise _unknown(reader, f"{count} nested serializers", str(found))
    return [_numbered(reader, number, depth) for number in range(found)]


def _numbered(reader: Reader, number: int, depth: int) -> StateType:
    with reader.part(f"nested {number}"):
        return _read(reader, depth)


_COMPOSITES: dict[str, Callable[[Reader, int, int], StateType]] = {
    _LIST: _read_list,
    _MAP: _read_map,
    _TUPLE: _read_tuple,
    _ROW: _read_row,
    _TTL: _read_ttl,
    _TTL_V2: _read_ttl,
    _SET: _read_set,
    _EITHER: _read_either,
    _GENERIC_ARRAY: _read_generic_array,
    _NULLABLE: _read_nullable,
}


def _check_magic(reader: Reader, magic: int) -> None:
    found = reader.u32("magic")
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


def _unknown(reader: Reader, expected: str, found: str) -> UnsupportedError:
    """Bytes that do not contradict themselves, and yet describe a serializer that statelib has no form for."""
    return UnsupportedError(
        f"{reader.what} before offset {reader.offset}: expected {expected}, found {found}", kind="unknown-serializer"
    )
