"""Several small pipelines in one Spark job: each succeeds or fails on its own."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from statelib.cli.commands.running.group_runs import planned_group
from statelib.flows.checkpoint.steps import begin, register
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval
from statelib.model.moments import epoch_ms
from statelib.spark.snapshot.group import Member, run_group
from tests.integration.shop import environment
from tests.integration.shop_cli import call, refused, said
from tests.integration.test_cli_run import FIRST, write_day
from tests.integration.test_events_counted import jobs
from tests.support.extent import large
from tests.support.worlds import new_deployment

PIPELINE = """\
name: {name}
group: {group}
schedule: {{cron: "@daily", start: 2026-01-01}}
source:
  path: "{{data}}/{{start:%Y-%m-%d}}.parquet{more}"
  columns: {{shop: string, amount: long}}
key: [shop]
states:
  total: {{kind: value, {value}}}
backend: heap
parallelism: {parallelism}
"""
SUM = "value: {agg: sum, of: amount}"
FAILING = 'fields: {sold: long}, function: "tests.integration.users_that_fail:%s"'
CRASH = """
import os, sys
from pathlib import Path
from statelib import crash_points
from statelib.definition.pipeline import load_pipeline
from statelib.flows.wiring import deployment
from statelib.spark.session.local_session import new_session
from statelib.spark.snapshot.group import Member, run_group

def die_at_the_second(name, seen=[]):
    if name == "snapshot: before publish":
        seen.append(name)
        if len(seen) == 2:
            os._exit(7)

