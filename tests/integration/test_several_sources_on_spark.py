"""Several sources of one pipeline, which Spark and the subtasks read together, applied in one checkpoint."""

import json
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from pyspark.sql import SparkSession

from statelib.flows.views.inspection import resolve
from statelib.flows.views.lineage import lineage_of
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval
from statelib.spark.events.source import SourcePlaces, files_of_interval
from tests.integration.shop_cli import refused, said
from tests.support.worlds import new_deployment

DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")
STATES = {
    "balance": {
        "kind": "value",
        "fields": {
            "bought": {"agg": "sum", "of": "amount"}, "returned": {"agg": "sum", "of": "refund"},
            "events": {"agg": "count"}, "reason": {"agg": "last", "of": "reason", "by": "at"},
        },
    },
}  # fmt: skip


@pytest.fixture
def deployment(tmp_path: Path, spark: SparkSession) -> Deployment:
    for name in ("pipelines", "data", "data/orders", "data/refunds"):
        (tmp_path / name).mkdir()
    return new_deployment(tmp_path, tmp_path / "data", tmp_path / "pipelines")


def write_day(deployment: Deployment, day: int, *, refunds: bool = True) -> list[dict[str, Any]]:
    """Write the files of both sources of one day, and return their rows."""
    at = datetime(2026, 1, day, 9, tzinfo=UTC)
    bought = [{"customer": f"c{n % 5}", "amount": n + day, "at": at} for n in range(20)]
    returned = [
        {"customer": f"c{n % 3}", "refund": n * day, "reason": f"{day}-{n}", "at": at.replace(minute=n)}
        for n in range(4)
    ]
    directory = Path(deployment.data) / f"orders/{DAYS[day - 1]}"
    directory.mkdir()
    pl.DataFrame(bought).write_parquet(directory / "part-0.parquet")
    if not refunds:
        return bought
    lines = [f"{r['customer']};{r['refund']};{r['reason']};{r['at']:%Y-%m-%d %H:%M}" for r in returned]
    header = "customer;refund;reason;at"
    (Path(deployment.data) / f"refunds/{DAYS[day - 1]}.csv").write_text("\n".join([header, *lines]))
    return [*bought, *returned]


def write_pipeline(deployment: Deployment, **refunds: Any) -> None:
    sources = {
        "orders": {
            "path": "{data}/orders/{start:%Y-%m-%d}",
            "columns": {"customer": "string", "amount": "long", "at": "instant"},
        },
        "refunds": {
            "format": "csv", "options": {"header": True, "sep": ";"}, "path": "{data}/refunds/{start:%Y-%m-%d}.csv",
            "columns": {
                "customer": "string", "refund": {"expr": "refund", "type": "long"}, "reason": "string",
                "at": {"expr": "to_timestamp(at)", "type": "instant"},
            },
            **refunds,
        },
    }  # fmt: skip
    content = {
        "name": "balances", "schedule": {"cron": "@daily", "start": "2026-01-01"}, "sources": sources,
        "key": "customer", "states": STATES, "backend": "rocksdb", "parallelism": 2,
    }  # fmt: skip
    (Path(deployment.pipelines_directory) / "balances.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


def balances(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the expected state of each customer, row by row."""
    result: dict[str, dict[str, Any]] = defaultdict(
        lambda: {"bought": None, "returned": None, "events": 0, "reason": None, "at": None}
    )
    for row in rows:
        state = result[row["customer"]]
        state["events"] += 1
        if "amount" in row:
            state["bought"] = (state["bought"] or 0) + row["amount"]
        else:
            state["returned"] = (state["returned"] or 0) + row["refund"]
            state["at"], state["reason"] = max(
                (state["at"] or row["at"], state["reason"] or ""), (row["at"], row["reason"])
            )
    return {key: {name: value for name, value in state.items() if name != "at"} for key, state in result.items()}


def state_of(deployment: Deployment, checkpoint: str) -> dict[str, dict[str, Any]]:
    rows = resolve(deployment, checkpoint).to_arrow("balance").to_pylist()
    return {row["key"]: row["value"] | {"reason": (row["value"]["reason"] or {}).get("value")} for row in rows}


def test_both_sources_are_applied_in_one_checkpoint(deployment: Deployment, spark: SparkSession) -> None:
    write_pipeline(deployment)
    rows: list[dict[str, Any]] = []
    for day in (1, 2):
        rows += write_day(deployment, day)
        (done,) = json.loads(said(deployment, "run", "balances", "--json"))["checkpoints"]
        assert (done["events"]["read"], done["events"]["applied"]) == (24, 24)
        assert state_of(deployment, f"balances/{day}") == balances(rows)
    start_ms = int(datetime(2026, 1, 2, tzinfo=UTC).timestamp() * 1000)
    interval = DataInterval(start_ms, start_ms + 86_400_000)
    files = files_of_interval(spark, deployment.pipeline("balances"), SourcePlaces(deployment.data, "/x"), interval, 2)
    assert files is not None
    assert (files.sources, files.rows) == (("sources.orders",), 20), "Spark moves the refunds only"


def test_a_missing_source_is_named_and_nothing_is_applied(deployment: Deployment) -> None:
    write_pipeline(deployment)
    rows = write_day(deployment, 1, refunds=False)
    answer = refused(deployment, "run", "balances")
    assert "source refunds (" in answer
    assert "2026-01-01.csv) cannot be read" in answer
    write_pipeline(deployment, on_missing="empty")
    (done,) = json.loads(said(deployment, "run", "balances", "--json"))["checkpoints"]
    number = done["checkpoint_id"]
    assert state_of(deployment, f"balances/{number}") == balances(rows)
    pipeline = deployment.pipeline("balances")
    record = deployment.catalog().get(pipeline.name, number)
    inputs = lineage_of(deployment, pipeline, record).inputs
    assert [[field.name for field in dataset.fields] for dataset in inputs] == [
        ["customer", "amount", "at"], ["customer", "refund", "reason", "at"],
    ]  # fmt: skip
