"""Sources that are tables, queries of a database or files with options, with conditions and computed columns."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
import yaml
from pyspark.sql import SparkSession

from statelib.definition.pipeline import load_pipeline
from statelib.errors import InvalidRequestError, NotFoundError, StatelibError
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval
from statelib.model.moments import HOUR_MS
from statelib.spark.events.source import SourcePlaces, read_interval
from tests.integration.shop_cli import refused, said
from tests.support.worlds import new_deployment

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
WHERE = "at >= '{start}' AND at < '{end}'"
ORDERS = pl.DataFrame(
    {
        "shop": ["a", "b", "a", "b", "a"],
        "amount": [1, 2, 3, 4, 5],
        "price": [0.5, 1.5, 2.5, 3.5, 4.5],
        "at": [datetime(2026, 1, day, hour, tzinfo=UTC) for day, hour in ((1, 0), (1, 23), (2, 0), (2, 5), (3, 0))],
        "payload": [{"after": {"id": n, "tags": ["x"] * n}} for n in range(5)],
    }
)


@pytest.fixture
def deployment(tmp_path: Path, spark: SparkSession) -> Deployment:
    for name in ("pipelines", "data"):
        (tmp_path / name).mkdir()
    return new_deployment(tmp_path, tmp_path / "data", tmp_path / "pipelines")


@pytest.fixture
def table(tmp_path: Path, spark: SparkSession) -> str:
    """Yield a table of all orders in Spark's catalog."""
    ORDERS.write_parquet(tmp_path / "orders.parquet")
    spark.read.parquet(str(tmp_path / "orders.parquet")).createOrReplaceTempView("lake_orders")
    return "lake_orders"


