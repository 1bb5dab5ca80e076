"""Logical types of SQL as Flink's snapshots hold them: Java objects, one stream each.

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
"""The parameters of a root, by the names of the fields of its class."""
_VARIANTS = {
    "TIMESTAMP_WITHOUT_TIME_ZONE": ("kind", "TimestampKind", "REGULAR"),
    "TIMESTAMP_WITH_LOCAL_TIME_ZONE": ("kind", "TimestampKind", "REGULAR"),
    "INTERVAL_YEAR_MONTH": ("resolution", "YearMonthIntervalType$YearMonthResolution", "YEAR_TO_MONTH"),
    "INTERVAL_DAY_TIME": ("resolution", "DayTimeIntervalType$DayTimeResolution", "DAY_TO_SECOND"),
}
"""Field, enum and usual constant of a root's variant."""
_JAVA_CLASS = {"STRUCTURED_TYPE": ("implementationClass", "className"), "RAW": ("clazz",)}
"""Where the Java class of a root's values stands; of the fields the first that is there."""
_PARTS = {"ARRAY": ("elementType",), "MULTISET": ("elementType",), "MAP": ("keyType", "valueType")}
_TYPE, _LIST, _TEXT = f"L{_PACKAGE.replace('.', '/')}LogicalType;", "Ljava/util/List;", "Ljava/lang/String;"
_SERIALIZABLE = 0x02
MAX_TYPES = 10_000
"""In one logical type. Java's references let a short stream hold a type within itself, or endlessly many of them."""


def read_logical_type(reader: Reader) -> LogicalType:
    """The type that the Java object at this place describes.

    Raises UnsupportedError (``logical-type``) naming a class that statelib does not know, or what else of the type it
    has no form for."""
    at = reader.offset
    with reader.part("logical type"):
        found = read_object(reader)
    return _Logical(f"{reader.what} at offset {at}").type(found, 0)


def write_logical_type(writer: Writer, type_: LogicalType) -> None:
    """The inverse: Flink reads back an equal type. Not for what :func:`is_only_read`."""
    write_object(writer, _to_java(type_))


def is_only_read(type_: LogicalType) -> bool:
    """Whether Java objects that statelib does not keep are part of the type: the serializer of a RAW one, the class of
    a STRUCTURED one."""
    return type_.root in _JAVA_CLASS or any(is_only_read(part.type) for part in type_.parts)


class _Logical:
    """From Java objects; ``where`` they come from."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.count = 0

    def type(self, found: Any, depth: int) -> LogicalType:
        self.count += 1
        if depth > MAX_DEPTH or self.count > MAX_TYPES:
            raise self.unknown(f"at most {MAX_TYPES} logical types, {MAX_DEPTH} deep", "more")
        if not isinstance(found, JavaObject) or found.type.name not in _ROOTS:
            name = found.type.name if isinstance(found, JavaObject) else type(found).__name__
            raise UnsupportedError(
                f"{self.where}: logical type of class {name[:200]!r} is not known", kind="logical-type"
            )
        root, values = _ROOTS[found.type.name], found.values
        parameters = tuple(self.number(values.get(name)) for name in _NUMBERS.get(root, ()))
        problem = parameters_problem(root, parameters)
        if problem:
            raise self.unknown(*problem)
        return LogicalType(
            root, bool(values.get("isNullable")), parameters, _variant(root, values), self.parts(root, values, depth)
        )

    def number(self, value: Any) -> int:
        if not isinstance(value, int):
            raise self.unknown("the parameter of a logical type", type(value).__name__)
        return value

    def parts(self, root: str, values: dict[str, Any], depth: int) -> tuple[SqlField, ...]:
        if root not in ROWS:
            return tuple(SqlField("", self.type(values.get(name), depth + 1)) for name in _PARTS.get(root, ()))
        inherited = self.inherited(values.get("superType"), depth)
        fields = list_items(values.get("fields" if root == "ROW" else "attributes"))
        if fields is None:
            raise self.unknown(f"the fields of a {root}", "none")
        return inherited + tuple(self.field(field, depth) for field in fields)

    def inherited(self, found: Any, depth: int) -> tuple[SqlField, ...]:
        """The attributes of a STRUCTURED type's supertypes, the topmost one's first: so they lie in its rows."""
        if found is None:
            return ()
        supertype = self.type(found, depth + 1)
        if supertype.root != "STRUCTURED_TYPE":
            raise self.unknown("a STRUCTURED type as a supertype", supertype.root)
        return supertype.parts

    def field(self, found: Any, depth: int) -> SqlField:
        name = found.values.get("name") if isinstance(found, JavaObject) else None
        if not isinstance(name, str):
            raise self.unknown("a field of a row", type(found).__name__)
        return SqlField(name, self.type(found.values.get("type"), depth + 1))

    def unknown(self, expected: str, found: str) -> UnsupportedError:
        """Java's stream is whole: what its objects mean is not known."""
        return UnsupportedError(f"{self.where}: logical type: expected {expected}, found {found}", kind="logical-type")


def _variant(root: str, values: dict[str, Any]) -> str:
    if root in _JAVA_CLASS:
        found = [value for value in map(values.get, _JAVA_CLASS[root]) if value is not None]
        return _class_name(found[0]) if found else ""
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
