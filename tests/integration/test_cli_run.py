"""``statelib run`` and ``savepoint create``: whole runs without Airflow, and what becomes of one that fails."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from statelib.cli.main import app
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.savepoints.recorded_changes import recorded_changes
from tests.integration.shop import environment
from tests.integration.shop_cli import call, refused, said
from tests.support.published import feed_rows, folded
from tests.support.worlds import new_deployment

ORDERS = """\
name: orders
schedule: {cron: "@daily", start: 2026-01-01}
source:
  path: "{data}/{start:%Y-%m-%d}.parquet"
  columns: {shop: string, amount: long}
key: [shop]
states:
  total: {kind: value, value: {agg: sum, of: amount}}
backend: heap
parallelism: 2
"""
FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def write_day(root: Path, number: int, amount: int = 1) -> None:
    frame = pl.DataFrame({"shop": ["a", "b", "b"], "amount": [amount, amount, amount]})
    frame.write_parquet(root / f"{FIRST + timedelta(days=number - 1):%Y-%m-%d}.parquet")


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    pipelines, data = tmp_path / "pipelines", tmp_path / "data"
    pipelines.mkdir()
    data.mkdir()
    (pipelines / "orders.yaml").write_text(ORDERS)
    for number in (1, 2, 4):
        write_day(data, number)
    return new_deployment(tmp_path, data, pipelines)


def totals(deployment: Deployment, snapshot: str) -> dict[str, int]:
    return {row["key"]: row["value"] for row in resolve(deployment, snapshot).to_arrow("total").to_pylist()}


def test_runs_of_a_range_and_of_the_next_interval_stop_at_a_failure_and_continue_later(
    deployment: Deployment, spark: SparkSession
) -> None:
    planned = json.loads(said(deployment, "run", "orders", "--end", "2026-01-04", "--dry-run", "--json"))
    assert len(planned["intervals"]) == 3
    assert said(deployment, "run", "orders", "--end", "2026-01-03").count("completed") == 2
    assert totals(deployment, "orders/2") == {"a": 2, "b": 4}

    assert "2026-01-03.parquet cannot be read" in refused(deployment, "run", "orders")
    (failed,) = [
        r for r in json.loads(said(deployment, "checkpoints", "list", "--all", "--json")) if r["checkpoint_id"] == 3
    ]
    assert (failed["state"], failed["failure"]) == ("ABORTED", "CHECKPOINT_DECLINED")

    write_day(Path(deployment.data), 3, 10)
    done = json.loads(said(deployment, "run", "orders", "--start", "2026-01-02", "--end", "2026-01-05", "--json"))
    assert [(c["checkpoint_id"], c["already_completed"]) for c in done["checkpoints"]] == [
        (2, True), (4, False), (5, False),
    ]  # fmt: skip
    assert totals(deployment, "orders/5") == {"a": 13, "b": 26}
    assert "does not follow the last applied one" in refused(deployment, "run", "orders", "--start", "2026-01-08")
    for end in ("2026-01-05", "2026-01-05T12:00", "2026-01-02"):
        nothing = call(deployment, "run", "orders", "--end", end)
        assert "nothing to apply: the state of orders has all intervals that end by 2026-01-0" in nothing.stderr
        assert nothing.exit_code == 0
    assert json.loads(said(deployment, "run", "orders", "--end", "2026-01-05", "--json"))["checkpoints"] == []

    words = ["-t", deployment.work_directory, "--json"]
    saved = json.loads(said(deployment, "savepoint", "create", "orders", "--note", "n", *words))
    assert (saved["kind"], saved["note"], saved["base"]) == ("SAVEPOINT", "n", 5)
    assert totals(deployment, saved["directory"].removeprefix("file://")) == {"a": 13, "b": 26}

    assert "expected --savepoint" in refused(deployment, "pipelines", "stop", "orders")
    ended = json.loads(said(deployment, "pipelines", "stop", "orders", "--savepoint", "--drain", *words))
    assert (ended["cancelled"], ended["head"], ended["savepoint"]["stop"]) == (True, 5, "DRAIN")
    assert ended["savepoint"]["directory"].startswith(f"file://{deployment.work_directory}/")
    drained = f"orders/{ended['savepoint']['checkpoint_id']}"
    assert "drained: its event-time timers have fired" in said(deployment, "inspect", drained)
    assert "is cancelled" in refused(deployment, "run", "orders")
    again = call(deployment, "pipelines", "stop", "orders", "--savepoint")
    assert "statelib savepoint create orders" in again.stderr
    said(deployment, "pipelines", "resume", "orders")
    (blocked := Path(deployment.work_directory) / "a-file").write_text("")
    refused(deployment, "pipelines", "stop", "orders", "--savepoint", "-t", str(blocked))
    assert not json.loads(said(deployment, "pipelines", "status", "orders", "--json"))["head"]["cancelled"]
    stopped = said(deployment, "pipelines", "stop", "orders", "--savepoint").splitlines()
    assert re.fullmatch(r"orders is stopped; savepoint orders/\d+ holds 2 keys, 2 entries, \d\.\d KiB", stopped[0])
    assert stopped[2] == "to go on: statelib pipelines resume orders"


def test_a_run_that_fails_shows_which_intervals_are_complete_and_which_one_failed(
    deployment: Deployment, spark: SparkSession
) -> None:
    result = call(deployment, "run", "orders", "--end", "2026-01-05")
    assert result.exit_code == 2
    rows = [line.split() for line in result.stdout.splitlines() if "2026-01-0" in line]
    assert [(row[1], row[-1]) for row in rows] == [
        ("2026-01-01", "completed"), ("2026-01-02", "completed"), ("2026-01-03", "failed"),
    ]  # fmt: skip
    assert "2026-01-03.parquet cannot be read" in result.stderr


def test_the_json_of_a_run_that_fails_has_the_complete_checkpoints(deployment: Deployment, spark: SparkSession) -> None:
    result = call(deployment, "run", "orders", "--end", "2026-01-05", "--json")
    document = json.loads(result.stdout)
    assert (result.exit_code, document["error"]) == (2, "no-source")
    assert [checkpoint["checkpoint_id"] for checkpoint in document["checkpoints"]] == [1, 2]


def test_an_interval_that_is_not_over_is_refused_unless_its_events_are_complete(
    deployment: Deployment, spark: SparkSession
) -> None:
    tomorrow = f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%d}"
    frame = pl.DataFrame({"shop": ["a"], "amount": [1]})
    frame.write_parquet(Path(deployment.data) / f"{tomorrow}.parquet")
    file = Path(deployment.pipelines_directory) / "orders.yaml"
    file.write_text(ORDERS.replace("start: 2026-01-01", f"start: {tomorrow}") + "group: shops\n")
    for words in (("orders",), ("orders", "--dry-run"), ("--group", "shops")):
        message = refused(deployment, "run", *words)
        assert f"the interval [{tomorrow}T00:00:00+00:00, " in message
        assert "is not over" in message
    assert said(deployment, "run", "orders", "--dry-run", "--assume-ready").startswith(tomorrow)
    said(deployment, "run", "orders", "--assume-ready")
    assert totals(deployment, "orders/1") == {"a": 1}


def test_a_whole_range_as_one_interval_reads_every_day(deployment: Deployment, spark: SparkSession) -> None:
    write_day(Path(deployment.data), 2, 5)
    done = json.loads(said(deployment, "run", "orders", "--whole", "--end", "2026-01-03", "--json"))
    assert [c["events"]["applied"] for c in done["checkpoints"]] == [6]
    assert totals(deployment, "orders/1") == {"a": 6, "b": 12}
    assert "2026-01-03.parquet cannot be read" in refused(deployment, "run", "orders", "--whole", "--end", "2026-01-05")
    half = refused(deployment, "run", "orders", "--whole", "--end", "2026-01-04T12:00")
    assert "it does not consist of intervals of the schedule '@daily'" in half


def test_a_run_publishes_and_one_whose_tables_fail_keeps_its_checkpoint(
    deployment: Deployment, spark: SparkSession
) -> None:
    feed = Path(deployment.data) / "feed"
    publish = 'publish: {feed: {target: "{data}/feed", mode: changes}}\n'
    (Path(deployment.pipelines_directory) / "orders.yaml").write_text(ORDERS + publish)
    said(deployment, "run", "orders", "--end", "2026-01-02")
    (feed / "stray.parquet").write_bytes(b"")
    failed = call(deployment, "run", "orders")
    assert (failed.exit_code, failed.stdout.count("not published")) == (2, 1)
    assert "table feed is not published" in failed.stderr
    assert totals(deployment, "orders/head") == {"a": 2, "b": 4}, "the checkpoint is registered"
    (feed / "stray.parquet").unlink()
    assert "nothing to apply" in call(deployment, "run", "orders", "--end", "2026-01-03").stderr
    assert folded(feed_rows(feed), ["shop"]) == {
        (shop,): {"shop": shop, "value": value} for shop, value in totals(deployment, "orders/head").items()
    }
    assert resolve(deployment, "orders/2").manifest is not None
    assert recorded_changes(resolve(deployment, "orders/2"), "total") is not None, "the subtasks recorded them"


def test_bounds_that_are_no_intervals_of_the_schedule_are_refused(deployment: Deployment) -> None:
    assert "begins at 2026-01-01 12:00:00" in refused(deployment, "run", "orders", "--start", "2026-01-01T12:00")
    assert "it must be after --start" in refused(
        deployment, "run", "orders", "--start", "2026-01-02", "--end", "2026-01-01"
    )
    assert "fits into that range" in refused(deployment, "run", "orders", "--end", "2026-01-01T12:00")
    assert "'yesterday' is no time" in refused(deployment, "run", "orders", "--start", "yesterday")
    assert "--conf 'x': expected NAME=VALUE" in refused(deployment, "run", "orders", "--conf", "x")
    assert "the end of the interval is unknown" in refused(deployment, "run", "orders", "--whole")
    whole = said(deployment, "run", "orders", "--whole", "--end", "2026-01-31", "--dry-run")
    assert whole == "2026-01-01 00:00:00 to 2026-01-31 00:00:00 UTC\n"
    (Path(deployment.pipelines_directory) / "orders.yaml").write_text(
        ORDERS.replace('cron: "@daily"', 'cron: "at noon"')
    )
    assert "'at noon': expected a cron expression" in refused(deployment, "run", "orders")


def test_bounds_are_in_the_time_zone_of_the_pipeline(deployment: Deployment) -> None:
    file = Path(deployment.pipelines_directory) / "orders.yaml"
    file.write_text(ORDERS.replace('cron: "@daily"', 'cron: "@daily", time_zone: Europe/Berlin'))
    planned = said(deployment, "run", "orders", "--start", "2026-03-29", "--end", "2026-03-31", "--dry-run")
    assert planned.splitlines()[:2] == [
        "2026-03-28 23:00:00 to 2026-03-29 22:00:00 UTC", "2026-03-29 22:00:00 to 2026-03-30 22:00:00 UTC",
    ]  # fmt: skip
    with_offset = ("--start", "2026-03-28T23:00Z", "--end", "2026-03-31T00:00+02:00")
    assert said(deployment, "run", "orders", *with_offset, "--dry-run") == planned
    assert said(deployment, "run", "orders", "--dry-run").startswith("2025-12-31 23:00:00 to 2026-01-01 23:00:00 UTC")


def test_the_first_interval_begins_at_the_first_moment_of_the_schedule_like_in_airflow(deployment: Deployment) -> None:
    file = Path(deployment.pipelines_directory) / "orders.yaml"
    file.write_text(ORDERS.replace('cron: "@daily"', 'cron: "0 6 * * *"'))
    assert said(deployment, "run", "orders", "--dry-run") == "2026-01-01 06:00:00 to 2026-01-02 06:00:00 UTC\n"
    file.write_text(ORDERS.replace('"@daily", start: 2026-01-01', '"@monthly", start: 2026-01-15'))
    planned = said(deployment, "run", "orders", "--dry-run", "--end", "2026-04-01")
    assert planned.splitlines() == [
        "2026-02-01 00:00:00 to 2026-03-01 00:00:00 UTC", "2026-03-01 00:00:00 to 2026-04-01 00:00:00 UTC",
    ]  # fmt: skip


def test_no_interval_begins_after_the_end_of_the_schedule(deployment: Deployment) -> None:
    file = Path(deployment.pipelines_directory) / "orders.yaml"
    file.write_text(ORDERS.replace("start: 2026-01-01", "start: 2026-01-01, end: 2026-01-02"))
    planned = said(deployment, "run", "orders", "--dry-run", "--end", "2026-01-09")
    assert planned.splitlines()[-1] == "2026-01-02 00:00:00 to 2026-01-03 00:00:00 UTC"
    message = refused(deployment, "run", "orders", "--dry-run", "--start", "2026-01-03")
    assert "none begins after schedule.end, 2026-01-02" in message
    said(deployment, "run", "orders", "--end", "2026-01-03")
    assert (
        "nothing to apply: the state of orders has all intervals of its sch" in call(deployment, "run", "orders").stderr
    )
    assert "has all intervals of the schedule" in call(deployment, "pipelines", "validate", "--deep").stderr


def test_a_pipeline_without_a_schedule_needs_explicit_bounds(deployment: Deployment) -> None:
    unscheduled = "\n".join(line for line in ORDERS.splitlines() if not line.startswith("schedule"))
    (Path(deployment.pipelines_directory) / "orders.yaml").write_text(unscheduled)
    assert "the start of its first interval is unknown" in refused(deployment, "run", "orders")
    assert "the end of the interval is unknown" in refused(deployment, "run", "orders", "--start", "2026-01-01")


def test_an_unknown_format_of_a_savepoint_is_refused(deployment: Deployment) -> None:
    assert "expected canonical or native" in refused(deployment, "savepoint", "create", "orders", "--format", "x")
    deployment.catalog()
    assert "no completed checkpoint" in refused(deployment, "savepoint", "create", "orders")


def test_shell_completion_offers_pipeline_names(deployment: Deployment) -> None:
    words = {"_STATELIB_COMPLETE": "complete_bash", "COMP_CWORD": "2", "COMP_WORDS": "statelib run or"}
    result = CliRunner().invoke(app, [], prog_name="statelib", env={**environment(deployment), **words})
    assert result.stdout.split() == ["orders"]
