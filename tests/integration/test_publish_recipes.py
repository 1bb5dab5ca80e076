"""The recipes of docs/publish.md that read published tables: each runs as it is printed, in a process of its own, and
has the rows of the state."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from statelib.flows.publication.steps import publish_tables
from statelib.flows.wiring import Deployment
from tests.support.published import iceberg_environment
from tests.support.worlds import CHECKOUT, checkpoint_of, new_deployment

PIPELINE = """\
name: shop
source: {path: "{data}/{start}-{end}", columns: {customer: string, amount: long}}
key: customer
states:
  orders: {kind: value, fields: {total: {agg: sum, of: amount}}}
backend: heap
max_parallelism: 8
publish:
  revenue: {target: "{data}/tables/revenue", mode: table, state: orders}
  revenue_changes: {target: "{data}/tables/revenue_changes", mode: changes, state: orders}
  lake_revenue: {target: "{data}/lake/revenue", format: delta, mode: table, state: orders}
  iceberg_revenue: {target: lake.shop.revenue, format: iceberg, mode: table, state: orders}
"""
DOCUMENT = (CHECKOUT / "docs" / "publish.md").read_text()
SHOWN = """
import json
def shown(value):
    if hasattr(value, "toArrow"):  # a DataFrame of Spark
        value = value.toArrow()
    return value if isinstance(value, str) else value.to_pylist() if hasattr(value, "to_pylist") else value.to_dicts()
results = ("rows", "checkpoint", "large", "largest", "folded")
print(json.dumps({name: shown(value) for name, value in list(globals().items()) if name in results}))
"""
STATE = [{"customer": "a", "total": 102}, {"customer": "b", "total": 20}, {"customer": "c", "total": 300}]


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """Return a deployment whose tables have three commits."""
    for name, value in iceberg_environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "shop.yaml").write_text(PIPELINE)
    made = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    for number, amounts in enumerate(({"a": 1, "b": 20}, {"a": 101}, {"c": 300}), 1):
        columns = {"customer": list(amounts), "amount": pa.array(list(amounts.values()), pa.int64())}
        checkpoint_of(made, "shop", number, pa.table(columns))
        publish_tables(made, made.pipeline("shop"))
    return made


def block(kind: str, part: str) -> str:
    """Return the only block of the document that contains ``part``."""
    (chosen,) = [
        text for text in re.findall(rf"^```{kind}\n(.*?)^```", DOCUMENT, re.DOTALL | re.MULTILINE) if part in text
    ]
    return str(chosen)


def results(deployment: Deployment, part: str) -> dict[str, Any]:
    """Run a recipe, and return what it has read."""
    code = block("python", part).replace("/data/", f"{deployment.data}/")
    done = subprocess.run(
        [sys.executable, "-c", code + SHOWN], capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    read: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return read


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: str(row["customer"]))


def test_the_last_manifest_names_the_files_of_the_table(deployment: Deployment) -> None:
    assert in_order(results(deployment, "pq.read_table")["rows"]) == STATE


def test_spark_reads_a_table_and_folds_a_feed(deployment: Deployment) -> None:
    read = results(deployment, "SparkSession")
    assert in_order(read["rows"]) == STATE
    assert in_order(read["folded"]) == STATE


def test_a_feed_is_folded_by_duckdb(deployment: Deployment) -> None:
    sql = block("sql", "/data/tables/revenue_changes").replace("/data/", f"{deployment.data}/")
    rows = duckdb.sql(f"SELECT customer, total FROM ({sql.strip().rstrip(';')}) ORDER BY customer").fetchall()
    assert rows == [tuple(row.values()) for row in STATE]


def test_deltalake_and_polars_read_a_table_in_delta(deployment: Deployment) -> None:
    read = results(deployment, 'DeltaTable("/data/lake/revenue")')
    assert (in_order(read["rows"]), read["checkpoint"]) == (STATE, "shop/3")
    assert in_order(read["large"]) == [STATE[0], STATE[2]]


def test_pyiceberg_and_polars_read_a_table_in_iceberg(deployment: Deployment) -> None:
    read = results(deployment, 'load_catalog("lake")')
    assert (in_order(read["rows"]), read["checkpoint"]) == ([STATE[0], STATE[2]], "3")
    assert read["largest"] == [STATE[2]]
