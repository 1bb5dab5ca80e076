"""Rows that functions emit on Spark: several tasks and intervals, a restore, and the trial of a pipeline before its
first run."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from statelib.flows.wiring import Deployment
from tests.integration.shop_cli import call, said
from tests.support.emitting import COUNTS, events_of, expected_alerts, found_alerts
from tests.support.published import feed_rows, folded
from tests.support.worlds import day, new_deployment

FILE = (
    COUNTS.replace("BACKEND", "rocksdb")
    .replace("STRATEGY", "incremental")
    .replace("{data}/{start}-{end}", "{data}/events/{start:%Y-%m-%d}")
    .replace("parallelism: 2", "parallelism: 4")
    .replace("count: 1", "count: 5")
    + 'schedule: {cron: "@daily", start: 2013-01-01}\n'
    + 'publish: {feed: {target: "{data}/feed", mode: changes, output: alerts}}\n'
)
DAYS = {number: [(n * number % 23, n % 17) for n in range(200)] for number in (1, 2, 3)}


@pytest.fixture
def deployment(tmp_path: Path, spark: SparkSession) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "counts.yaml").write_text(FILE)
    for number, rows in DAYS.items():
        write(tmp_path, number, rows)
    return new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")


def write(root: Path, number: int, rows: list[tuple[int, int]]) -> None:
    """Write the events of a day in two files."""
    directory = root / "events" / f"2013-01-0{number}"
    directory.mkdir(parents=True, exist_ok=True)
    events = events_of(rows, day(number).end_ms - 1000)
    events = events.set_column(2, "at", events["at"].cast(pa.timestamp("us", "UTC")))
    for part, table in enumerate((events.slice(0, 70), events.slice(70))):
        pq.write_table(table, directory / f"part-{part}.parquet")


def alerts(root: Path) -> list[tuple[Any, ...]]:
    feed = feed_rows(root / "feed")
    rows = list(folded(feed, ["checkpoint_id", "row_number"]).values())
    return found_alerts(pa.Table.from_pylist(rows, feed.schema))


def test_alerts_follow_runs_and_restores(deployment: Deployment, tmp_path: Path) -> None:
    said(deployment, "run", "counts", "--end", "2013-01-04")
    assert alerts(tmp_path) == expected_alerts(DAYS[1] + DAYS[2] + DAYS[3])
    said(deployment, "restore", "counts", "1", "--yes")
    again = [(5, 15), (6, 1)]
    write(tmp_path, 2, again)
    said(deployment, "run", "counts", "--end", "2013-01-03")
    assert alerts(tmp_path) == expected_alerts(DAYS[1] + again)
    answer = json.loads(said(deployment, "query", "counts", "SELECT k, n, text FROM alerts", "--json"))
    assert answer["rows"] == [[5, 15, "n is 15"]]
    status = json.loads(said(deployment, "pipelines", "status", "counts", "--json"))
    assert [table["behind"] for table in status["tables"]] == [0]


def test_a_trial_finds_outputs_that_do_not_fit(deployment: Deployment, tmp_path: Path) -> None:
    said(deployment, "pipelines", "validate", "--deep")
    file = tmp_path / "pipelines" / "counts.yaml"
    file.write_text(FILE.replace("text: string", "text: long"))
    answer = json.loads(call(deployment, "pipelines", "validate", "--deep", "--json").stdout)
    ((kind, message),) = [(fault["kind"], fault["message"]) for fault in answer["faults"]]
    assert kind == "bad-function-result"
    assert "output alerts: expected the types k: int64, n: int64, text: int64" in message
    result = call(deployment, "run", "counts", "--end", "2013-01-02")
    assert result.exit_code != 0
    assert "output alerts: expected the types" in result.output
    assert not (tmp_path / "feed").exists()
