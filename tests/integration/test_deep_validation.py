"""``pipelines validate --deep``: a pipeline is tried with real events, and nothing is written."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
import yaml
from pyspark.sql import SparkSession

from statelib.flows.wiring import Deployment
from tests.integration.shop_cli import call, said
from tests.support.worlds import new_deployment


def fails(events: pa.Table, state: pa.Table) -> pa.Table:
    raise ZeroDivisionError(f"of {len(events)} events and {len(state)} keys")


@pytest.fixture
def deployment(tmp_path: Path, spark: SparkSession) -> Deployment:
    for name in ("pipelines", "data", "data/orders"):
        (tmp_path / name).mkdir()
    frame = pl.DataFrame({"shop": ["a", "b", "a"], "amount": [1, 2, 3], "op": ["c", "c", "d"]})
    frame.write_parquet(tmp_path / "data/orders/2026-01-01.parquet")
    frame.with_columns(amount=pl.lit("x")).write_parquet(tmp_path / "data/orders/2026-01-02.parquet")
    return new_deployment(tmp_path, tmp_path / "data", tmp_path / "pipelines")


def write(deployment: Deployment, name: str, source: dict[str, Any] | None = None, **more: Any) -> None:
    path = "{data}/orders/{start:%Y-%m-%d}.parquet"
    content = {
        "name": name, "schedule": {"cron": "@daily", "start": "2026-01-01"}, "key": "shop", "backend": "heap",
        "source": {"path": path, "columns": {"shop": "string", "amount": "long"}} | (source or {}),
        "states": {"total": {"kind": "value", "value": {"agg": "sum", "of": "amount"}}}, **more,
    }  # fmt: skip
    (Path(deployment.pipelines_directory) / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


def test_each_pipeline_is_tried_and_nothing_is_written(deployment: Deployment, tmp_path: Path) -> None:
    write(deployment, "good", {"changes": "op"})
    before = sorted(tmp_path.rglob("*"))
    assert "good: 3 events of source in [2026-01-01T00:00:00+00:00" in said(
        deployment, "pipelines", "validate", "--deep"
    )
    assert sorted(tmp_path.rglob("*")) == before
    function = {"kind": "value", "fields": {"n": "long"}, "function": f"{__name__}:fails"}
    write(deployment, "function", states={"broken": function})
    count = {"count": {"kind": "value", "value": {"agg": "count"}}}
    write(deployment, "missing", {"columns": {"shop": "string", "paid": "long"}}, states=count)
    write(deployment, "typed", {"columns": {"shop": "string", "amount": "string"}}, states=count)
    write(deployment, "computed", {"columns": {"shop": "string", "amount": {"expr": "shop / 2", "type": "long"}}})
    write(deployment, "unset", schedule=None)
    result = call(deployment, "pipelines", "validate", "--deep", "--json")
    answer = json.loads(result.stdout)
    assert (result.exit_code, answer["valid"]) == (1, ["good"])
    assert [source["events"] for source in answer["tried"]] == [3]
    kinds = {Path(fault["path"]).stem: fault["kind"] for fault in answer["faults"]}
    assert kinds == {
        "function": "bad-function", "missing": "missing-column", "typed": "column-type",
        "computed": "bad-source-value", "unset": "no-start",
    }  # fmt: skip
    broken = next(fault for fault in answer["faults"] if fault["kind"] == "bad-function")
    assert "ZeroDivisionError: of 3 events and 2 keys" in broken["message"]


def test_another_interval_is_tried_if_it_is_named(deployment: Deployment) -> None:
    write(deployment, "good")
    result = call(deployment, "pipelines", "validate", "--deep", "--start", "2026-01-02")
    assert result.exit_code == 1
    assert "column amount of" in result.output
    assert "\n  hint: " in result.stderr


def test_the_last_interval_is_tried_if_the_next_one_is_not_over(deployment: Deployment, spark: SparkSession) -> None:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    yesterday = today - timedelta(days=1)
    frame = pl.DataFrame({"shop": ["a"], "amount": [1]})
    frame.write_parquet(f"{deployment.data}/orders/{yesterday:%Y-%m-%d}.parquet")
    write(deployment, "current", schedule={"cron": "@daily", "start": f"{yesterday:%Y-%m-%d}"})
    said(deployment, "run", "current", "--end", f"{today:%Y-%m-%d}")
    answer = said(deployment, "pipelines", "validate", "current", "--deep")
    assert f"current: 1 event of source in [{yesterday:%Y-%m-%d}T00:00:00+00:00" in answer


def test_one_source_that_cannot_be_read_is_one_fault(deployment: Deployment) -> None:
    columns = {"shop": "string", "amount": "long"}
    table = {"format": "delta", "path": "{data}/none", "incremental": True, "columns": columns}
    files = {"path": "{data}/orders/{start:%Y-%m-%d}.parquet", "columns": columns}
    write(deployment, "both", source=None, sources={"files": files, "table": table})
    path = Path(deployment.pipelines_directory) / "both.yaml"
    content = yaml.safe_load(path.read_text())
    del content["source"]
    path.write_text(yaml.safe_dump(content))
    answer = json.loads(call(deployment, "pipelines", "validate", "--deep", "--json").stdout)
    assert [source["source"] for source in answer["tried"]] == ["sources.files"]
    (fault,) = answer["faults"]
    assert "none cannot be read: there is no Delta table" in fault["message"]
