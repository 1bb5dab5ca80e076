"""Sources that are not complete, missing or damaged, as a user of ``statelib run`` sees them."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession

from statelib.flows.checkpoint.steps import begin
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval
from tests.integration.shop import environment
from tests.integration.shop_cli import call, refused, said
from tests.support.extent import large
from tests.support.worlds import CHECKOUT, new_deployment

ORDERS = """\
name: orders
schedule: {{cron: "@daily", start: 2026-01-01}}
source:
  format: {format}
  path: "{{data}}/{{start:%Y-%m-%d}}"
  columns: {{shop: string, amount: long}}
  {more}
key: [shop]
states:
  total: {{kind: value, value: {{agg: sum, of: amount}}}}
  {states}
backend: heap
parallelism: 2
"""
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
FORMATS = ["parquet", "json"]
"""Parquet is read by the subtasks themselves, everything else by Spark."""


@pytest.fixture
def deployment(tmp_path: Path, spark: SparkSession) -> Deployment:
    for name in ("pipelines", "data"):
        (tmp_path / name).mkdir()
    return new_deployment(tmp_path, tmp_path / "data", tmp_path / "pipelines")


def write_pipeline(deployment: Deployment, more: str = "", format_: str = "parquet", states: str = "") -> None:
    text = ORDERS.format(format=format_, more=more, states=states)
    (Path(deployment.pipelines_directory) / "orders.yaml").write_text(text)


def directory(deployment: Deployment, number: int) -> Path:
    return Path(deployment.data) / f"{FIRST + timedelta(days=number - 1):%Y-%m-%d}"


def write_day(deployment: Deployment, number: int, format_: str = "parquet") -> Path:
    target = directory(deployment, number)
    target.mkdir(exist_ok=True)
    frame = pl.DataFrame({"shop": ["a", "b", "b"], "amount": [1, 1, 1]})
    if format_ == "json":
        frame.write_ndjson(target / "part.json")
    else:
        frame.write_parquet(target / "part.parquet")
    return target


def run(deployment: Deployment, *more: str) -> list[tuple[int, int]]:
    """Return the checkpoints of a run, and the number of events that each of them applied."""
    done = json.loads(said(deployment, "run", "orders", "--json", *more))["checkpoints"]
    return [(c["checkpoint_id"], c["events"]["applied"]) for c in done]


def test_an_incomplete_day_is_refused_until_its_marker_exists(deployment: Deployment) -> None:
    write_pipeline(deployment, "ready: {marker: _SUCCESS}")
    first = write_day(deployment, 1)
    assert "2026-01-01/_SUCCESS does not exist" in refused(deployment, "run", "orders")
    assert json.loads(said(deployment, "checkpoints", "list", "--all", "--json")) == [], "nothing was begun"
    (first / "_SUCCESS").touch()
    assert run(deployment) == [(1, 3)]
    write_day(deployment, 2)
    assert json.loads(call(deployment, "run", "orders", "--json").stdout)["error"] == "source-not-ready"
    assert run(deployment, "--assume-ready") == [(2, 3)]
    first.rename(first.with_name("moved"))
    assert run(deployment, "--start", "2026-01-01") == [(1, 3)], "an interval that is applied needs no events"


def write_hours(deployment: Deployment, path: str, *hours: str, format_: str = "parquet") -> None:
    """Write a pipeline that reads this path below the data, and the directory of each hour."""
    write_pipeline(deployment, format_=format_)
    file = Path(deployment.pipelines_directory) / "orders.yaml"
    file.write_text(file.read_text().replace("{start:%Y-%m-%d}", path))
    for hour in hours:
        written = write_day(deployment, 1, format_)
        written.rename(written.with_name(hour))


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize(("bound", "own"), [("start", "2026-01-01T00"), ("end", "2026-01-02T00")])
def test_an_hour_of_a_daily_interval_is_refused_if_there_are_others(
    deployment: Deployment, format_: str, bound: str, own: str
) -> None:
    write_hours(deployment, f"{{{bound}:%Y-%m-%dT%H}}", own, "2026-01-01T01", format_=format_)
    text = refused(deployment, "run", "orders")
    assert "names a part of the interval [2026-01-01" in text
    assert f"{own} would be read, and {deployment.data}/2026-01-01T01 left out" in text


@pytest.mark.parametrize(
    ("path", "hours", "events"),
    [
        ("{start:%Y-%m-%dT%H}", ["2026-01-01T00", "2026-01-02T01"], 3),
        ("{start:%Y-%m-%d}T*", ["2026-01-01T00", "2026-01-01T01"], 6),
        ("{start:%Y-%m-%d}T00", ["2026-01-01T00", "2026-01-01T01"], 3),
    ],
)
def test_a_directory_that_is_named_by_an_hour_may_have_a_day(
    deployment: Deployment, path: str, hours: list[str], events: int
) -> None:
    write_hours(deployment, path, *hours)
    assert run(deployment) == [(1, events)]


def test_only_airflow_can_check_assets(deployment: Deployment) -> None:
    write_pipeline(deployment, "ready: {asset: 's3://lake/orders'}")
    write_day(deployment, 1)
    assert "whether asset s3://lake/orders was updated" in refused(deployment, "run", "orders")
    assert run(deployment, "--assume-ready") == [(1, 3)]


@pytest.mark.parametrize("format_", FORMATS)
def test_a_missing_day_is_an_error_or_has_no_events(deployment: Deployment, format_: str) -> None:
    write_pipeline(deployment, format_=format_)
    write_day(deployment, 2, format_)
    assert "cannot be read: PATH_NOT_FOUND" in refused(deployment, "run", "orders")
    directory(deployment, 1).mkdir()
    assert "UNABLE_TO_INFER_SCHEMA" in refused(deployment, "run", "orders"), "an empty directory may be half a day"
    directory(deployment, 1).rmdir()
    write_pipeline(deployment, "on_missing: empty", format_)
    directory(deployment, 3).mkdir()
    whole = ("--whole", "--start", "2026-01-01", "--end", "2026-01-03")
    assert run(deployment) == [(3, 0)], "two were refused before"
    assert run(deployment) == [(4, 3)]
    assert run(deployment) == [(5, 0)], "an empty directory"
    assert run(deployment) == [(6, 0)], "none at all"
    assert "is not part of the state's history" in refused(deployment, "run", "orders", *whole)


@pytest.mark.parametrize("format_", FORMATS)
def test_a_day_is_not_empty_where_there_are_no_data_at_all(deployment: Deployment, format_: str) -> None:
    """A typing error in STATELIB_DATA, or a mount that is missing, would make each day an empty one for ever."""
    write_pipeline(deployment, "on_missing: empty", format_)
    mistyped = replace(deployment, data=f"{deployment.data}-x")
    assert f"the directory of the data does not exist: {deployment.data}-x" in refused(mistyped, "run", "orders")
    write_day(deployment, 1, format_)
    assert run(deployment)[-1][1] == 3


@pytest.mark.parametrize("format_", FORMATS)
def test_a_directory_with_only_its_marker_has_no_events(deployment: Deployment, format_: str) -> None:
    write_pipeline(deployment, "ready: {marker: _SUCCESS}", format_)
    directory(deployment, 1).mkdir()
    (directory(deployment, 1) / "_SUCCESS").touch()
    (write_day(deployment, 2, format_) / "_SUCCESS").touch()
    assert run(deployment, "--whole", "--end", "2026-01-03") == [(1, 3)], "one part of the range is empty"
    assert resolve(deployment, "orders/1").to_arrow("total").num_rows == 2


@pytest.mark.parametrize("format_", FORMATS)
def test_a_pattern_without_a_match_has_no_events_if_the_marker_exists(deployment: Deployment, format_: str) -> None:
    write_pipeline(deployment, "ready: {marker: _SUCCESS}", format_)
    file = Path(deployment.pipelines_directory) / "orders.yaml"
    file.write_text(file.read_text().replace('{start:%Y-%m-%d}"', f'{{start:%Y-%m-%d}}/*.{format_}"'))
    assert "does not exist" in refused(deployment, "run", "orders"), "neither the directory nor its marker"
    directory(deployment, 1).mkdir()
    assert "_SUCCESS does not exist" in refused(deployment, "run", "orders")
    (directory(deployment, 1) / "_SUCCESS").touch()
    (write_day(deployment, 2, format_) / "_SUCCESS").touch()
    assert run(deployment, "--whole", "--end", "2026-01-02") == [(1, 0)]
    assert run(deployment) == [(2, 3)]


def test_the_error_names_a_file_that_is_no_parquet_file(deployment: Deployment) -> None:
    write_pipeline(deployment)
    odd = write_day(deployment, 1) / "notes.txt"
    odd.write_text("not a file of columns")
    message = refused(deployment, "run", "orders")
    assert f"source file file:{odd} cannot be read: file:{odd} is not a Parquet file" in message
    assert "\tat " not in message


def test_the_error_names_a_truncated_file(deployment: Deployment) -> None:
    write_pipeline(deployment)
    whole = write_day(deployment, 1) / "part.parquet"
    cut = whole.with_name("rest.parquet")
    cut.write_bytes(whole.read_bytes()[:-20])
    message = refused(deployment, "run", "orders")
    assert "rest.parquet cannot be read: " in message
    assert len(message.splitlines()) <= 3
    (failed,) = json.loads(said(deployment, "checkpoints", "list", "--all", "--json"))
    assert failed["failure"] == "CHECKPOINT_DECLINED"
    assert "rest.parquet" in failed["reason"]


def test_the_error_names_a_format_that_spark_does_not_have(deployment: Deployment) -> None:
    write_pipeline(deployment, format_="no.such.Format")
    write_day(deployment, 1)
    assert "source.format 'no.such.Format': Spark has no such data source" in refused(deployment, "run", "orders")


def test_a_killed_worker_gives_one_clear_error(deployment: Deployment) -> None:
    states = "seen: {kind: value, fields: {n: long}, function: 'tests.integration.users_that_fail:die'}"
    write_pipeline(deployment, states=states)
    write_day(deployment, 1)
    message = refused(deployment, "run", "orders")
    assert "a worker was lost: Python worker exited unexpectedly" in message
    assert "\tat " not in message


@pytest.mark.parametrize(
    ("more", "states", "message"),
    [
        ("where: \"raise_error('odd') IS NULL\"", "", "a condition or an expression cannot take"),
        pytest.param(
            "",
            "seen: {kind: value, fields: {n: long}, function: 'tests.integration.users_that_fail:die'}",
            "was lost",
            marks=large("make test has test_a_killed_worker_gives_one_clear_error"),
        ),
    ],
)
def test_a_failed_job_prints_no_lines_of_java(deployment: Deployment, more: str, states: str, message: str) -> None:
    """In a process of its own, because what the JVM prints is not among what Python captures."""
    write_pipeline(deployment, more, "json", states)
    write_day(deployment, 1, "json")
    done = subprocess.run(
        [sys.executable, "-m", "statelib", "run", "orders"],
        env={**os.environ, **environment(deployment)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if not line.startswith(("WARNING: ", "  hint: "))]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("statelib: ")
    assert message in lines[0]


def test_after_a_killed_worker_the_log_of_a_task_ends_in_one_line(deployment: Deployment) -> None:
    """The log of a job that Airflow's operator submits ends in one line with the error. Java's and Python's tracebacks
    are not printed."""
    states = "seen: {kind: value, fields: {n: long}, function: 'tests.integration.users_that_fail:die'}"
    write_pipeline(deployment, states=states)
    write_day(deployment, 1)
    start_ms = int(FIRST.timestamp() * 1000)
    begun = begin(deployment, deployment.pipeline("orders"), DataInterval(start_ms, start_ms + 86_400_000), "test")
    file = str(Path(deployment.pipelines_directory) / "orders.yaml")
    words = ["--master", "local[1]", str(CHECKOUT / "jobs" / "statelib_jobs" / "snapshot.py"), "--pipeline", file]
    own = {"PYSPARK_PYTHON": sys.executable, **environment(deployment)}
    done = subprocess.run(
        [str(Path(sys.executable).parent / "spark-submit"), *words, "--checkpoint-id", str(begun.checkpoint_id)],
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    *before, last = done.stdout.splitlines()
    assert last.startswith("statelib: worker-lost: the Spark job failed: a worker was lost: Python worker exited")
    assert "py4j" not in done.stdout
    assert not [line for line in before if line.startswith(("statelib: ", "Traceback"))]
