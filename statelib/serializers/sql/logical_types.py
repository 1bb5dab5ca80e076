"""Logical types of SQL as Java objects. In a snapshot each is a Java stream of its own.

Source: docs/spec/formats.md#sql-types.
"""

from typing import Any

from statelib.errors import UnsupportedError
from statelib.model.sql import ROWS, LogicalType, SqlField, parameters_problem
from statelib.wire.java_objects import (
    MAX_DEPTH,
    JavaClass,
    JavaClassValue,
    JavaEnum,
    JavaObject,
    array_list,
    enum_of,
    list_items,
    read_object,
    write_object,
)
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

_PACKAGE = "org.apache.flink.table.types.logical."
_CLASSES = {
    "CHAR": "CharType", "VARCHAR": "VarCharType", "BOOLEAN": "BooleanType", "BINARY": "BinaryType",
    "VARBINARY": "VarBinaryType", "DECIMAL": "DecimalType", "TINYINT": "TinyIntType", "SMALLINT": "SmallIntType",
    "INTEGER": "IntType", "BIGINT": "BigIntType", "FLOAT": "FloatType", "DOUBLE": "DoubleType", "DATE": "DateType",
    "TIME_WITHOUT_TIME_ZONE": "TimeType", "TIMESTAMP_WITHOUT_TIME_ZONE": "TimestampType",
    "TIMESTAMP_WITH_LOCAL_TIME_ZONE": "LocalZonedTimestampType", "INTERVAL_YEAR_MONTH": "YearMonthIntervalType",
    "INTERVAL_DAY_TIME": "DayTimeIntervalType", "ARRAY": "ArrayType", "MULTISET": "MultisetType", "MAP": "MapType",
    "ROW": "RowType", "STRUCTURED_TYPE": "StructuredType", "RAW": "RawType",
}  # fmt: skip
_ROOTS = {f"{_PACKAGE}{name}": root for root, name in _CLASSES.items()}
_NUMBERS = {
    **dict.fromkeys(("CHAR", "VARCHAR", "BINARY", "VARBINARY"), ("length",)),
    **dict.fromkeys(
        ("TIME_WITHOUT_TIME_ZONE", "TIMESTAMP_WITHOUT_TIME_ZONE", "TIMESTAMP_WITH_LOCAL_TIME_ZONE"), ("precision",)
    ),
    "DECIMAL": ("precision", "scale"),
    "INTERVAL_YEAR_MONTH": ("yearPrecision",),
    "INTERVAL_DAY_TIME": ("dayPrecision", "fractionalPrecision"),
}  # fmt: skip
"""The names of the fields of a class that hold the parameters of its root."""
_VARIANTS = {
    "TIMESTAMP_WITHOUT_TIME_ZONE": ("kind", "TimestampKind", "REGULAR"),
    "TIMESTAMP_WITH_LOCAL_TIME_ZONE": ("kind", "TimestampKind", "REGULAR"),
    "INTERVAL_YEAR_MONTH": ("resolution", "YearMonthIntervalType$YearMonthResolution", "YEAR_TO_MONTH"),
    "INTERVAL_DAY_TIME": ("resolution", "DayTimeIntervalType$DayTimeResolution", "DAY_TO_SECOND"),
}
"""The field, the enum and the usual constant of the variant of a root."""
_JAVA_CLASS = {"STRUCTURED_TYPE": ("implementationClass", "className"), "RAW": ("clazz",)}
"""The fields that name the Java class of a root's values. The first one that is set counts."""
_PARTS = {"ARRAY": ("elementType",), "MULTISET": ("elementType",), "MAP": ("keyType", "valueType")}
_TYPE, _LIST, _TEXT = f"L{_PACKAGE.replace('.', '/')}LogicalType;", "Ljava/util/List;", "Ljava/lang/String;"
_SERIALIZABLE = 0x02
MAX_TYPES = 10_000
"""The most types within one logical type. By Java's references a short stream can hold a type within itself, or
endlessly many types."""


def read_logical_type(reader: Reader) -> LogicalType:
    """Return the type that the Java object at the reader's offset describes.

    Raise UnsupportedError (``logical-type``) naming the class, or the property of the type, that statelib does not
    support."""
    at = reader.offset
    with reader.part("logical type"):
        java_object = read_object(reader)
    return _TypeBuilder(f"{reader.what} at offset {at}").type(java_object, 0)


def write_logical_type(writer: Writer, type_: LogicalType) -> None:
    """Write a type so that Flink reads back an equal one. The type must not be one that :func:`is_only_read`."""
    write_object(writer, _to_java(type_))


def is_only_read(type_: LogicalType) -> bool:
    """Return whether the type holds Java objects that statelib does not keep: the serializer of a RAW type, or the
    class of a STRUCTURED type."""
    return type_.root in _JAVA_CLASS or any(is_only_read(part.type) for part in type_.parts)


