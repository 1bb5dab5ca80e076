"""``statelib query``: SQL over the states of a snapshot."""

import json
import re
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any

import pyarrow as pa
import typer

from statelib.cli.ending import errors
from statelib.cli.named_snapshots import KeyType, Operator, Relocate, Snapshot, moves_of, open_snapshot, type_of
from statelib.cli.options import Json
from statelib.cli.paths import path_of
from statelib.cli.presenters.blocks import Block, Note, TableColumn, TextTable, present
from statelib.cli.presenters.console import working
from statelib.cli.presenters.values import short_bytes
from statelib.definition.output_forms import output_forms
from statelib.definition.pipeline import Pipeline
from statelib.errors import StatelibError
from statelib.flows import wiring
from statelib.flows.views.query import query_snapshot
from statelib.formats.text.plain_text import readable
from statelib.model.amounts import amount


def query(
    snapshot: Snapshot,
    sql: Annotated[str, typer.Argument(help="One statement in DuckDB's SQL. Each state and output is a table.")],
    *,
    operator: Operator = None,
    relocate: Relocate = None,
    key_type: KeyType = None,
    as_json: Json = False,
) -> None:
    """Answer a question in SQL from the states of a snapshot, also of one that Flink wrote.

    Each state is a table of its name, with a column for each key column and for each field; averages and the like are
    numbers. Where the names of the key columns are unknown, as in Flink's snapshots, they are `key`, or `key_1` and so
    on. Each output is a table of the rows that the run of the checkpoint emitted. Only the tables that the
    statement names are read. Files can be read and written, too:
    COPY (SELECT ...) TO 'result.parquet'."""
    with errors(as_json):
        opened = open_snapshot(snapshot, moves_of(relocate), type_of(key_type))
        if operator is not None:
            opened = opened.select(operator)
        with working(f"reading {opened.directory}"):
            definition = _definition(snapshot)
            key, forms = (definition.key, output_forms(definition)) if definition else ((), {})
            result = query_snapshot(opened, sql, key, forms=forms)
    columns = [{"name": field.name, "type": str(field.type)} for field in result.schema]
    rows = [[_plain(row[i]) for i in range(len(columns))] for row in _rows(result)]
    present({"columns": columns, "rows": rows}, _view(snapshot, result, rows), as_json)


def _definition(name: str) -> Pipeline | None:
    """Return the pipeline of the snapshot if the snapshot is named by it, and the pipeline has its file."""
    if path_of(name):
        return None
    try:
        return wiring.deployment().pipeline(re.split("[/@]", name)[0])
    except StatelibError:
        return None


def _rows(result: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Yield the rows. Two columns may have the same name."""
    return zip(*map(_values, result.columns), strict=True)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column. Those that Python does not have, such as times after the year 9999, are text."""
    try:
        return list(column.to_pylist())
    except OverflowError:
        pairs = zip(column, column.cast(readable(column.type)), strict=True)
        return [_value_or_text(value, text) for value, text in pairs]


def _value_or_text(value: pa.Scalar, text: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except OverflowError:
        return text.as_py()


def _view(name: str, result: pa.Table, rows: list[list[Any]]) -> Iterator[Block]:
    if result.num_columns:
        columns = [TableColumn(field.name, right=_is_number(field.type)) for field in result.schema]
        yield TextTable(name, columns, [[_cell(value) for value in row] for row in rows])
        yield Note(amount(len(rows), "row"))


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return short_bytes(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it: bytes in hexadecimal digits, times in ISO 8601, numbers that JSON does not
    have as text."""
    match value:
        case bytes():
            value = value.hex()
        case datetime() | date() | time():
            value = value.isoformat()
        case Decimal() if value.as_tuple().exponent == 0:  # a sum of integers
            value = int(value)
        case Decimal() | timedelta():
            value = str(value)
        case float():
            value = value if abs(value) < float("inf") else str(value)
        case dict():
            value = {name: _plain(item) for name, item in value.items()}
        case list() | tuple():
            value = [_plain(item) for item in value]
    return value
