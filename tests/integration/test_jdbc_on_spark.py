"""A source in a database, read over JDBC. The database is Derby, whose driver comes with Spark."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from tests.integration.shop_cli import refused, said
from tests.support.worlds import new_deployment

PASSWORD = "canary-db-1f7c"
ORDERS = [
    ("a", "10.50", "2026-01-01 00:00:00"), ("b", "1.25", "2026-01-01 23:59:59.999"),
    ("a", "0.25", "2026-01-02 00:00:00"), ("é", "7.00", "2026-01-02 12:00:00"), ("b", None, "2026-01-03 00:00:00"),
]  # fmt: skip


class Database:
    """A database of its own in a directory, with the user ``reader``. Statements are executed by its driver."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        assert spark._jvm is not None
        self.url = f"jdbc:derby:{directory}/shop"
        self._jvm = spark._jvm
        self._jvm.java.lang.System.setProperty("derby.stream.error.file", f"{directory}/derby.log")
        self._connection = self._jvm.java.sql.DriverManager.getConnection(f"{self.url};create=true", "reader", PASSWORD)

    def execute(self, sql: str) -> None:
        statement = self._connection.createStatement()
        statement.execute(sql)
        statement.close()

    def close(self) -> None:
        self._connection.close()
        with pytest.raises(Exception, match="shutdown"):  # Derby reports an orderly end as an exception
            self._jvm.java.sql.DriverManager.getConnection(f"{self.url};shutdown=true", "reader", PASSWORD)


@pytest.fixture
def database(spark: SparkSession, tmp_path: Path) -> Iterator[Database]:
    opened = Database(spark, tmp_path)
    opened.execute("CREATE TABLE orders (shop VARCHAR(20), amount DECIMAL(18, 2), updated_at TIMESTAMP)")
    for shop, amount, at in ORDERS:
        opened.execute(f"INSERT INTO orders VALUES ('{shop}', {amount or 'NULL'}, TIMESTAMP('{at}'))")
    yield opened
    opened.close()


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    return new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")


def write_pipeline(deployment: Deployment, database: Database, zone: str = "UTC", **options: str) -> None:
    source: dict[str, Any] = {
        "format": "jdbc",
        "options": {"url": database.url, "user": "reader", "password": "{env[SHOP_PASSWORD]}"} | options,
        "columns": {"SHOP": "string", "AMOUNT": "decimal(18, 2)", "UPDATED_AT": "instant"},
    }  # fmt: skip
    if zone:
        source["time_zone"] = zone
    if "query" not in options:
        source["where"] = "updated_at >= '{start}' AND updated_at < '{end}'"
    total: dict[str, Any] = {"kind": "value", "value": {"agg": "sum", "of": "AMOUNT"}}
    last = {"kind": "value", "value": {"agg": "max", "of": "UPDATED_AT"}}
    content = {
        "name": "orders", "schedule": {"cron": "@daily", "start": datetime(2026, 1, 1, tzinfo=UTC)}, "source": source,
        "key": "SHOP", "states": {"total": total, "last": last}, "backend": "heap", "parallelism": 2,
    }  # fmt: skip
    (Path(deployment.pipelines_directory) / "orders.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


def totals(deployment: Deployment, snapshot: str) -> dict[str, str]:
    rows = resolve(deployment, snapshot).to_arrow("total").to_pylist()
    return {row["key"]: str(row["value"]) for row in rows}


def run(deployment: Deployment) -> int:
    (done,) = json.loads(said(deployment, "run", "orders", "--json"))["checkpoints"]
    read: int = done["events"]["read"]
    return read


@pytest.mark.parametrize(
    "options",
    [
        {"dbtable": "orders"},
        {"query": "SELECT * FROM orders WHERE updated_at >= '{start:%Y-%m-%d %H:%M:%S}' "
         "AND updated_at < '{end:%Y-%m-%d %H:%M:%S}'"},
        {"dbtable": "orders", "partitionColumn": "UPDATED_AT", "lowerBound": "2026-01-01", "upperBound": "2026-01-04",
         "numPartitions": "3", "preferTimestampNTZ": "false"},
    ],
    ids=["a table", "a query", "a table in parts"],
)  # fmt: skip
def test_each_row_of_a_database_is_applied_by_its_interval(
    deployment: Deployment, database: Database, options: dict[str, str]
) -> None:
    write_pipeline(deployment, database, **options)
    assert [run(deployment) for _ in range(3)] == [2, 2, 1]
    assert totals(deployment, "orders/1") == {"a": "10.50", "b": "1.25"}
    assert totals(deployment, "orders/3") == {"a": "10.75", "b": "1.25", "é": "7.00"}


def test_times_without_a_zone_are_those_of_the_zone_of_the_source(deployment: Deployment, database: Database) -> None:
    """Otherwise they would be times in the zone of Spark's JVM, whatever the pipeline file says."""
    local = "SELECT * FROM orders WHERE CAST(updated_at AS DATE) = DATE('{start:%Y-%m-%d}')"
    write_pipeline(deployment, database, "Asia/Tokyo", query=local)
    said(deployment, "run", "orders", "--start", "2026-01-01", "--end", "2026-01-02")
    rows = resolve(deployment, "orders/1").to_arrow("last").to_pylist()
    assert {row["key"]: row["value"] for row in rows} == {
        "a": datetime(2025, 12, 31, 15, tzinfo=UTC),
        "b": datetime(2026, 1, 1, 14, 59, 59, 999_000, tzinfo=UTC),
    }


def test_a_query_does_not_compare_a_time_without_a_zone_with_a_bound_in_another_zone(
    deployment: Deployment, database: Database
) -> None:
    """PostgreSQL, for one, ignores the offset of the bound, and would compare the clocks of Tokyo and of UTC."""
    query = "SELECT * FROM orders o WHERE o.\"UPDATED_AT\" >= '{start}' AND o.updated_at < '{end}'"
    write_pipeline(deployment, database, "Asia/Tokyo", query=query)
    message = refused(deployment, "run", "orders")
    assert "source.options.query: UPDATED_AT is a time without a zone, but {start} and {end} are times of" in message


def test_times_without_a_zone_are_no_instants_if_the_source_has_no_zone(
    deployment: Deployment, database: Database
) -> None:
    write_pipeline(deployment, database, "", dbtable="orders")
    message = refused(deployment, "run", "orders")
    assert "column UPDATED_AT of format jdbc is timestamp_ntz, source.columns declares instant" in message


def test_a_wrong_table_is_one_clear_error(deployment: Deployment, database: Database) -> None:
    write_pipeline(deployment, database, dbtable="no_such_table")
    message = refused(deployment, "run", "orders")
    assert "NO_SUCH_TABLE" in message.upper()
    assert PASSWORD not in message


def test_a_missing_password_is_named_before_the_database_is_called(
    deployment: Deployment, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pipeline(deployment, database, dbtable="orders")
    monkeypatch.delenv("SHOP_PASSWORD")
    assert "source.options.password: the Spark driver's environment has no variable SHOP_PASSWORD" in refused(
        deployment, "run", "orders"
    )
