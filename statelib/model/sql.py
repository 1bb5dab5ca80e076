"""The logical types of Flink SQL, which are the types of the fields of an internal row.

Source: docs/spec/formats.md#sql-types; the names are those of Flink's ``LogicalTypeRoot``.
"""

from dataclasses import dataclass

TEXTS = {
    "CHAR": "CHAR", "VARCHAR": "VARCHAR", "BOOLEAN": "BOOLEAN", "BINARY": "BINARY", "VARBINARY": "VARBINARY",
    "DECIMAL": "DECIMAL", "TINYINT": "TINYINT", "SMALLINT": "SMALLINT", "INTEGER": "INT", "BIGINT": "BIGINT",
    "FLOAT": "FLOAT", "DOUBLE": "DOUBLE", "DATE": "DATE", "TIME_WITHOUT_TIME_ZONE": "TIME",
    "TIMESTAMP_WITHOUT_TIME_ZONE": "TIMESTAMP", "TIMESTAMP_WITH_LOCAL_TIME_ZONE": "TIMESTAMP_LTZ",
    "INTERVAL_YEAR_MONTH": "INTERVAL_YEAR_MONTH", "INTERVAL_DAY_TIME": "INTERVAL_DAY_TIME",
    "ARRAY": "ARRAY", "MULTISET": "MULTISET", "MAP": "MAP", "ROW": "ROW",
    "STRUCTURED_TYPE": "STRUCTURED", "RAW": "RAW",
}  # fmt: skip
"""The text form of each type root."""
ROWS = ("ROW", "STRUCTURED_TYPE")
"""Roots with named fields, whose values are binary rows."""


MAX_DIGITS = 38
"""The most digits of a decimal number."""
_MAX_FRACTION = 9
_TIMED = ("TIMESTAMP_WITHOUT_TIME_ZONE", "TIMESTAMP_WITH_LOCAL_TIME_ZONE")


def quoted_name(name: str) -> str:
    """Return a name as standard SQL has it, in quotation marks. Spark has other ones."""
    return '"' + name.replace('"', '""') + '"'


def parameters_problem(root: str, parameters: tuple[int, ...]) -> tuple[str, str] | None:
    """Return (expected, found) as texts if Flink does not allow the parameters for this type root; None if it does."""
    actual = ", ".join(map(str, parameters)) or "nothing"
    if root == "DECIMAL" and not (
        len(parameters) == 2 and 1 <= parameters[0] <= MAX_DIGITS and 0 <= parameters[1] <= parameters[0]
    ):
        return f"DECIMAL of 1 to {MAX_DIGITS} digits", actual
    if root in _TIMED and not (len(parameters) == 1 and 0 <= parameters[0] <= _MAX_FRACTION):
        return f"a timestamp of 0 to {_MAX_FRACTION} digits of a second", actual
    return None


@dataclass(frozen=True)
class LogicalType:
    """A logical type of Flink SQL. ``root``: the name of a ``LogicalTypeRoot``.

    ``parameters``: depending on the root, its length, its precision, its precision and scale, or its day and
    fractional precision. ``variant``: the kind of a timestamp or the resolution of an interval, '' for the usual one;
    the Java class of a STRUCTURED or RAW type, '' if it has none. ``parts``: the fields of a ROW or STRUCTURED type,
    the element type of an ARRAY or MULTISET, the key and value types of a MAP; only fields have names."""

    root: str
    nullable: bool = True
    parameters: tuple[int, ...] = ()
    variant: str = ""
    parts: tuple["SqlField", ...] = ()

    def __str__(self) -> str:
        numbers = ", ".join(map(str, self.parameters))
        variant = f"{', ' if numbers else ''}{self.variant}" if self.variant else ""
        inside = f"({numbers}{variant})" if numbers or variant else ""
        parts = f"<{', '.join(map(str, self.parts))}>" if self.parts or self.root in ROWS else ""
        return f"{TEXTS[self.root]}{inside}{parts}{'' if self.nullable else ' NOT NULL'}"


@dataclass(frozen=True)
class SqlField:
    """A part of a logical type. ``name`` is '' if it is not a field of a ROW or STRUCTURED type."""

    name: str
    type: LogicalType

    def __str__(self) -> str:
        return f"{self.name}: {self.type}" if self.name else str(self.type)
