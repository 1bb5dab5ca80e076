"""Snapshots of the serializers of Flink SQL's internal values.

Source: docs/spec/formats.md#sql-types.
"""

from collections.abc import Callable

from statelib.errors import UnsupportedError
from statelib.model.sql import LogicalType, SqlField, parameters_problem
from statelib.model.types import (
    BOOLEAN,
    BYTE,
    BYTES,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    SHORT,
    Sql,
    StateType,
)
from statelib.serializers.sql.logical_types import read_logical_type, write_logical_type
from statelib.wire.java_objects import JavaClass, JavaObject, read_object, write_object
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

_PACKAGE = "org.apache.flink.table.runtime.typeutils."
ROW = _PACKAGE + "RowDataSerializer$RowDataSerializerSnapshot"
STRING = _PACKAGE + "StringDataSerializer$StringDataSerializerSnapshot"
DECIMAL = _PACKAGE + "DecimalDataSerializer$DecimalSerializerSnapshot"
TIMESTAMP = _PACKAGE + "TimestampDataSerializer$TimestampDataSerializerSnapshot"
ARRAY = _PACKAGE + "ArrayDataSerializer$ArrayDataSerializerSnapshot"
MAP = _PACKAGE + "MapDataSerializer$MapDataSerializerSnapshot"
VERSIONS = {ROW: (3,), STRING: (2, 3), DECIMAL: (3,), TIMESTAMP: (1,), ARRAY: (3,), MAP: (3,)}

MAX_LENGTH = 2**31 - 1
PLAIN: dict[str, StateType] = {
    "BOOLEAN": BOOLEAN, "TINYINT": BYTE, "SMALLINT": SHORT, "INTEGER": INT, "DATE": INT,
    "TIME_WITHOUT_TIME_ZONE": INT, "INTERVAL_YEAR_MONTH": INT, "BIGINT": LONG, "INTERVAL_DAY_TIME": LONG,
    "FLOAT": FLOAT, "DOUBLE": DOUBLE, "BINARY": BYTES, "VARBINARY": BYTES,
}  # fmt: skip
"""Roots whose values have the serializer of a plain type inside of rows."""
_TEXTS = ("CHAR", "VARCHAR")
_TIMESTAMPS = ("TIMESTAMP_WITHOUT_TIME_ZONE", "TIMESTAMP_WITH_LOCAL_TIME_ZONE")

MULTIPLICITY = LogicalType("INTEGER", nullable=False)
"""The type of the number of times that an element of a MULTISET occurs."""

ReadNested = Callable[[Reader], list[StateType]]
WriteNested = Callable[[Writer, tuple[StateType, ...]], None]


def read_sql_snapshot(reader: Reader, name: str, version: int, nested: ReadNested) -> Sql:
    """Read the payload of the snapshot of class ``name``. ``nested`` reads the snapshots of a row's fields.

    Raise UnsupportedError (``logical-type``)."""
    if name == ROW:
        types = [read_logical_type(reader) for _ in range(reader.count(5, "fields"))]
        nested(reader)
        return Sql(LogicalType("ROW", parts=tuple(SqlField(f"f{i}", type_) for i, type_ in enumerate(types))))
    if name == STRING:
        if version == 2:
            reader.utf()
        return Sql(LogicalType("VARCHAR", parameters=(MAX_LENGTH,)))
    if name == DECIMAL:
        return Sql(_with_parameters(reader, "DECIMAL", (reader.i32("precision"), reader.i32("scale"))))
    if name == TIMESTAMP:
        return Sql(_with_parameters(reader, _TIMESTAMPS[0], (reader.i32("precision"),)))
    count = 1 if name == ARRAY else 2
    parts = tuple(SqlField("", read_logical_type(reader)) for _ in range(count))
    for _ in range(count):
        read_object(reader)  # the serializer of the part, which follows from its type
    return Sql(LogicalType("ARRAY" if name == ARRAY else "MAP", parts=parts))


def _with_parameters(reader: Reader, root: str, parameters: tuple[int, ...]) -> LogicalType:
    problem = parameters_problem(root, parameters)
    if problem:
        expected, actual = problem
        raise UnsupportedError(
            f"{reader.what} before offset {reader.offset}: expected {expected}, found {actual}", kind="logical-type"
        )
    return LogicalType(root, parameters=parameters)


