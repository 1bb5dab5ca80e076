"""``statelib query``: SQL over the states of statelib's and Flink's snapshots."""

import json
import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statelib.errors import UnsupportedError
from statelib.flows.views.query import query_snapshot, table_names
from statelib.flows.wiring import Deployment
from statelib.savepoints.opened import open_checkpoint
from statelib.savepoints.tables.state_table import StateTable
from tests.integration.foreign import FLINK, savepoint
from tests.integration.shop import TOURS, open_shop, sales
from tests.integration.shop_cli import call, refused, said
from tests.support.extent import TEST_ALL
from tests.support.worlds import checkpoint_of

VISITS = """\
name: visits
source: {path: "{data}/{start}-{end}", columns: {shop: string, item: string, amount: long}}
key: [shop]
states:
  spent: {kind: value, fields: {mean: {agg: avg, of: amount}, spread: {agg: stddev, of: amount}}}
backend: rocksdb
parallelism: 2
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    deployment = open_shop(tmp_path_factory.mktemp("shop"))
    (Path(deployment.pipelines_directory) / "visits.yaml").write_text(VISITS)
    checkpoint_of(deployment, "visits", 1, sales(0))
    return deployment


def rows(deployment: Deployment, snapshot: str | Path, sql: str) -> list[Any]:
    result: list[Any] = json.loads(said(deployment, "query", snapshot, sql, "--json"))["rows"]
    return result


def of_events(sql: str, *batches: pa.Table) -> list[list[Any]]:
    """Return the result of a query on the events themselves."""
    with duckdb.connect() as database:
        database.register("events", pa.concat_tables(batches))
        return [list(row) for row in database.execute(sql).fetchall()]


def test_a_query_of_the_head_equals_one_on_the_events(shop: Deployment) -> None:
    total = rows(shop, "sales", "SELECT shop, sold, amount FROM total ORDER BY shop")
    events = sales(0), sales(100)
    assert total == of_events("SELECT shop, count(*), sum(amount) FROM events GROUP BY shop ORDER BY shop", *events)
    assert rows(shop, "sales/head", "FROM total ORDER BY shop") == total
    joined = (
        "SELECT shop, max(p.value), len(any_value(i.value)) FROM per_item p JOIN items i USING (shop) GROUP BY shop "
        "ORDER BY shop"
    )
    assert rows(shop, "sales", joined) == of_events(
        "SELECT shop, max(n), count(*) FROM (SELECT shop, item, count(*) n FROM events GROUP BY ALL) GROUP BY shop "
        "ORDER BY shop",
        *events,
    )


def test_values_of_a_table_become_columns(shop: Deployment) -> None:
    sql = "PIVOT (SELECT shop, sold FROM total) ON shop USING sum(sold)"
    pivoted = json.loads(said(shop, "query", "sales", sql, "--json"))
    assert [column["name"] for column in pivoted["columns"]] == ["shop-0", "shop-1", "shop-2"]
    assert pivoted["rows"] == [[4, 4, 4]]


@pytest.mark.parametrize("source", ["query_table('to' || 'tal')", "QUERY ('FROM to' || 'tal')"])
def test_a_table_is_read_whose_name_the_query_puts_together(shop: Deployment, source: str) -> None:
    count = rows(shop, "sales", "SELECT count(*) FROM total")
    assert count == rows(shop, "sales", f"SELECT count(*) FROM {source}") != [[0]]


def test_an_earlier_checkpoint_and_a_path_can_be_queried(shop: Deployment) -> None:
    expected = of_events("SELECT count(*) FROM events", sales(0))
    assert rows(shop, "sales/1", "SELECT CAST(sum(sold) AS int) FROM total") == expected
    directory = json.loads(said(shop, "inspect", "tours/head", "--json"))["directory"]
    by_path = rows(shop, directory, "SELECT shop, item, value FROM best ORDER BY ALL")
    assert by_path == rows(shop, "tours", "SELECT shop, item, value FROM best ORDER BY ALL") != []


@pytest.mark.parametrize(
    ("key", "columns"),
    [
        ("[item, shop]", ["shop", "item"]),
        ("[shop, amount]", ["shop", "amount"]),
        ("[shop]", ["shop", "item"]),
        ("[shop, item, amount]", ["shop", "item"]),
    ],
)
def test_key_columns_have_the_order_of_the_snapshot(
    shop: Deployment, tmp_path: Path, key: str, columns: list[str]
) -> None:
    (tmp_path / "tours.yaml").write_text(TOURS.replace("[shop, item]", key))
    changed = replace(shop, pipelines_directory=str(tmp_path))
    assert [name for name, *_ in rows(changed, "tours", "DESCRIBE best")][:2] == columns
    first, second = columns
    sql = "SELECT {}, {}, value FROM best WHERE {} = 'shop-1' ORDER BY ALL"
    stored = rows(shop, "tours", sql.format("shop", "item", "shop"))
    assert rows(changed, "tours", sql.format(first, second, first)) == stored != []


def test_a_mean_and_a_deviation_are_numbers(shop: Deployment) -> None:
    state = rows(shop, "visits", "SELECT shop, mean, round(spread, 9) FROM spent ORDER BY shop")
    assert state == of_events(
        "SELECT shop, avg(amount), round(stddev(amount), 9) FROM events GROUP BY shop ORDER BY shop", sales(0)
    )


def test_the_result_is_printed_as_a_table(shop: Deployment) -> None:
    result = call(
        shop, "query", "sales", "SELECT shop, sold, NULL AS none, [sold] AS list FROM total WHERE shop = 'shop-1'"
    )
    assert [line.split() for line in result.stdout.splitlines()] == [
        [], ["sales"], ["shop", "sold", "none", "list"], ["─" * len(result.stdout.splitlines()[3])],
        ["shop-1", "4", "-", "[4]"],
    ]  # fmt: skip
    assert result.stderr == "1 row\n"


def test_values_that_json_does_not_have_are_texts(shop: Deployment) -> None:
    sql = "SELECT 'nan'::double, '\\xAB'::blob, TIMESTAMPTZ '2026-01-01 00:00+01', 1.50::decimal(9,2), MAP {'a': 1}"
    assert rows(shop, "sales", sql) == [["nan", "ab", "2025-12-31T23:00:00+00:00", "1.50", [["a", 1]]]]
    assert rows(shop, "sales", "SELECT sum(10), 2::decimal(9, 0), 2::decimal(9, 1)") == [[10, 2, "2.0"]]


def test_long_bytes_such_as_a_sketch_are_shown_by_their_beginning(shop: Deployment) -> None:
    sql = "SELECT unhex(repeat('0a', 65)) AS a, unhex(repeat('0a', 64)) AS b, [unhex(repeat('ff', 4096))] AS c"
    shown = said(shop, "query", "sales", sql)
    assert "0a" * 8 + "… (65 bytes)" in shown
    assert "0a" * 64 in shown
    assert '["ffffffffffffffff… (4,096 bytes)"]' in shown
    ((long, _, many),) = json.loads(said(shop, "query", "sales", sql, "--json"))["rows"]
    assert (long, many) == ("0a" * 65, ["ff" * 4096])


def test_a_result_is_written_to_a_file(shop: Deployment, tmp_path: Path) -> None:
    said(shop, "query", "sales", f"COPY (SELECT * FROM total) TO '{tmp_path}/total.parquet'")
    assert pq.read_table(tmp_path / "total.parquet").num_rows == 3


def test_a_plan_is_explained_and_counts_the_rows_of_the_snapshot(shop: Deployment) -> None:
    for explain in ("EXPLAIN", "explain analyze"):
        ((_, plan),) = rows(shop, "sales", f"{explain} SELECT shop FROM total")
        assert "Scan" in plan
        assert "3 rows" in plan
    assert "Binder Error" in refused(shop, "query", "sales", "EXPLAIN SELECT shp FROM total")


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT * FROM totl", 'the query: Catalog Error: Table with name totl does not exist! Did you mean "total"?'),
        ("SELECT shp FROM total", 'the query: Binder Error: Referenced column "shp" not found in FROM clause!'),
        ("SELEC", 'the query: Parser Error: syntax error at or near "SELEC"'),
        ("DELETE FROM total", "the query: a snapshot can only be read, found DELETE"),
        ("CREATE TABLE other AS FROM total", "the query: a snapshot can only be read, found CREATE"),
        ("SELECT 1; SELECT 2", "the query: expected one statement, found 2"),
        ("", "the query: expected one statement, found 0"),
        ("SELECT shop::int FROM total", "the query: Conversion Error: Could not convert string 'shop-"),
        ("SELECT * FROM opened", "the query: Catalog Error: Table with name opened does not exist!"),
        ("SELECT * FROM rows", "the query: Catalog Error: Table with name rows does not exist!"),
    ],
)
def test_a_wrong_query_is_one_error(shop: Deployment, sql: str, reason: str) -> None:
    assert refused(shop, "query", "sales", sql).startswith(f"statelib: {reason}")


def test_an_error_names_the_tables(shop: Deployment) -> None:
    result = call(shop, "query", "sales", "FROM nothing")
    assert "  hint: the tables are total, per_item, items; DESCRIBE <table>" in result.stderr


def test_only_the_named_tables_are_read(tmp_path: Path) -> None:
    """A description reads nothing, and a query that cannot be right is refused before anything is read."""
    deployment = open_shop(tmp_path)
    for file in (tmp_path / "state" / "sales" / "chk-5").iterdir():
        if file.name != "_metadata":
            file.unlink()
    assert [row[0] for row in rows(deployment, "sales", "DESCRIBE total")] == ["shop", "sold", "amount"]
    assert [row[0] for row in rows(deployment, "sales", "SHOW TABLES")] == ["items", "per_item", "total"]
    assert rows(deployment, "sales", "SELECT 1") == [[1]]
    assert "Binder Error" in refused(deployment, "query", "sales", "SELECT shp FROM total")
    assert "chk-5" in refused(deployment, "query", "sales", "SELECT shop FROM total", status=1)


def test_a_state_may_have_any_name(tmp_path: Path) -> None:
    deployment = open_shop(tmp_path)
    states = 'rows: {kind: value, value: {agg: count}}, "a.b \\"c\\"": {kind: value, value: {agg: count}}'
    text = VISITS.replace("name: visits", "name: named").replace("states:\n", f"states: {{{states}}}\n")
    (Path(deployment.pipelines_directory) / "named.yaml").write_text(re.sub(r"  spent: .*\n", "", text))
    checkpoint_of(deployment, "named", 1, sales(0))
    expected = of_events("SELECT shop, count(*) FROM events GROUP BY shop ORDER BY shop", sales(0))
    for table in ("rows", '"a.b ""c"""'):
        assert rows(deployment, "named", f"FROM {table} ORDER BY shop") == expected


