"""States and outputs of a snapshot as SQL tables, and the result of a query on them. DuckDB computes the result."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, count
from typing import TYPE_CHECKING

import pyarrow as pa

from statelib.definition.frame_columns import frame_columns
from statelib.definition.framed_state import framed
from statelib.errors import InvalidRequestError
from statelib.extras import require
from statelib.flows.views.query_keys import asked_key_groups
from statelib.flows.views.query_outputs import Forms, numbered_rows, output_tables
from statelib.model.sql import quoted_name
from statelib.model.state import KeyedStateSchema
from statelib.model.types import Tuple
from statelib.savepoints.emitted_outputs import outputs_of
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.tables.gathering import gathered
from statelib.savepoints.tables.parquet_tables import storable
from statelib.savepoints.tables.state_table import StateTable, state_table
from statelib.storage.local.scratch import scratch_directory

if TYPE_CHECKING:
    import duckdb

_SETTINGS = {
    "python_enable_replacements": "false",  # a name in the query is no variable of this program
    "autoinstall_known_extensions": "false",  # no query downloads programs
    "TimeZone": "UTC",
}
Tables = Mapping[str, StateTable]
"""The states by the names of their tables."""
_POSITION = re.compile(r"\s*LINE \d+: .*", re.DOTALL)
"""The part of an error of DuckDB that shows its place in the query."""
_DESCRIBES = re.compile(r"\s*(describe|desc|show)\b", re.IGNORECASE)

_CHANGES = ("DELETE", "UPDATE", "INSERT", "MERGE_INTO", "CREATE", "ALTER", "DROP")
"""The statements that change tables. They would change the copy that a query reads, and the snapshot would stay."""
_OF_VALUES = "MULTI"
"""A statement such as PIVOT, whose columns are values of the tables. It cannot be checked while they are empty."""


_COMPUTES_NAMES = re.compile(r"\bquery(_table)?\s*\(", re.IGNORECASE)
"""The functions of DuckDB whose argument has names of tables. It may be put together from parts."""


def query_snapshot(
    opened: Checkpoint,
    sql: str,
    key: Sequence[str],
    scratch: str | None = None,
    *,
    forms: Forms | None = None,
) -> pa.Table:
    """Return the result of a query of one SQL statement. Each state of the selected operator is a table of its name,
    and so is each output of the run.

    ``key``: the names of the key columns as the pipeline file has them now, in order; empty if there is no file
    (:func:`_names_of_the_snapshot`). ``scratch``: the directory for a temporary database, which holds the states
    whose names the query contains. No other state is read.
    ``forms``: the outputs of the pipeline, also those for which the run emitted no rows.

    Raises InvalidRequestError (``bad-query``) for what DuckDB refuses, NotFoundError (``missing-extra``) without
    DuckDB, and what reading a state raises."""
    require("query")
    import duckdb  # other commands work without it

    key = _names_of_the_snapshot(opened, key)
    outputs = output_tables(opened, forms or {}, partial(_names, sql))
    tables = {name: state_table(opened, state) for name, state in table_names(opened.schema()).items()}
    with (
        scratch_directory(scratch, "query") as directory,
        duckdb.connect(f"{directory}/states.duckdb", config={"temp_directory": f"{directory}/spilled"}) as database,
    ):
        for name, value in _SETTINGS.items():
            database.execute(f"SET {name} = '{value}'")
        with _explained([*tables, *outputs]):
            _prepare(database, sql, tables, key, outputs)
        if not _DESCRIBES.match(sql):
            _fill(database, sql, tables, key, scratch)
            for output in (output for output in outputs_of(opened) if _names(sql, output)):
                for rows in numbered_rows(opened, forms or {}, output):
                    _insert(database, output, rows)
        with _explained([*tables, *outputs]):
            result = database.sql(sql)
            return pa.table({}) if result is None else result.to_arrow_table()


def table_names(schema: KeyedStateSchema) -> dict[str, str]:
    """Return the name of each table, and the state that it holds. SQL does not distinguish capital letters: of two
    states whose names differ only in them, the second one's table has a name with ``_2``."""
    names: dict[str, str] = {}
    for state in schema.states:
        candidates = chain((state.name,), (f"{state.name}_{number}" for number in count(2)))
        used = {name.lower() for name in names}
        names[next(name for name in candidates if name.lower() not in used)] = state.name
    return names