def write_pipeline(deployment: Deployment, source: dict[str, Any], key: str = "shop", **more: Any) -> None:
    states = more.pop("states", {"total": {"kind": "value", "value": {"agg": "sum", "of": "amount"}}})
    content = {
        "name": "orders", "schedule": {"cron": "@daily", "start": FIRST}, "source": source, "key": key,
        "states": states, "backend": "heap", "parallelism": 2,
    }  # fmt: skip
    (Path(deployment.pipelines_directory) / "orders.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


def read(spark: SparkSession, deployment: Deployment, source: dict[str, Any], days: int = 1) -> pa.Table:
    """Return the events of the first days."""
    write_pipeline(deployment, source)
    pipeline = load_pipeline(Path(deployment.pipelines_directory) / "orders.yaml")
    start_ms = int(FIRST.timestamp() * 1000)
    interval = DataInterval(start_ms, start_ms + 24 * days * HOUR_MS)
    return read_interval(spark, pipeline, SourcePlaces.of(deployment), interval).toArrow()


def test_a_table_gives_each_event_to_one_interval(spark: SparkSession, deployment: Deployment, table: str) -> None:
    where = f"{WHERE} AND shop NOT IN ('today', 'c')"
    source = {"table": table, "where": where, "columns": {"shop": "string", "amount": "long"}}
    assert read(spark, deployment, source).to_pydict() == {"shop": ["a", "b"], "amount": [1, 2]}
    assert sorted(read(spark, deployment, source, 3)["amount"].to_pylist()) == [1, 2, 3, 4, 5]
    for day in (1, 2, 3):
        (done,) = json.loads(said(deployment, "run", "orders", "--json"))["checkpoints"]
        assert done["checkpoint_id"] == day
    state = resolve(deployment, "orders/3").to_arrow("total").to_pylist()
    assert {row["key"]: row["value"] for row in state} == {"a": 9, "b": 6}


def test_columns_are_computed_and_nested_fields_are_taken(
    spark: SparkSession, deployment: Deployment, table: str
) -> None:
    columns = {
        "shop": {"expr": "upper(shop)", "type": "string"},
        "amount": {"expr": "amount * 2", "type": "long"},
        "cost": {"expr": "amount * price", "type": "double"},
        "id": {"expr": "payload.after.id", "type": "long"},
        "tags": {"expr": "payload.after.tags", "type": "list<string>"},
        "payload": "row<after: row<id: long, tags: list<string>>>",
    }
    events = read(spark, deployment, {"table": table, "where": WHERE, "columns": columns})
    assert events.select(["shop", "amount", "cost", "id", "tags"]).to_pylist() == [
        {"shop": "A", "amount": 2, "cost": 0.5, "id": 0, "tags": []},
        {"shop": "B", "amount": 4, "cost": 3.0, "id": 1, "tags": ["x"]},
    ]
    assert events["payload"][1].as_py() == {"after": {"id": 1, "tags": ["x"]}}


def test_a_function_receives_lists_and_rows(deployment: Deployment, table: str) -> None:
    columns = {"shop": "string", "at": "instant", "payload": "row<after: row<id: long, tags: list<string>>>"}
    states = {
        "seen": {
            "kind": "value", "fields": {"tags": "long"},
            "function": "tests.integration.users_of_nested_columns:count_tags",
        }
    }  # fmt: skip
    write_pipeline(deployment, {"table": table, "where": WHERE, "columns": columns}, states=states)
    said(deployment, "run", "orders", "--whole", "--end", "2026-01-04")
    state = resolve(deployment, "orders/1").to_arrow("seen").to_pylist()
    assert {row["key"]: row["value"]["tags"] for row in state} == {"a": 0 + 2 + 4, "b": 1 + 3}


def test_an_option_may_be_a_variable_of_the_environment(
    spark: SparkSession, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"inferSchema": True, "sep": "{env[SEPARATOR]}", "header": "true"}
    source = {
        "format": "csv", "options": options, "path": "{data}/{start:%Y-%m-%d}.csv",
        "columns": {"shop": "string", "amount": "long"},
    }  # fmt: skip
    (Path(deployment.data) / "2026-01-01.csv").write_text("shop;amount\na;1\nb;2\n")
    with pytest.raises(InvalidRequestError, match=r"source\.options\.sep: .* no variable SEPARATOR") as caught:
        read(spark, deployment, source)
    assert caught.value.kind == "no-variable"
    monkeypatch.setenv("SEPARATOR", ";")
    assert read(spark, deployment, source).to_pydict() == {"shop": ["a", "b"], "amount": [1, 2]}


def of_amount(expression: str) -> dict[str, Any]:
    return {"shop": "string", "amount": {"expr": expression, "type": "long"}}


def test_times_are_converted_if_their_zone_is_named(spark: SparkSession, deployment: Deployment, table: str) -> None:
    spark.table(table).selectExpr("*", "CAST(at AS timestamp_ntz) AS local").createOrReplaceTempView("zones")
    columns = {"shop": "string", "amount": "long", "at": "datetime", "local": "instant"}
    source = {"table": "zones", "where": WHERE, "columns": columns}
    error = errors(spark, deployment, source)
    assert (error.kind, "source.time_zone" in error.hint) == ("column-type", True)
    for column, repair in (
        ("shop", "or have its text converted: shop: {expr: '`shop`', type: long}"),
        ("at", "'expr'"),
    ):
        error = errors(spark, deployment, source | {"columns": {**columns, column: "long"}})
        assert (error.kind, repair in error.hint, "time_zone" in error.hint) == ("column-type", True, False)
    first, second = read(spark, deployment, source | {"time_zone": "America/New_York"}).to_pylist()
    assert first["at"] == datetime(2025, 12, 31, 19)
    assert second["local"] == datetime(2026, 1, 2, 4, tzinfo=UTC)
    columns["local"] = {"expr": "local + INTERVAL 1 HOUR", "type": "instant"}
    _, second = read(spark, deployment, source | {"time_zone": "America/New_York"}).to_pylist()
    assert second["local"] == datetime(2026, 1, 2, 5, tzinfo=UTC), "a computed time without a zone is in the zone too"
    columns["local"] = {"expr": "CAST(local AS date)", "type": "instant"}
    columns["at"] = {"expr": "at + INTERVAL 1 HOUR", "type": "datetime"}
    first, _ = read(spark, deployment, source | {"time_zone": "America/New_York"}).to_pylist()
    assert first["local"] == datetime(2026, 1, 1, 5, tzinfo=UTC), "a day begins in the zone"
    assert first["at"] == datetime(2025, 12, 31, 20), "a computed instant is read in the zone"


def test_a_time_without_a_zone_is_not_compared_with_a_bound_in_another_zone(
    spark: SparkSession, deployment: Deployment, table: str
) -> None:
    """Spark would compare the clock of New York with that of UTC: a run at midnight in UTC would read the local day
    before its last five hours have come, and no later run would read them."""
    spark.table(table).selectExpr("*", "CAST(at AS timestamp_ntz) AS local").createOrReplaceTempView("zones")
    columns = {"shop": "string", "amount": "long", "local": "instant"}
    source = {"table": "zones", "columns": columns, "time_zone": "America/New_York"}
    error = errors(spark, deployment, source | {"where": WHERE.replace("at", "Local")})
    assert error.kind == "bad-expression"
    assert "source.where: Local is a time without a zone, but {start} and {end} are times of the" in error.message
    assert "to_utc_timestamp(Local, 'America/New_York') >= '{start}'" in error.hint
    by_instant = WHERE.replace("at", "to_utc_timestamp(local, 'America/New_York')")
    assert len(read(spark, deployment, source | {"where": by_instant}).to_pylist()) == 1
    of_utc = source | {"where": WHERE.replace("at", "local"), "time_zone": "Etc/UTC"}
    assert len(read(spark, deployment, of_utc).to_pylist()) == 2


BAD_COLUMNS = {
    "no such column": ("nothing * 2", "columns.amount: 'nothing * 2': [UNRESOLVED_COLUMN"),
    "no SQL": ("amount +", "columns.amount: 'amount +': "),
    "an aggregate": ("sum(amount)", "columns.amount: 'sum(amount)': expected a value for each row"),
    "rows of one row": ("explode(sequence(1, 3))", "columns.amount: "),
    "a window": ("row_number() OVER (PARTITION BY shop ORDER BY amount)", "found a window function"),
    "the clock": ("unix_seconds(current_timestamp())", "its value can be another one when a task is repeated"),
    "the date": ("datediff(now(), CURRENT_DATE)", "its value can be another one when a task is repeated"),
    "a name of a date": ("datediff(date 'today', to_date('Yesterday'))", "its value can be another one when"),
    "chance": ("rand() * 5", "its value can be another one when a task is repeated"),
    "another type": ("payload", "[DATATYPE_MISMATCH"),
}
BAD_CONDITIONS = {
    "a condition that is none": ("amount", "where: "),
    "a condition of chance": ("rand() < 0.5", "its value can be another one when a task is repeated"),
    "the date in a text": ("at < 'today'", "its value can be another one when a task is repeated"),
    "the time in a text": ("at < 'now'::timestamp", "its value can be another one when a task is repeated"),
}


@pytest.mark.parametrize("case", [*BAD_COLUMNS, *BAD_CONDITIONS])
def test_an_expression_with_an_error_gives_one_clear_error(
    spark: SparkSession, deployment: Deployment, table: str, case: str
) -> None:
    text, expected = (BAD_COLUMNS | BAD_CONDITIONS)[case]
    source = {"table": table, "where": WHERE, "columns": of_amount(text)}
    if case in BAD_CONDITIONS:
        source |= {"where": f"{WHERE} AND {text}", "columns": of_amount("amount")}
    error = errors(spark, deployment, source)
    assert error.kind == "bad-expression"
    assert error.message.startswith("pipeline orders: source.")
    assert expected in error.message
    assert "\n" not in error.message


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("CAST(shop AS long)", "CAST_INVALID_INPUT"),
        ("amount DIV 0", "DIVIDE_BY_ZERO"),
        ("9223372036854775807L + amount", "ARITHMETIC_OVERFLOW"),
    ],
)
def test_a_value_that_does_not_fit_fails_the_run(
    deployment: Deployment, table: str, expression: str, expected: str
) -> None:
    write_pipeline(deployment, {"table": table, "where": WHERE, "columns": of_amount(expression)})
    message = refused(deployment, "run", "orders")
    assert f"a row of the source has a value that a condition or an expression cannot take: {expected}" in message
    assert len(message.splitlines()) <= 3


def test_expressions_are_refused_without_strict_sql(spark: SparkSession, deployment: Deployment, table: str) -> None:
    source = {"table": table, "where": WHERE, "columns": {"shop": "string", "amount": "long"}}
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(InvalidRequestError, match=r"need spark\.sql\.ansi\.enabled: true, found false"):
            read(spark, deployment, source)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_a_missing_or_changed_table_gives_one_clear_error(
    spark: SparkSession, deployment: Deployment, table: str
) -> None:
    source = {"table": table, "where": WHERE, "columns": {"shop": "string", "amount": "int"}}
    changed = errors(spark, deployment, source)
    assert (changed.kind, "column amount of table lake_orders is bigint" in changed.message) == ("column-type", True)
    spark.catalog.dropTempView(table)
    gone = errors(spark, deployment, source)
    assert (type(gone), gone.kind) == (NotFoundError, "no-source")
    assert "source table lake_orders cannot be read: TABLE_OR_VIEW_NOT_FOUND" in gone.message


def errors(spark: SparkSession, deployment: Deployment, source: dict[str, Any]) -> StatelibError:
    with pytest.raises(StatelibError) as caught:
        read(spark, deployment, source)
    return caught.value
