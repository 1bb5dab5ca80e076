"""The names and types of a source's columns: their forms in Spark's SQL, and the types that can be read as another
one."""

import re

from statelib.model.types import StateType
from statelib.serializers.registry import codec_of
from statelib.spark.dataframe.arrow_types import spark_type

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


def spark_name(type_: StateType) -> str:
    """Return Spark's name of the type of a column, as ``DataType.simpleString`` writes it."""
    return spark_type(codec_of(type_).arrow_type).simpleString()


def quoted(name: str) -> str:
    """Return the name of a column as a name in SQL."""
    return f"`{name.replace('`', '``')}`"


def is_read_as(actual: str, wanted: str) -> bool:
    """Return whether every value of Spark's type ``actual`` is also a value of the type ``wanted``."""
    return actual == wanted or wanted in _WIDENINGS.get(actual, set()) or _fits_decimal(actual, wanted)


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