def _names_of_the_snapshot(opened: Checkpoint, key: Sequence[str]) -> Sequence[str]:
    """Return ``key`` if its columns have the order in which the snapshot stores them, perhaps under other names;
    otherwise the names that the snapshot records. Snapshots of earlier versions record them only if the key has several
    columns."""
    manifest = opened.manifest
    if manifest is None or not manifest.key:
        return key
    fits = len(key) == len(manifest.key) and not manifest.has_reordered_key(key)
    return key if fits else manifest.key


def _key_names(schema: KeyedStateSchema, key: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the key columns: ``key`` if it has one name per column, otherwise ``key``, or ``key_1`` and
    so on for a key of several fields."""
    if not isinstance(schema.key_type, Tuple):
        return tuple(key) if len(key) == 1 else ("key",)
    fields = len(schema.key_type.fields)
    return tuple(key) if len(key) == fields else tuple(f"key_{number}" for number in range(1, fields + 1))


def _prepare(
    database: "duckdb.DuckDBPyConnection",
    sql: str,
    tables: Tables,
    key: Sequence[str],
    outputs: Mapping[str, pa.Schema],
) -> None:
    """Create the empty tables, and let DuckDB check the statement before anything is read."""
    statements = database.extract_statements(sql)
    if len(statements) != 1:
        raise InvalidRequestError(f"the query: expected one statement, found {len(statements)}", kind="bad-query")
    if (kind := statements[0].type.name) in _CHANGES:
        raise InvalidRequestError(f"the query: a snapshot can only be read, found {kind}", kind="bad-query")
    for name, table in tables.items():
        _insert(database, name, _flat(table, table.arrow_schema().empty_table(), key))
    for name, schema in outputs.items():
        _insert(database, name, schema.empty_table())
    if not _DESCRIBES.match(sql) and kind != _OF_VALUES:
        database.execute(sql if kind == "EXPLAIN" else f"EXPLAIN {sql}")


def _fill(
    database: "duckdb.DuckDBPyConnection", sql: str, tables: Tables, key: Sequence[str], scratch: str | None
) -> None:
    """Insert the entries of the states whose names the statement contains; only those of the key groups of the keys
    that it asks for, if it asks for some keys only."""
    for name, table in tables.items():
        if _names(sql, name):
            groups = asked_key_groups(database, sql, table.schema, _key_names(table.schema, key))
            for part in gathered(table.entries(groups, scratch)):
                _insert(database, name, _flat(table, part, key))


def _names(sql: str, table: str) -> bool:
    """Return whether a statement may read the table of this name."""
    return table.replace('"', '""').lower() in sql.lower() or _COMPUTES_NAMES.search(sql) is not None


def _insert(database: "duckdb.DuckDBPyConnection", name: str, rows: pa.Table) -> None:
    """Insert rows into the table of this name. The first call creates it."""
    view = f"{name}\n"  # no state and no output has a name with a line feed
    database.register(view, rows)
    table, source = quoted_name(name), quoted_name(view)
    database.execute(f"CREATE TABLE IF NOT EXISTS {table} AS SELECT * FROM {source} LIMIT 0")  # noqa: S608 - quoted
    database.execute(f"INSERT INTO {table} SELECT * FROM {source}")  # noqa: S608
    database.unregister(view)


def _flat(table: StateTable, part: pa.Table, key: Sequence[str]) -> pa.Table:
    columns = frame_columns(_key_names(table.schema, key), table.schema.key_type, table.descriptor)
    return storable(framed(part, columns))


@contextmanager
def _explained(tables: Iterable[str]) -> Iterator[None]:
    """Raise InvalidRequestError (``bad-query``) in place of an error of DuckDB."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        states = ", ".join(tables)
        raise InvalidRequestError(
            f"the query: {' '.join(_POSITION.sub('', str(error)).split())}",
            kind="bad-query",
            hint=f"the tables are {states}; DESCRIBE <table> lists the columns of one" if states else "",
        ) from error
