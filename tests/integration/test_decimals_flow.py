"""Exact decimals from the events to exports, differences, restores, rescaling and changed pipeline files."""

import json
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from statelib.definition.columns import event_schema
from statelib.definition.pipeline import load_pipeline
from statelib.errors import InvalidRequestError, StatelibError
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.views.inspection import resolve
from statelib.model.record import ClaimMode
from statelib.savepoints.verification.snapshots import verify
from tests.integration.shop_cli import call, refused, said
from tests.support.worlds import checkpoint_of, new_deployment

FILE = """\
name: sales
schedule: {cron: "@daily", start: 2013-01-01}
source:
  path: "{data}/{start:%Y-%m-%d}"
  columns:
    price: decimal(9, 2)
    customer: string
    turnover: TYPE
key: [price]
states:
  totals:
    kind: value
    fields: {sum: {agg: sum, of: turnover}, most: {agg: max, of: turnover}, mean: {agg: avg, of: turnover}}
  sold: {kind: map, user_key: turnover, value: {agg: count}}
backend: BACKEND
parallelism: 2
checkpoint: {strategy: STRATEGY}
"""
WAYS = [("heap", "canonical"), ("heap", "full"), ("rocksdb", "incremental"), ("rocksdb", "changelog")]
PRICES = [Decimal(n).scaleb(-2) for n in (-1, 0, 1, 10, 999_999_999)]


class Sales:
    """A deployment with one pipeline file."""

    def __init__(self, root: Path, backend: str, strategy: str) -> None:
        (root / "pipelines").mkdir()
        self.path = root / "pipelines" / "sales.yaml"
        self.text = FILE.replace("BACKEND", backend).replace("STRATEGY", strategy).replace("TYPE", "decimal(20, 3)")
        self.path.write_text(self.text)
        self.deployment = new_deployment(root, root, root / "pipelines")

    def change(self, old: str, new: str) -> None:
        self.text = self.text.replace(old, new)
        self.path.write_text(self.text)

    def run(self, day: int, most_events: int = 40) -> list[dict[str, Any]]:
        """Apply the events of a day and return them."""
        turnovers = [Decimal((day * n * 37) ** 9 * (-1) ** n % 10**19).scaleb(-3) for n in range(40)]
        events = [{"price": PRICES[n % 5], "customer": "c", "turnover": turnovers[n]} for n in range(most_events)]
        schema = event_schema(self.deployment.pipeline("sales"))
        number = checkpoint_of(self.deployment, "sales", day, pa.Table.from_pylist(events, schema))
        opened = resolve(self.deployment, f"sales/{number}")
        assert verify(opened, scratch=self.deployment.work_directory).problems == ()
        return events

    def state(self, number: int) -> Mapping[Any, Any]:
        table = resolve(self.deployment, f"sales/{number}").to_arrow("totals", self.deployment.work_directory)
        return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


@pytest.fixture(params=WAYS, ids="-".join)
def sales(request: pytest.FixtureRequest, tmp_path: Path) -> Sales:
    return Sales(tmp_path, *request.param)


@pytest.fixture
def one(tmp_path: Path) -> Sales:
    return Sales(tmp_path, "rocksdb", "incremental")


def expected(*days: list[dict[str, Any]]) -> dict[Decimal, Any]:
    rows = {}
    for price in PRICES:
        values = [e["turnover"] for events in days for e in events if e["price"] == price]
        total = sum(values, Decimal(0))
        rows[price] = {"sum": total, "most": max(values), "mean": {"sum": total, "count": len(values)}}
    return rows


def test_decimals_are_exact_after_a_restore_and_rescaling(sales: Sales) -> None:
    first = sales.run(1)
    wrong = sales.run(2)
    assert sales.state(2) == expected(first, wrong)
    pipeline = sales.deployment.pipeline("sales")
    apply_restore(
        sales.deployment,
        pipeline,
        plan_restore(sales.deployment, pipeline, "1", None, ClaimMode.NO_CLAIM),
        "test",
    )
    sales.change("parallelism: 2", "parallelism: 3")
    again = sales.run(2)
    assert sales.state(3) == expected(first, again) == sales.state(2)


