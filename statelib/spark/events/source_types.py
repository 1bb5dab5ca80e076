"""The types of a source's columns: Spark's name of each declared type, and the types that can be read as another
one."""

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


def spark_name(type_: StateType) -> str:
    """Return Spark's name of the type of a column, as ``DataType.simpleString`` writes it."""
    return spark_type(codec_of(type_).arrow_type).simpleString()


def is_read_as(actual: str, wanted: str) -> bool:
    """Return whether every value of Spark's type ``actual`` is also a value of the type ``wanted``."""
    return actual == wanted or wanted in _WIDENINGS.get(actual, set())
