"""The types of a source's columns: what Spark calls those that pipelines declare, and which others stand for them."""

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
    """Whether a column of Spark's type ``actual`` holds values of ``wanted`` only."""
    return actual == wanted or wanted in _WIDENINGS.get(actual, set())