def test_nothing_stays_in_the_scratch_directory(shop: Deployment) -> None:
    said(shop, "query", "sales", "FROM total")
    refused(shop, "query", "sales", "FROM nothing")
    assert list(Path(shop.work_directory).glob("statelib-scratch-*")) == []


@pytest.mark.parametrize("version", ["1.12.5", "1.20.5", "2.3.0"])
def test_each_state_of_flinks_snapshots_is_a_table(version: str, tmp_path: Path) -> None:
    seen = 0
    for metadata in sorted((FLINK / version).glob("*/savepoint-*/_metadata"))[:: 1 if TEST_ALL else 4]:
        opened = open_checkpoint(str(metadata.parent))
        for operator in opened.metadata.operators:
            if not any(state.keyed for _, state in operator.subtasks):
                continue
            one = opened.select(operator.operator_id.hex())
            for table, state in table_names(one.schema()).items():
                sql = f'SELECT count(*) AS n FROM "{table}"'
                try:
                    expected = one.to_arrow(state).num_rows
                except UnsupportedError:
                    with pytest.raises(UnsupportedError):
                        query_snapshot(one, sql, ())
                else:
                    assert query_snapshot(one, sql, ())["n"].to_pylist() == [expected]
                    seen += 1
    assert seen > 2


def test_windows_and_timers_of_flink_have_columns() -> None:
    opened = open_checkpoint(str(savepoint("1.12.5/older-heap")))
    names = query_snapshot(opened, 'DESCRIBE "_timer_state/event_user-timers"', ())["column_name"].to_pylist()
    assert names[0] == "key"
    assert names[-1] == "timestamp"


def test_a_query_for_one_key_reads_its_key_group_only(shop: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Collection[int] | None] = []
    entries = StateTable.entries

    def noted(table: StateTable, groups: Collection[int] | None = None, scratch: str | None = None) -> Any:
        read.append(groups)
        return entries(table, groups, scratch)

    monkeypatch.setattr(StateTable, "entries", noted)
    for snapshot in ("sales", "visits"):
        state = "total" if snapshot == "sales" else "spent"
        everything = rows(shop, snapshot, f"FROM {state} ORDER BY shop")
        assert read.pop() is None
        for row in everything:
            assert rows(shop, snapshot, f"FROM {state} WHERE shop = '{row[0]}'") == [row]
            assert len(read.pop() or ()) == 1
        assert rows(shop, snapshot, f"FROM {state} WHERE shop = 'elsewhere'") == []