def test_exports_and_differences_show_every_digit(sales: Sales, tmp_path: Path) -> None:
    sales.run(1)
    sales.run(2)
    rows = sales.state(2)
    exported = map(
        json.loads, said(sales.deployment, "export", "sales/2", "--state", "totals", "--format", "jsonl").splitlines()
    )
    lines = {line["key"]: line["value"] for line in exported}
    assert lines == {
        f"{price:f}": {
            "sum": f"{row['sum']:f}",
            "most": f"{row['most']:f}",
            "mean": {"sum": f"{row['sum']:f}", "count": row["mean"]["count"]},
        }
        for price, row in rows.items()
    }
    said(sales.deployment, "export", "sales/2", "--format", "parquet", "--output", tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "totals.parquet")
    assert table["key"].type == pa.decimal128(9, 2)
    assert dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == rows
    shown = said(sales.deployment, "checkpoints", "diff", "sales/1", "sales/2", "--state", "totals", "--limit", 9)
    assert all(f"{row['sum']:f}" in shown for row in rows.values())


def test_a_query_has_the_mean_of_decimals(one: Sales) -> None:
    events = one.run(1)
    printed = said(one.deployment, "query", "sales", "SELECT price, mean, typeof(mean) FROM totals", "--json")
    expected_rows = [
        [f"{price:f}", f"{(row['sum'] / row['mean']['count']).quantize(Decimal('0.000001'), ROUND_HALF_UP):f}"]
        for price, row in expected(events).items()
    ]
    assert sorted(json.loads(printed)["rows"]) == sorted([*row, "DECIMAL(38,6)"] for row in expected_rows)


def test_a_decimal_may_get_more_digits(one: Sales) -> None:
    first = one.run(1)
    one.change("user_key: turnover", "user_key: customer")
    one.change("  sold:", "  more:")
    one.change("backend:", "allow_non_restored_state: true\nbackend:")
    one.change("turnover: decimal(20, 3)", "turnover: decimal(30, 3)")
    second = one.run(2)
    assert one.state(2) == expected(first, second)
    one.change("turnover: decimal(30, 3)", "turnover: decimal(34, 5)")
    with pytest.raises(InvalidRequestError, match=r"field 'sum': expected decimal\(38, 5\), found decimal\(38, 3\)"):
        one.run(3)


@pytest.mark.parametrize("other", ["decimal(9, 3)", "decimal(8, 2)", "sql<DECIMAL(9, 2)>"])
def test_the_scale_of_a_key_is_fixed(one: Sales, other: str) -> None:
    one.run(1)
    one.change("price: decimal(9, 2)", f"price: {other}")
    with pytest.raises(StatelibError, match=r"the key: the pipeline expects|cannot be a key"):
        one.run(2, 0)


@pytest.mark.parametrize("type_", ["decimal(39, 2)", "decimal(2, 3)", "decimal(0)", "decimal", "sql<DECIMAL(40, 2)>"])
def test_too_many_digits_are_one_error(one: Sales, type_: str) -> None:
    one.change("turnover: decimal(20, 3)", f'turnover: "{type_}"')
    message = call(one.deployment, "pipelines", "validate").output
    assert "source.columns.turnover" in message
    assert "expected a precision" in message or "expected DECIMAL of 1 to 38 digits" in message


def test_a_run_on_spark_computes_decimals(spark: SparkSession, one: Sales) -> None:
    one.change("turnover: decimal(20, 3)", 'turnover: {expr: "price * amount", type: "decimal(20, 3)"}')
    frame = pl.DataFrame({"price": ["1.10", "1.10", "2.00"], "customer": "c", "amount": [3, 4, 5]})
    directory = Path(one.deployment.data) / "2013-01-01"
    directory.mkdir()
    frame.with_columns(pl.col("price").cast(pl.Decimal(7, 2))).write_parquet(directory / "part.parquet")
    said(one.deployment, "run", "sales")
    assert {key: row["sum"] for key, row in one.state(1).items()} == {
        Decimal("1.10"): Decimal("7.700"),
        Decimal("2.00"): Decimal("10.000"),
    }
    columns = load_pipeline(one.path).column_types()
    assert str(columns["turnover"]) == "decimal(20, 3)"


def test_a_column_with_too_few_digits_is_refused(spark: SparkSession, one: Sales) -> None:
    directory = Path(one.deployment.data) / "2013-01-01"
    directory.mkdir()
    frame = pl.DataFrame({"price": ["1.10"], "customer": "c", "turnover": ["1.234567"]})
    types = {"price": pl.Decimal(7, 2), "turnover": pl.Decimal(20, 6)}
    frame.with_columns(pl.col(name).cast(type_) for name, type_ in types.items()).write_parquet(directory / "p.parquet")
    message = refused(one.deployment, "run", "sales")
    assert "column turnover of" in message
    assert "is decimal(20,6), source.columns declares decimal(20, 3)" in message
