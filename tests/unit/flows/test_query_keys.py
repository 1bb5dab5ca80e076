"""The keys that a statement asks for: which forms are recognised, and that no other form leaves out a key group."""

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

from statelib.flows.views.query_keys import asked_key_groups
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import LONG, STRING, Tuple
from statelib.serializers.entries.keys import key_groups

STATES = (StateDescriptor("total", StateKind.VALUE, LONG),)
BY_SHOP = KeyedStateSchema(STRING, 128, STATES)
BY_NUMBER = KeyedStateSchema(LONG, 128, STATES)
BY_BOTH = KeyedStateSchema(Tuple((STRING, LONG)), 128, STATES)


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def of_shops(*shops: str) -> frozenset[int]:
    return frozenset(key_groups(BY_SHOP, pa.array(shops, pa.string())).tolist())


@pytest.mark.parametrize(
    ("sql", "shops"),
    [
        ("SELECT * FROM total WHERE shop = 'a'", ["a"]),
        ("FROM total WHERE 'a' = SHOP AND value > 3 ORDER BY value LIMIT 1", ["a"]),
        ("SELECT count(*) FROM total t WHERE t.shop IN ('a', 'b') AND (value = 1 OR value = 2)", ["a", "b"]),
        ("SELECT sum(value) AS s FROM total WHERE total.shop = 'a' GROUP BY shop HAVING s > 1;", ["a"]),
    ],
)
def test_the_key_groups_of_named_keys_are_read(database: duckdb.DuckDBPyConnection, sql: str, shops: list[str]) -> None:
    assert asked_key_groups(database, sql, BY_SHOP, ["shop"]) == of_shops(*shops)


@pytest.mark.parametrize(
    "sql",
    [
        "FROM total",
        "FROM total WHERE value = 3",
        "FROM total WHERE shop = 'a' OR value = 1",
        "FROM total WHERE NOT shop = 'a'",
        "FROM total WHERE shop <> 'a'",
        "FROM total WHERE shop NOT IN ('a')",
        "FROM total WHERE shop = lower('A')",
        "FROM total WHERE shop = 1",
        "FROM total WHERE shop = NULL",
        "FROM total WHERE shop = 'a' COLLATE NOCASE",
        "FROM total WHERE lower(shop) = 'a'",
        "FROM total WHERE value.shop = 'a'",
        "FROM total WHERE shop > 'a' AND shop < 'c'",
        "FROM total WHERE shop IN (SELECT 'a')",
        "FROM total WHERE shop = 'a' AND value > (SELECT avg(value) FROM total)",
        "SELECT (SELECT max(value) FROM total) FROM total WHERE shop = 'a'",
        "SELECT upper(shop) AS shop FROM total WHERE shop = 'a'",
        "SELECT * FROM total AS t(value, shop) WHERE shop = 'a'",
        "FROM total WHERE shop = 'a' UNION ALL FROM total",
        "FROM total JOIN total AS other USING (value) WHERE total.shop = 'a'",
        "FROM total, other WHERE shop = 'a'",
        "WITH t AS (FROM total) FROM t WHERE shop = 'a'",
        "FROM (FROM total) WHERE shop = 'a'",
        "FROM total TABLESAMPLE 1 ROWS WHERE shop = 'a'",
        "COPY (FROM total WHERE shop = 'a') TO 'x.csv'",
        "SUMMARIZE total",
        "this is no SQL",
    ],
)
def test_every_other_statement_reads_the_whole_table(database: duckdb.DuckDBPyConnection, sql: str) -> None:
    assert asked_key_groups(database, sql, BY_SHOP, ["shop"]) is None


def test_all_columns_of_a_key_are_needed(database: duckdb.DuckDBPyConnection) -> None:
    names = ["shop", "number"]
    expected = key_groups(BY_BOTH, pa.array([{"f0": "a", "f1": 1}, {"f0": "a", "f1": -2}])).tolist()
    sql = "FROM total WHERE number IN (1, -2) AND shop = 'a'"
    asked = asked_key_groups(database, sql, BY_BOTH, names)
    assert asked is None or asked == frozenset(expected), "a minus may be a function of the parser"
    sql = "FROM total WHERE number = 1 AND shop = 'a'"
    assert asked_key_groups(database, sql, BY_BOTH, names) == frozenset(expected[:1])
    assert asked_key_groups(database, "FROM total WHERE shop = 'a'", BY_BOTH, names) is None
    assert asked_key_groups(database, "FROM total WHERE number = 7", BY_NUMBER, ["number"]) is not None
    assert asked_key_groups(database, "FROM total WHERE number = '7'", BY_NUMBER, ["number"]) is None
    assert asked_key_groups(database, f"FROM total WHERE number = {2**64}", BY_NUMBER, ["number"]) is None
