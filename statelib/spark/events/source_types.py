"""The names and types of a source's columns: their forms in Spark's SQL, and the types that can be read as another
one."""

import re
from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from statelib.model.types import StateType
from statelib.serializers.registry import codec_of
from statelib.spark.dataframe.arrow_types import spark_type

LOCAL, INSTANT = "timestamp_ntz", "timestamp"
"""Spark's types for a time without a zone, and for an instant. The session's time zone is UTC, in which each can be
cast to the other without loss."""
BY_ZONE = {INSTANT: (LOCAL, "date"), LOCAL: (INSTANT,)}
"""The types of expressions that become a type by the zone of the source."""
_WIDENINGS = {
    "tinyint": {"smallint", "int", "bigint", "float", "double"},
    "smallint": {"int", "bigint", "float", "double"},
    "int": {"bigint", "double"},
    "float": {"double"},
    "date": set(),
}
_WHOLE_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
"""The number of digits that the values of Spark's integer types may have."""
_DECIMAL = re.compile(r"decimal\(([0-9]+),([0-9]+)\)")
_OF_ARROW: Mapping[pa.DataType, str] = {
    pa.bool_(): "boolean", pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint",
    pa.float32(): "float", pa.float64(): "double", pa.string(): "string", pa.large_string(): "string",
    pa.binary(): "binary", pa.large_binary(): "binary", pa.date32(): "date",
    pa.timestamp("ms"): LOCAL, pa.timestamp("us"): LOCAL,
}  # fmt: skip
_NUMBERS_AND_TIMES = (*_WIDENINGS, "bigint", "double", INSTANT, LOCAL)


def spark_name(type_: StateType) -> str:
    """Return Spark's name of the type of a column, as ``DataType.simpleString`` writes it."""
    return spark_type(codec_of(type_).arrow_type).simpleString()


def sql_type(type_: StateType) -> str:
    """Return the type of a column as SQL takes it, in which the names of fields are quoted."""
    return in_sql(spark_type(codec_of(type_).arrow_type))


def in_sql(type_: DataType) -> str:
    """Return a type of Spark as SQL takes it, in which the names of fields are quoted."""
    if isinstance(type_, StructType):
        return f"struct<{', '.join(f'{quoted(field.name)}: {in_sql(field.dataType)}' for field in type_.fields)}>"
    if isinstance(type_, ArrayType | MapType):
        name = "array" if isinstance(type_, ArrayType) else "map"
        return f"{name}<{', '.join(map(in_sql, _inner(type_)))}>"
    return type_.simpleString()


def times_differ(actual: DataType, type_: StateType) -> bool:
    """Return whether a value of Spark's type ``actual`` has times, in a list, a map or a row, that become those of the
    type of a column by the zone of the source only."""
    return _times_differ(actual, spark_type(codec_of(type_).arrow_type))


def _times_differ(actual: DataType, wanted: DataType) -> bool:
    within, wanted_within = _inner(actual), _inner(wanted)
    return any(
        inner.simpleString() in BY_ZONE.get(wanted_inner.simpleString(), ()) or _times_differ(inner, wanted_inner)
        for inner, wanted_inner in zip(within, wanted_within, strict=False)
    )


def _inner(type_: DataType) -> list[DataType]:
    """Return the types of the fields, elements, or keys and values of a type; none if it has no such parts."""
    if isinstance(type_, StructType):
        return [field.dataType for field in type_.fields]
    if isinstance(type_, MapType):
        return [type_.keyType, type_.valueType]
    return [type_.elementType] if isinstance(type_, ArrayType) else []


def quoted(name: str) -> str:
    """Return the name of a column as a name in SQL."""
    return f"`{name.replace('`', '``')}`"


def is_read_as(actual: str, wanted: str) -> bool:
    """Return whether every value of Spark's type ``actual`` is also a value of the type ``wanted``."""
    return actual == wanted or wanted in _WIDENINGS.get(actual, set()) or _fits_decimal(actual, wanted)


def parquet_type(arrow: pa.DataType) -> str:
    """Return the name of the type in which Spark reads a Parquet column of this Arrow type; '' if it is not certain."""
    if pa.types.is_dictionary(arrow):
        arrow = arrow.value_type
    if pa.types.is_timestamp(arrow) and arrow.tz is not None and arrow.unit in ("ms", "us"):
        return "timestamp"
    if pa.types.is_decimal128(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    return _OF_ARROW.get(arrow, "")


def is_misread(actual: str, wanted: str) -> bool:
    """Return whether Spark may read the values of a Parquet column of its type ``actual`` as other values of the type
    ``wanted``, without an error: it takes the stored bits of numbers and times, and cuts them."""
    if not all(name in _NUMBERS_AND_TIMES or _DECIMAL.fullmatch(name) for name in (actual, wanted)):
        return False
    return not is_read_as(actual, wanted) and (actual, wanted) != ("date", "timestamp_ntz")


def _fits_decimal(actual: str, wanted: str) -> bool:
    """Return whether the wanted type is a decimal with enough digits on both sides of the point."""
    digits = _DECIMAL.fullmatch(wanted)
    if digits is None:
        return False
    precision, scale = map(int, digits.groups())
    actual_digits = _DECIMAL.fullmatch(actual)
    if actual_digits is None:
        return _WHOLE_DIGITS.get(actual, precision + 1) <= precision - scale
    actual_precision, actual_scale = map(int, actual_digits.groups())
    return 0 <= scale - actual_scale <= precision - actual_precision
