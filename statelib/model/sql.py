"""Logical types of Flink SQL: what the fields of an internal row are.

Source: flink-formats.md section 6.7; the names are those of Flink's ``LogicalTypeRoot``.
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
"""Each root, and how statelib writes it."""
ROWS = ("ROW", "STRUCTURED_TYPE")
"""Roots with named fields, whose values are binary rows."""


_MAX_DIGITS, _MAX_FRACTION = 38, 9
_TIMED = ("TIMESTAMP_WITHOUT_TIME_ZONE", "TIMESTAMP_WITH_LOCAL_TIME_ZONE")


def parameters_problem(root: str, parameters: tuple[int, ...]) -> tuple[str, str] | None:
    """(expected, found) where the parameters are none that Flink allows; None where all is well."""
    found = ", ".join(map(str, parameters)) or "nothing"
    if root == "DECIMAL" and not (
        len(parameters) == 2 and 1 <= parameters[0] <= _MAX_DIGITS and 0 <= parameters[1] <= parameters[0]
    ):
        return f"DECIMAL of 1 to {_MAX_DIGITS} digits", found
    if root in _TIMED and not (len(parameters) == 1 and 0 <= parameters[0] <= _MAX_FRACTION):
        return f"a timestamp of 0 to {_MAX_FRACTION} digits of a second", found
    return None


@dataclass(frozen=True)
class LogicalType:
    """``parameters``: length; precision; precision and scale; day and fractional precision. ``variant``: kind of a
    timestamp or resolution of an interval, '' for the usual one; the Java class of a STRUCTURED or RAW type, '' if it
    has none. ``parts``: fields of a ROW or STRUCTURED type, the one type of an ARRAY or MULTISET, key and value of a
    MAP; only fields have names."""

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
    name: str
    type: LogicalType

    def __str__(self) -> str:
        return f"{self.name}: {self.type}" if self.name else str(self.type)