crash_points.armed.append(die_at_the_second)
own = deployment()
members = [Member(own.pipeline(name), 1) for name in ("a", "b")]
run_group(new_session("crash", "local[2]"), own, members)
"""
DAY_MS = 86_400_000


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    """Return a deployment with three days of events and three pipelines of the group hourly. Spark moves the events of
    the last one."""
    pipelines, data = tmp_path / "pipelines", tmp_path / "data"
    pipelines.mkdir()
    data.mkdir()
    for number in (1, 2, 3):
        write_day(data, number)
    add(pipelines, "a", parallelism=1)
    add(pipelines, "b", parallelism=3)
    add(pipelines, "moved", more='"\n  where: "amount > 0')
    add(pipelines, "alone", group='""')
    return new_deployment(tmp_path, data, pipelines)


def add(pipelines: Path, name: str, **other: object) -> None:
    values = {"group": "hourly", "more": "", "value": SUM, "parallelism": 2, **other}
    (pipelines / f"{name}.yaml").write_text(PIPELINE.format(name=name, **values))


def totals(deployment: Deployment, name: str) -> dict[str, int]:
    return {row["key"]: row["value"] for row in resolve(deployment, f"{name}/head").to_arrow("total").to_pylist()}


def states_of(deployment: Deployment, name: str) -> list[str]:
    return [str(record.state) for record in deployment.catalog().list(deployment.pipeline(name).name)]


@pytest.mark.usefixtures("spark")
def test_a_group_is_run_day_after_day_and_only_its_pipelines(deployment: Deployment) -> None:
    planned = json.loads(said(deployment, "run", "--group", "hourly", "--end", "2026-01-03", "--dry-run", "--json"))
    assert [interval["pipeline"] for interval in planned["intervals"]] == ["a", "a", "b", "b", "moved", "moved"]
    done = json.loads(said(deployment, "run", "--group", "hourly", "--end", "2026-01-03", "--json"))
    assert [f"{c['pipeline']}/{c['checkpoint_id']}" for c in done["checkpoints"]] == [
        "a/1", "b/1", "moved/1", "a/2", "b/2", "moved/2",
    ]  # fmt: skip
    assert {name: totals(deployment, name) for name in ("a", "b", "moved")} == {
        name: {"a": 2, "b": 4} for name in ("a", "b", "moved")
    }
    assert states_of(deployment, "alone") == []
    again = said(deployment, "run", "--group", "hourly", "--start", "2026-01-01", "--end", "2026-01-04")
    assert (again.count("was there already"), again.count("completed")) == (6, 3)

    write_day(Path(deployment.data), 4)
    metadata = Path(resolve(deployment, "a/head").directory.removeprefix("file://")) / "_metadata"
    metadata.write_bytes(metadata.read_bytes()[:100])
    result = call(deployment, "run", "--group", "hourly", "--json")
    document = json.loads(result.stdout)
    assert (result.exit_code, list(document["errors"])) == (1, ["a"])
    assert [f"{c['pipeline']}/{c['checkpoint_id']}" for c in document["checkpoints"]] == ["b/4", "moved/4"]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("refuse", "ValueError: not this one"),
        pytest.param("die", "worker was lost", marks=large("make test has test_a_killed_worker_gives_one_clear_error")),
    ],
)
def test_a_pipeline_that_fails_is_aborted_and_the_others_are_registered(
    deployment: Deployment, function: str, reason: str
) -> None:
    add(Path(deployment.pipelines_directory), "wrong", value=FAILING % function)
    result = call(deployment, "run", "--group", "hourly", "--end", "2026-01-03", "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert reason in document["errors"]["wrong"]["message"]
    assert list(document["errors"]) == ["wrong"]
    assert states_of(deployment, "wrong") == ["ABORTED"], "it gets no second day"
    assert {name: totals(deployment, name) for name in ("a", "b", "moved")} == {
        name: {"a": 2, "b": 4} for name in ("a", "b", "moved")
    }
    assert f"wrong failed: the Spark job failed: {'ValueError' if function == 'refuse' else 'a worker'}" in (
        call(deployment, "run", "--group", "hourly").stdout
    )

    add(Path(deployment.pipelines_directory), "wrong")
    again = json.loads(said(deployment, "run", "--group", "hourly", "--end", "2026-01-03", "--json"))
    assert [(c["pipeline"], c["already_completed"]) for c in again["checkpoints"]] == [("wrong", False)] * 2
    assert totals(deployment, "wrong") == {"a": 2, "b": 4}


def test_a_pipeline_whose_next_interval_is_not_over_does_not_stop_its_group(deployment: Deployment) -> None:
    tomorrow = f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%d}"
    file = Path(deployment.pipelines_directory) / "moved.yaml"
    file.write_text(file.read_text().replace("start: 2026-01-01", f"start: {tomorrow}"))
    planned = [said(deployment, "run", "-g", "hourly", "--dry-run", *more) for more in ((), ("--assume-ready",))]
    assert [[line.partition(":")[0] for line in plan.splitlines()] for plan in planned] == [
        ["a", "b"], ["a", "b", "moved"],
    ]  # fmt: skip
    assert "is not over" in refused(deployment, "run", "-g", "hourly", "--end", f"{FIRST + timedelta(days=9999)}")


def test_all_subtasks_that_read_their_events_share_one_job_and_a_retry_takes_only_what_is_missing(
    deployment: Deployment, spark: SparkSession
) -> None:
    add(Path(deployment.pipelines_directory), "wrong", value=FAILING % "refuse")
    interval = DataInterval(epoch_ms(FIRST), epoch_ms(FIRST) + DAY_MS)
    members = [
        Member(pipeline, begin(deployment, pipeline, interval, "test").checkpoint_id)
        for pipeline in map(deployment.pipeline, ("a", "b", "wrong"))
    ]
    before = jobs(spark)
    assert list(run_group(spark, deployment, members)) == ["wrong"]
    assert jobs(spark) - before == 1
    files = sorted(Path(deployment.storage_root).rglob("*"))
    assert list(run_group(spark, deployment, members)) == ["wrong"]
    assert sorted(Path(deployment.storage_root).rglob("*")) == files
    add(Path(deployment.pipelines_directory), "wrong")
    mended = [*members[:2], Member(deployment.pipeline("wrong"), members[2].checkpoint_id)]
    assert run_group(spark, deployment, mended) == {}


def test_groups_that_do_not_exist_and_contradicting_words_are_refused(deployment: Deployment) -> None:
    assert "no pipeline file has group: daily; known are hourly" in refused(deployment, "run", "--group", "daily")
    assert "found none" in refused(deployment, "run")
    assert "found both" in refused(deployment, "run", "a", "--group", "hourly")


def test_a_pipeline_of_a_group_with_two_files_is_refused(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(deployment).items():
        monkeypatch.setenv(name, value)
    file = Path(deployment.pipelines_directory) / "a.yaml"
    file.with_name("z.yaml").write_text(file.read_text())
    run = planned_group(deployment, "hourly", (None, None), whole=False, assume_ready=False)
    assert "a.yaml has the name 'a' already" in str(run.errors["a"])
    assert "a" not in {pipeline.name for pipeline in run.intervals}


def test_a_snapshot_that_a_killed_driver_has_published_stays_published(
    deployment: Deployment, spark: SparkSession
) -> None:
    interval = DataInterval(epoch_ms(FIRST), epoch_ms(FIRST) + DAY_MS)
    pipelines = [deployment.pipeline(name) for name in ("a", "b")]
    members = [Member(p, begin(deployment, p, interval, "test").checkpoint_id) for p in pipelines]
    variables = os.environ | environment(deployment)
    killed = subprocess.run([sys.executable, "-c", CRASH], env=variables, capture_output=True, text=True, check=False)
    assert killed.returncode == 7, killed.stderr
    (published,) = Path(deployment.storage_root).rglob("_metadata")
    before = published.stat().st_mtime_ns
    assert run_group(spark, deployment, members) == {}
    assert published.stat().st_mtime_ns == before
    for pipeline, member in zip(pipelines, members, strict=True):
        register(deployment, pipeline, member.checkpoint_id)
        assert totals(deployment, pipeline.name) == {"a": 1, "b": 2}
