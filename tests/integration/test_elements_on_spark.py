"""Sources whose events are the elements of lists."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession

from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from tests.integration.shop_cli import refused, said
from tests.support.worlds import new_deployment

PIPELINE = """\
name: products
schedule: {cron: "@daily", start: 2026-01-01}
source:
  path: "{data}/{start:%Y-%m-%d}"
SOURCE
key: product
states:
  sold:
    kind: value
    fields: {lines: {agg: count}, quantity: {agg: sum, of: quantity}, buyers: {agg: distinct, of: customer}}
backend: heap
"""
LINES = """\
  format: json
  each: {line: payload.lines}
  where: "line.quantity > 0"
  columns:
    customer: {expr: payload.customer, type: string}
    product: {expr: line.sku, type: string}
    quantity: {expr: line.quantity, type: long}
"""
NESTED = """\
  each: {order: orders, line: order.lines}
  columns:
    customer: string
    product: {expr: line, type: string}
    quantity: {expr: order.number, type: long}
"""


@pytest.fixture
def deployment(tmp_path: Path, spark: SparkSession) -> Deployment:
    for name in ("pipelines", "data/2026-01-01"):
        (tmp_path / name).mkdir(parents=True)
    return new_deployment(tmp_path, tmp_path / "data", tmp_path / "pipelines")


def write_pipeline(deployment: Deployment, source: str) -> None:
    (Path(deployment.pipelines_directory) / "products.yaml").write_text(PIPELINE.replace("SOURCE\n", source))


def write_orders(deployment: Deployment, *payloads: dict[str, Any]) -> None:
    lines = "\n".join(json.dumps({"payload": payload}) for payload in payloads)
    Path(f"{deployment.data}/2026-01-01/orders.json").write_text(lines)


def line(sku: str, quantity: int) -> dict[str, Any]:
    return {"sku": sku, "quantity": quantity}


def states(deployment: Deployment) -> dict[str, tuple[int, int, set[str]]]:
    rows = resolve(deployment, "products/head").to_arrow("sold").to_pylist()
    return {r["key"]: (r["value"]["lines"], r["value"]["quantity"], set(r["value"]["buyers"])) for r in rows}


@pytest.mark.slow
def test_each_line_of_an_order_is_an_event(deployment: Deployment) -> None:
    write_pipeline(deployment, LINES)
    write_orders(
        deployment,
        {"customer": "ann", "lines": [line("pen", 2), line("cup", 1), line("pen", 0)]},
        {"customer": "bob", "lines": [line("pen", 5)]},
        {"customer": "cid", "lines": []},
        {"customer": "dan", "lines": None},
    )
    run = json.loads(said(deployment, "run", "products", "--json"))
    assert run["checkpoints"][0]["events"]["read"] == 3
    assert states(deployment) == {"pen": (2, 7, {"ann", "bob"}), "cup": (1, 1, {"ann"})}


@pytest.mark.slow
def test_the_elements_of_lists_within_lists_are_events(deployment: Deployment) -> None:
    write_pipeline(deployment, NESTED)
    orders = [[{"number": 1, "lines": ["pen", "cup"]}, {"number": 2, "lines": ["pen"]}], [{"number": 4, "lines": []}]]
    table = pl.DataFrame({"customer": ["ann", "bob"], "orders": orders})
    table.write_parquet(f"{deployment.data}/2026-01-01/orders.parquet")
    said(deployment, "run", "products")
    assert states(deployment) == {"pen": (2, 3, {"ann"}), "cup": (1, 1, {"ann"})}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("each", "message"),
    [
        ("{line: payload.customer}", "expected a list, found string"),
        ("{payload: payload.lines}", "the source has a column of this name"),
        ("{line: payload.lnes}", "FIELD_NOT_FOUND"),
        ("{line: 'shuffle(payload.lines)'}", "another one when a task is repeated"),
        ("{line: ''}", "expected an expression in SQL for a list, found none"),
    ],
)
def test_an_expression_that_is_no_list_is_refused(deployment: Deployment, each: str, message: str) -> None:
    write_pipeline(deployment, LINES.replace("{line: payload.lines}", each))
    write_orders(deployment, {"customer": "ann", "lines": [line("pen", 2)]})
    assert message in refused(deployment, "run", "products")
