"""The types of a source's columns: Spark's name of each declared type, and the types that can be read as another
one."""

SPARK_TYPES = {
    "boolean": "boolean", "byte": "tinyint", "short": "smallint", "int": "int", "long": "bigint",
    "float": "float", "double": "double", "string": "string", "bytes": "binary", "date": "date",
    "datetime": "timestamp_ntz", "instant": "timestamp",
}  # fmt: skip

_WIDENINGS = {
    "tinyint": {"smallint", "int", "bigint", "float", "double"},
    "smallint": {"int", "bigint", "float", "double"},
    "int": {"bigint", "double"},
    "float": {"double"},
    "date": set(),
}


def is_read_as(actual: str, wanted: str) -> bool:
    """Return whether every value of Spark's type ``actual`` is also a value of the type ``wanted``."""
    return actual == wanted or wanted in _WIDENINGS.get(actual, set())
