"""The rows of a change log as events: each change is one row that is applied or taken back, or both rows of an update.

``changes`` of the source says where the operation is, and in an envelope the rows before and after it."""

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from statelib.definition.parts.source import ChangeLogColumns
from statelib.functions.change_logs.changes import APPLIED, CHANGE, RETRACTED
from statelib.spark.events.source_types import quoted

ROW = "row"
"""The column with the row before or after a change of an envelope."""
CHANGE_TYPE = "tinyint"
"""Spark's type of the column of changes."""
_APPLIED_OPS = ("+I", "+U", "c", "r", "insert", "update_postimage", "INSERT", "UPDATE_AFTER")
_RETRACTED_OPS = ("-U", "-D", "d", "update_preimage", "delete", "UPDATE_BEFORE", "DELETE")
"""The operations of Flink, Debezium, Delta's change data feed and Iceberg's changelog view, of one row each."""


def change_of_rows(changes: ChangeLogColumns) -> str:
    """Return the SQL expression for what each row of a log does, whose rows are one image each. It raises an error for
    an operation that is not known."""
    expected = f"expected an operation {', '.join((*_APPLIED_OPS, *_RETRACTED_OPS))}"
    return (
        f"CAST(CASE WHEN ({changes.op}) IN ({_texts(_APPLIED_OPS)}) THEN {APPLIED} "
        f"WHEN ({changes.op}) IN ({_texts(_RETRACTED_OPS)}) THEN {RETRACTED} "
        f"ELSE {_raised(expected, changes.op)} END AS {CHANGE_TYPE}) AS `{CHANGE}`"
    )


def complete_envelopes(changes: ChangeLogColumns, frame: DataFrame) -> str:
    """Return the condition that every envelope has the rows which its operation needs. It raises an error for one that
    has not, because the change could not be taken back."""
    before = f"({changes.before}) IS NOT NULL" if _fields(frame, changes.before) else "false"
    after = f"({changes.after}) IS NOT NULL" if _fields(frame, changes.after) else "false"
    complete = (
        f"CASE WHEN ({changes.op}) IN ('c', 'r') THEN {after} WHEN ({changes.op}) = 'u' THEN {before} AND {after} "
        f"WHEN ({changes.op}) = 'd' THEN {before} ELSE false END"
    )
    expected = "expected c or r with the row after, d with the row before, or u with both"
    return f"IF({complete}, true, {_raised(expected, changes.op)})"


def images_of_envelopes(changes: ChangeLogColumns, frame: DataFrame) -> str:
    """Return the SQL expression that makes one row per image of each envelope, with the columns :data:`ROW` and
    :data:`CHANGE`."""
    sides = {changes.before: RETRACTED, changes.after: APPLIED}
    names = list(dict.fromkeys(name for side in sides for name in _fields(frame, side)))
    before, after = (
        f"named_struct('{ROW}', {_image(frame, side, names)}, '{CHANGE}', CAST({sign} AS {CHANGE_TYPE}))"
        if _fields(frame, side)
        else ""
        for side, sign in sides.items()
    )
    if not (before and after):  # where all rows of a side are null, Spark does not know their type
        return f"inline(array({before or after}))"
    both = f"WHEN 'u' THEN array({before}, {after})"
    return f"inline(CASE ({changes.op}) {both} WHEN 'd' THEN array({before}) ELSE array({after}) END)"


def _image(frame: DataFrame, side: str | None, names: list[str]) -> str:
    """Return the SQL expression for one row with the fields of both sides."""
    own = _fields(frame, side)
    fields = (f"{f'({side}).{quoted(name)}' if name in own else 'NULL'} AS {quoted(name)}" for name in names)
    return f"struct({', '.join(fields)})"


def _fields(frame: DataFrame, side: str | None) -> list[str]:
    """Return the names of the fields of one side, none if it is no row."""
    type_ = frame.selectExpr(f"({side})").schema.fields[0].dataType
    return type_.fieldNames() if isinstance(type_, StructType) else []


def _texts(values: tuple[str, ...]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def _raised(expected: str, op: str) -> str:
    return f"raise_error(concat('{expected}; found ', coalesce(CAST(({op}) AS string), 'null')))"