def write_sql_snapshot(writer: Writer, type_: LogicalType, nested: WriteNested) -> None:
    """Write a whole snapshot, class name included. ``nested`` writes those of a row's fields.

    Raise UnsupportedError (``sql-type-not-written``)."""
    root = type_.root
    name = _class_of(root)
    writer.utf(name)
    writer.i32(VERSIONS[name][-1])
    if root == "ROW":
        writer.i32(len(type_.parts))
        for field in type_.parts:
            write_logical_type(writer, field.type)
        nested(writer, tuple(PLAIN.get(field.type.root) or Sql(field.type) for field in type_.parts))
    elif name in (ARRAY, MAP):
        _write_parts(writer, type_)
    elif root not in _TEXTS:
        for parameter in type_.parameters:
            writer.i32(parameter)


def _write_parts(writer: Writer, type_: LogicalType) -> None:
    """Write types and serializers of elements, or of keys and values, as Java objects."""
    parts = [part.type for part in type_.parts]
    if type_.root == "MULTISET":
        parts.append(MULTIPLICITY)
    serializers = [_serializer_of(part) for part in parts]
    for part in parts:
        write_logical_type(writer, part)
    for serializer in serializers:
        write_object(writer, serializer)


_CLASSES = {"ROW": ROW, "DECIMAL": DECIMAL, "ARRAY": ARRAY, "MAP": MAP, "MULTISET": MAP}


def _class_of(root: str) -> str:
    if root in _TEXTS:
        return STRING
    if root in _TIMESTAMPS:
        return TIMESTAMP
    if root not in _CLASSES:
        raise UnsupportedError(
            f"the serializer of logical type {root} is read, and not written",
            kind="sql-type-not-written",
            hint="take the state from a snapshot that Flink wrote",
        )
    return _CLASSES[root]


_SERIALIZABLE = 0x02
_BASE = "org.apache.flink.api.common.typeutils."
_SERIALIZER = JavaClass(_BASE + "TypeSerializer", 1, _SERIALIZABLE, ())
_SINGLETON = JavaClass(_BASE + "base.TypeSerializerSingleton", 8766687317209282373, _SERIALIZABLE, (), _SERIALIZER)
_SINGLETONS = {
    "boolean": "BooleanSerializer", "byte": "ByteSerializer", "short": "ShortSerializer", "int": "IntSerializer",
    "long": "LongSerializer", "float": "FloatSerializer", "double": "DoubleSerializer",
    "bytes": "array.BytePrimitiveArraySerializer",
}  # fmt: skip
"""The serializer's class in ``typeutils.base`` per plain type."""


def _serializer_of(type_: LogicalType) -> JavaObject:
    """Return the serializer of a part of an array or a map as a Java object.

    Raise UnsupportedError (``sql-type-not-written``)."""
    root = type_.root
    if root in PLAIN:
        return JavaObject(_serializer_class(f"{_BASE}base.{_SINGLETONS[str(PLAIN[root])]}", (), _SINGLETON))
    if root in _TEXTS:
        return JavaObject(_serializer_class(_PACKAGE + "StringDataSerializer", (), _SINGLETON))
    if root == "DECIMAL" or root in _TIMESTAMPS:
        name = "DecimalDataSerializer" if root == "DECIMAL" else "TimestampDataSerializer"
        fields = ("precision", "scale")[: len(type_.parameters)]
        return JavaObject(
            _serializer_class(_PACKAGE + name, tuple(("I", field, "") for field in fields), _SERIALIZER),
            dict(zip(fields, type_.parameters, strict=True)),
        )
    raise UnsupportedError(
        f"logical type {type_} within an ARRAY, a MAP or a MULTISET is read, and not written",
        kind="sql-type-not-written",
        hint="its serializer's snapshot holds lambdas of Java, named differently in each version of Flink",
    )


def _serializer_class(name: str, fields: tuple[tuple[str, str, str], ...], parent: JavaClass) -> JavaClass:
    return JavaClass(name, 1, _SERIALIZABLE, fields, parent)
