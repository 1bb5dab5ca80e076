"""Change logs whose rows are taken back: the aggregates equal those of the rows that the table has."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from pyspark.sql import SparkSession

from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from tests.integration.debezium import ChangedTable, Row, write_json, write_parquet
from tests.integration.shop_cli import refused, said
from tests.support.worlds import new_deployment

STATES = {
    "orders": {
        "kind": "value",
        "fields": {
            "orders": {"agg": "count"}, "amount": {"agg": "sum", "of": "amount"},
            "mean": {"agg": "avg", "of": "amount"}, "sizes": {"agg": "histogram", "of": "amount", "bounds": [20, 60]},
        },
    },
    "per_amount": {"kind": "map", "user_key": "amount", "value": {"agg": "count"}},
}  # fmt: skip
PAYLOAD = {"op": "payload.op", "before": "payload.before", "after": "payload.after"}


@pytest.fixture
def deployment(tmp_path: Path, spark: SparkSession) -> Deployment:
    for name in ("pipelines", "data"):
        (tmp_path / name).mkdir()
    return new_deployment(tmp_path, tmp_path / "data", tmp_path / "pipelines")


def write_pipeline(deployment: Deployment, **source: Any) -> None:
    source = {
        "path": "{data}/orders/{start:%Y-%m-%d}", "columns": {"customer": "string", "amount": "long"}, **source,
    }  # fmt: skip
    content = {
        "name": "orders", "schedule": {"cron": "@daily", "start": "2026-01-01"}, "source": source, "key": "customer",
        "states": STATES, "backend": "rocksdb", "parallelism": 2,
    }  # fmt: skip
    (Path(deployment.pipelines_directory) / "orders.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


def expected(rows: list[Row]) -> tuple[dict[str, Any], dict[tuple[str, int], int]]:
    """Return the contents of both states for the rows of a table, computed from those rows alone."""
    by_customer: dict[str, list[int]] = defaultdict(list)
    counts: dict[tuple[str, int], int] = defaultdict(int)
    for row in rows:
        by_customer[row["customer"]].append(row["amount"])
        counts[row["customer"], row["amount"]] += 1
    orders = {
        customer: {
            "orders": len(amounts), "amount": sum(amounts),
            "mean": {"sum": float(sum(amounts)), "count": len(amounts)},
            "sizes": [sum(a <= 20 for a in amounts), sum(20 < a <= 60 for a in amounts), sum(a > 60 for a in amounts)],
        }
        for customer, amounts in by_customer.items()
    }  # fmt: skip
    return orders, dict(counts)


def stored(deployment: Deployment, checkpoint: int) -> tuple[dict[str, Any], dict[tuple[str, int], int]]:
    snapshot = resolve(deployment, f"orders/{checkpoint}")
    orders = {row["key"]: row["value"] for row in snapshot.to_arrow("orders").to_pylist()}
    counts = {(row["key"], row["user_key"]): row["value"] for row in snapshot.to_arrow("per_amount").to_pylist()}
    return orders, counts


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_the_aggregates_are_those_of_the_rows_of_the_table(deployment: Deployment, form: str) -> None:
    changes = PAYLOAD if form == "json" else {"op": "op", "before": "before", "after": "after"}
    more = {"format": "json", "where": "payload IS NOT NULL"} if form == "json" else {}
    write_pipeline(deployment, changes=changes, **more)
    table, write = ChangedTable(seed=5), write_json if form == "json" else write_parquet
    for day in (1, 2, 3):
        payloads = table.day(day, 3 if day == 1 else 60)  # The first day is only a snapshot: no row is before another.
        write(Path(deployment.data) / f"orders/2026-01-0{day}", payloads)
        (done,) = json.loads(said(deployment, "run", "orders", "--json"))["checkpoints"]
        assert done["events"]["read"] == len(payloads) + sum(payload["op"] == "u" for payload in payloads)
        assert stored(deployment, done["checkpoint_id"]) == expected(list(table.rows.values()))


def test_an_envelope_without_the_row_before_is_refused(deployment: Deployment) -> None:
    """PostgreSQL leaves it out unless the table has REPLICA IDENTITY FULL."""
    write_pipeline(deployment, format="json", where="payload IS NOT NULL", changes=PAYLOAD)
    table = ChangedTable()
    for day, operation in ((1, "u"), (2, "d")):
        payloads = table.day(1, 60)
        next(payload for payload in payloads if payload["op"] == operation)["before"] = None
        directory = Path(deployment.data) / "orders/2026-01-01"
        write_json(directory if day == 1 else directory.with_name("again"), payloads)
        if day == 2:
            (directory.with_name("again") / "part-0.json").replace(directory / "part-0.json")
            (directory.with_name("again") / "part-1.json").replace(directory / "part-1.json")
        assert f"d with the row before, or u with both; found {operation}" in refused(deployment, "run", "orders")


def test_each_row_of_a_log_has_its_operation(deployment: Deployment) -> None:
    write_pipeline(deployment, changes="op")
    log = [
        ("+I", "a", 10), ("+I", "a", 70), ("+I", "b", 5), ("-U", "a", 10), ("+U", "a", 30), ("-D", "b", 5),
    ]  # fmt: skip
    directory = Path(deployment.data) / "orders/2026-01-01"
    directory.mkdir(parents=True)
    frame = pl.DataFrame(log, schema=["op", "customer", "amount"], orient="row")
    frame.with_columns(op=pl.lit("-X")).write_parquet(directory / "part-0.parquet")
    assert "expected an operation +I, +U" in refused(deployment, "run", "orders")
    frame.reverse().write_parquet(directory / "part-0.parquet")
    (done,) = json.loads(said(deployment, "run", "orders", "--json"))["checkpoints"]
    rows = [{"customer": "a", "amount": amount} for amount in (70, 30)]
    assert stored(deployment, done["checkpoint_id"]) == expected(rows)