class _TypeBuilder:
    """Builds a logical type from Java objects. ``source`` names the place that they were read from."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.count = 0

    def type(self, java_object: Any, depth: int) -> LogicalType:
        """Return the type that a Java object describes, ``depth`` levels deep in the whole type."""
        self.count += 1
        if depth > MAX_DEPTH or self.count > MAX_TYPES:
            raise self.unknown(f"at most {MAX_TYPES} logical types, {MAX_DEPTH} deep", "more")
        if not isinstance(java_object, JavaObject) or java_object.type.name not in _ROOTS:
            name = java_object.type.name if isinstance(java_object, JavaObject) else type(java_object).__name__
            raise UnsupportedError(
                f"{self.source}: logical type of class {name[:200]!r} is not known", kind="logical-type"
            )
        root, values = _ROOTS[java_object.type.name], java_object.values
        parameters = tuple(self.number(values.get(name)) for name in _NUMBERS.get(root, ()))
        problem = parameters_problem(root, parameters)
        if problem:
            raise self.unknown(*problem)
        return LogicalType(
            root, bool(values.get("isNullable")), parameters, _variant(root, values), self.parts(root, values, depth)
        )

    def number(self, value: Any) -> int:
        """Return a parameter."""
        if not isinstance(value, int):
            raise self.unknown("the parameter of a logical type", type(value).__name__)
        return value

    def parts(self, root: str, values: dict[str, Any], depth: int) -> tuple[SqlField, ...]:
        """Return the types of elements, of keys and values, or of fields."""
        if root not in ROWS:
            return tuple(SqlField("", self.type(values.get(name), depth + 1)) for name in _PARTS.get(root, ()))
        inherited = self.inherited(values.get("superType"), depth)
        fields = list_items(values.get("fields" if root == "ROW" else "attributes"))
        if fields is None:
            raise self.unknown(f"the fields of a {root}", "none")
        return inherited + tuple(self.field(field, depth) for field in fields)

    def inherited(self, supertype_object: Any, depth: int) -> tuple[SqlField, ...]:
        """Return the attributes of the supertypes of a STRUCTURED type, those of the topmost one first. That is their
        order in a row."""
        if supertype_object is None:
            return ()
        supertype = self.type(supertype_object, depth + 1)
        if supertype.root != "STRUCTURED_TYPE":
            raise self.unknown("a STRUCTURED type as a supertype", supertype.root)
        return supertype.parts

    def field(self, field_object: Any, depth: int) -> SqlField:
        """Return a field of a row."""
        name = field_object.values.get("name") if isinstance(field_object, JavaObject) else None
        if not isinstance(name, str):
            raise self.unknown("a field of a row", type(field_object).__name__)
        return SqlField(name, self.type(field_object.values.get("type"), depth + 1))

    def unknown(self, expected: str, actual: str) -> UnsupportedError:
        """Return the error for Java objects that are whole, but describe no type that statelib supports."""
        return UnsupportedError(
            f"{self.source}: logical type: expected {expected}, found {actual}", kind="logical-type"
        )


def _variant(root: str, values: dict[str, Any]) -> str:
    if root in _JAVA_CLASS:
        classes = [value for value in map(values.get, _JAVA_CLASS[root]) if value is not None]
        return _class_name(classes[0]) if classes else ""
    if root not in _VARIANTS:
        return ""
    name, _, usual = _VARIANTS[root]
    constant = values[name].constant if isinstance(values.get(name), JavaEnum) else usual
    return "" if constant == usual else str(constant)


def _class_name(value: Any) -> str:
    return value.type.name if isinstance(value, JavaClassValue) else value if isinstance(value, str) else ""


def _to_java(type_: LogicalType) -> JavaObject:
    root = type_.root
    numbers = [("I", name, "") for name in _NUMBERS.get(root, ())]
    objects = [("L", name, _TYPE) for name in _PARTS.get(root, ())]
    values: dict[str, Any] = dict(zip(_NUMBERS.get(root, ()), type_.parameters, strict=True))
    values |= {name: _to_java(part.type) for name, part in zip(_PARTS.get(root, ()), type_.parts, strict=False)}
    if root in _VARIANTS:
        name, enum, usual = _VARIANTS[root]
        objects.append(("L", name, f"L{(_PACKAGE + enum).replace('.', '/')};"))
        values[name] = enum_of(_PACKAGE + enum, type_.variant or usual)
    if root == "ROW":
        objects.append(("L", "fields", _LIST))
        values["fields"] = array_list([_row_field(field) for field in type_.parts])
    values |= {"isNullable": type_.nullable, "typeRoot": enum_of(f"{_PACKAGE}LogicalTypeRoot", root)}
    return JavaObject(_class(_CLASSES[root], (*numbers, *objects), _BASE), values)


def _class(name: str, fields: tuple[tuple[str, str, str], ...], parent: JavaClass | None) -> JavaClass:
    return JavaClass(_PACKAGE + name, 1, _SERIALIZABLE, fields, parent)


_BASE = _class(
    "LogicalType",
    (("Z", "isNullable", ""), ("L", "typeRoot", f"L{_PACKAGE.replace('.', '/')}LogicalTypeRoot;")),
    None,
)
_ROW_FIELD = _class("RowType$RowField", (("L", "description", _TEXT), ("L", "name", _TEXT), ("L", "type", _TYPE)), None)


def _row_field(field: SqlField) -> JavaObject:
    return JavaObject(_ROW_FIELD, {"description": None, "name": field.name, "type": _to_java(field.type)})
