"""Deletes of a change log: the state per primary key equals the rows of the table."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from tests.integration.debezium import ChangedTable, write_json
from tests.integration.shop_cli import refused, said
from tests.support.worlds import new_deployment

COLUMNS = {
    "id": {"expr": "coalesce(payload.after.id, payload.before.id)", "type": "long"},
    "customer": {"expr": "payload.after.customer", "type": "string"},
    "amount": {"expr": "payload.after.amount", "type": "long"},
    "lsn": {"expr": "payload.source.lsn", "type": "long"},
    "at": {"expr": "timestamp_millis(payload.source.ts_ms)", "type": "instant"},
}


@pytest.fixture
def deployment(tmp_path: Path, spark: SparkSession) -> Deployment:
    for name in ("pipelines", "data"):
        (tmp_path / name).mkdir()
    return new_deployment(tmp_path, tmp_path / "data", tmp_path / "pipelines")


def write_pipeline(deployment: Deployment, order_by: str = "lsn", **more: Any) -> None:
    source = {
        "format": "json", "path": "{data}/orders/{start:%Y-%m-%d}", "where": "payload IS NOT NULL",
        "delete_when": "payload.op = 'd'", "columns": COLUMNS, **more,
    }  # fmt: skip
    row = {"agg": "last", "of": ["customer", "amount"], "by": "lsn"}
    content = {
        "name": "orders", "schedule": {"cron": "@daily", "start": "2026-01-01"}, "source": source, "key": "id",
        "order_by": order_by, "states": {"row": {"kind": "value", "fields": {"now": row}}}, "backend": "rocksdb",
        "parallelism": 2,
    }  # fmt: skip
    (Path(deployment.pipelines_directory) / "orders.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


def test_the_state_has_the_rows_of_the_table(deployment: Deployment) -> None:
    write_pipeline(deployment)
    table, deletes = ChangedTable(), 0
    for day in (1, 2, 3):
        payloads = table.day(day, 60)
        deletes += sum(payload["op"] == "d" for payload in payloads)
        write_json(Path(deployment.data) / f"orders/2026-01-0{day}", payloads)
        (done,) = json.loads(said(deployment, "run", "orders", "--json"))["checkpoints"]
        assert done["events"]["read"] == 60
        state = resolve(deployment, f"orders/{done['checkpoint_id']}").to_arrow("row").to_pylist()
        assert {row["key"]: row["value"]["now"]["value"] for row in state} == {
            number: {"customer": row["customer"], "amount": row["amount"]} for number, row in table.rows.items()
        }
        assert done["keys"] == len(table.rows)
    assert deletes > 20


def test_a_delete_whose_order_is_not_known_is_refused(deployment: Deployment) -> None:
    """All changes have the same millisecond."""
    write_pipeline(deployment, order_by="at")
    payloads = ChangedTable().day(1, 60)
    for payload in payloads:
        payload["source"]["ts_ms"] = payloads[0]["source"]["ts_ms"]
    write_json(Path(deployment.data) / "orders/2026-01-01", payloads)
    assert "with the same at as a delete of the same key" in refused(deployment, "run", "orders")
    write_pipeline(deployment, delete_when="payload.opp = 'd'")
    assert "source.delete_when: \"payload.opp = 'd'\": " in refused(deployment, "run", "orders")
