"""The keys that an SQL statement asks for, so that only their key groups are read.

They are found in the tree into which DuckDB parses the statement. Only one form is looked for: a SELECT from one table
whose WHERE demands ``key = literal`` or ``key IN (literals)``, for each column of the key. For every other statement,
and for a tree of an unknown form, the whole table is read.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from statelib.model.state import KeyedStateSchema
from statelib.model.types import BYTE, INT, LONG, SHORT, STRING, Tuple
from statelib.savepoints.tables.exact_keys import key_groups_of

if TYPE_CHECKING:
    import duckdb

_NUMBERS = (BYTE, SHORT, INT, LONG)
_MOST_KEYS = 1000


def asked_key_groups(
    database: "duckdb.DuckDBPyConnection", sql: str, schema: KeyedStateSchema, key: Sequence[str]
) -> frozenset[int] | None:
    """Return the key groups that contain all rows that a statement can use; None if these may be all key groups.
    ``key``: the names of the key columns in the tables."""
    types = schema.key_type.fields if isinstance(schema.key_type, Tuple) else (schema.key_type,)
    asked = _demands_of(database, sql)
    columns = [_values(asked.get(name.lower()), number) for name, number in zip(key, types, strict=True)]
    keys: list[Any] = []
    if all(columns) and len(columns) == len(types):
        keys = [tuple(each) for each in product(*(column or [] for column in columns))]
    if not keys or len(keys) > _MOST_KEYS:
        return None
    single = not isinstance(schema.key_type, Tuple)
    named = [each[0] if single else {f"f{i}": value for i, value in enumerate(each)} for each in keys]
    groups = key_groups_of(schema, named)
    return None if groups is None else frozenset(groups.tolist())


def _demands_of(database: "duckdb.DuckDBPyConnection", sql: str) -> dict[str, list[Any]]:
    """Return the literals of the comparisons that each row of a SELECT from one table must fulfil, by the name of the
    column in small letters; nothing for any other statement."""
    (row,) = database.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    selects = [each for each in _objects(json.loads(row[0])) if "from_table" in each]
    if len(selects) != 1:
        return {}
    (select,) = selects
    table, aliases = select["from_table"], {str(each.get("alias", "")).lower() for each in select["select_list"]}
    if (
        table.get("type") != "BASE_TABLE"
        or table.get("column_name_alias")
        or table.get("sample")
        or select.get("sample")
    ):
        return {}
    names = {str(table.get("alias") or table.get("table_name")).lower()}
    demands = _demands(select.get("where_clause"), names)
    return {name: values for name, values in demands if values is not None and name not in aliases}


def _objects(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of a tree of JSON."""
    if isinstance(tree, dict):
        yield tree
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _objects(part)


def _demands(condition: Any, tables: Collection[str]) -> Iterator[tuple[str, list[Any] | None]]:
    """Yield (name of a column, literals) for each comparison that every row must fulfil. ``tables``: the names by which
    a column may be qualified."""
    kind = condition.get("type") if isinstance(condition, dict) else None
    if kind == "CONJUNCTION_AND":
        for part in condition["children"]:
            yield from _demands(part, tables)
    elif kind == "COMPARE_EQUAL":
        sides = condition["left"], condition["right"]
        for column, literal in (sides, sides[::-1]):
            yield _column(column, tables), _literals([literal])
    elif kind == "COMPARE_IN":
        yield _column(condition["children"][0], tables), _literals(condition["children"][1:])


def _column(tree: Mapping[str, Any], tables: Collection[str]) -> str:
    """Return the name of a column in small letters, '' for anything else, such as the field of a struct."""
    names = [name.lower() for name in tree.get("column_names", ())] if tree.get("type") == "COLUMN_REF" else []
    return names[-1] if len(names) == 1 or (len(names) == 2 and names[0] in tables) else ""


def _literals(trees: Sequence[Mapping[str, Any]]) -> list[Any] | None:
    """Return the values of literals, texts and whole numbers; None if one of the trees is anything else."""
    values: list[Any] = []
    for tree in trees:
        # DuckDB 2 has the literal as it is written, DuckDB 1 its value
        literal = tree.get("literal") or tree.get("value") or {}
        kind = literal.get("kind") or literal.get("type", {}).get("id")
        text = literal.get("text", literal.get("value"))
        if tree.get("type") != "VALUE_CONSTANT" or text is None:
            return None
        if kind in ("STRING", "VARCHAR"):
            values.append(str(text))
        elif kind in ("INTEGER", "BIGINT"):
            values.append(int(text))
        else:
            return None
    return values


def _values(literals: list[Any] | None, type_: Any) -> list[Any] | None:
    """Return the literals if each has the type of the key column; None otherwise."""
    wanted = str if type_ == STRING else int if type_ in _NUMBERS else None
    if literals is None or wanted is None or not all(isinstance(value, wanted) for value in literals):
        return None
    return literals
