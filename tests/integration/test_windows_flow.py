"""Windows and timers through whole checkpoints: gate, restore at another parallelism, savepoint, export, Spark."""

import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.record import CheckpointState, ClaimMode
from statelib.savepoints.diff.states import Diff
from statelib.savepoints.lines import export_lines
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.tables.parquet_files import export_parquet
from statelib.savepoints.verification.snapshots import verify
from statelib.spark.snapshot.driver import run_snapshot
from statelib.spark.snapshot.rehearsal import rehearse
from tests.integration.shop_cli import said
from tests.support.worlds import day, new_deployment, publish_here

TOLL = """\
name: toll
source: {{path: "{{data}}/{{start}}-{{end}}", columns: {{plate: string, gate: string, t: instant}}}}
key: [plate]
states:
  hourly:
    kind: reducing
    value: {{agg: count}}
    window: {{time: t, tumbling: 1h, allowed_lateness: 6h, retain: 12h}}
  moving:
    kind: map
    user_key: gate
    value: {{agg: count}}
    window: {{time: t, sliding: {{size: 8h, slide: 2h}}, retain: 0s}}
  total: {{kind: value, fields: {{passes: {{agg: count}}}}}}
backend: {backend}
parallelism: 2
checkpoint: {{strategy: {strategy}, inline_threshold_bytes: 1}}
"""
HOUR = 3_600_000
FIRST = day(1).start_ms
BACKENDS = [("heap", "canonical"), ("heap", "full"), ("rocksdb", "full"), ("rocksdb", "incremental")]


def passes(*rows: tuple[str, str, float]) -> pa.Table:
    """Return events from (plate, gate, hours since the first day began)."""
    plates, gates, hours = (list(c) for c in zip(*rows, strict=True)) if rows else ([], [], [])
    times = pa.array([FIRST + int(hour * HOUR) for hour in hours], pa.int64()).cast(pa.timestamp("ms", "UTC"))
    columns = [pa.array(plates, pa.string()), pa.array(gates, pa.string()), times.cast(pa.timestamp("ns", "UTC"))]
    return pa.table(columns, names=["plate", "gate", "t"])


def deployment_with(root: Path, backend: str, strategy: str) -> Deployment:
    (root / "pipelines").mkdir()
    (root / "pipelines" / "toll.yaml").write_text(TOLL.format(backend=backend, strategy=strategy))
    return new_deployment(root, root, root / "pipelines")


def run_day(deployment: Deployment, number: int, events: pa.Table) -> Checkpoint:
    """Run a day as the DAG does, the gate included, but in this process."""
    pipeline = deployment.pipeline("toll")
    checkpoint_id = begin(deployment, pipeline, day(number), "test").checkpoint_id
    publish_here(deployment, pipeline, checkpoint_id, events)
    record = register(deployment, pipeline, checkpoint_id, check(deployment, pipeline, checkpoint_id).report_uri)
    assert record.state is CheckpointState.COMPLETED
    return resolve(deployment, f"toll/{checkpoint_id}")


def counts(checkpoint: Checkpoint, state: str) -> dict[tuple[object, ...], int]:
    """Return the counts by plate, [user key,] hours of the window's start and end."""
    table = checkpoint.to_arrow(state)
    bounds = [b.cast(pa.int64()).to_numpy() for b in table["namespace"].combine_chunks().flatten()]
    hours = [((b - FIRST) // HOUR).tolist() for b in bounds]
    users = [table["user_key"].to_pylist()] if "user_key" in table.column_names else []
    return dict(
        zip(zip(table["key"].to_pylist(), *users, *hours, strict=True), table["value"].to_pylist(), strict=True)
    )


def late(checkpoint: Checkpoint) -> dict[str, int]:
    assert checkpoint.manifest is not None
    return dict(checkpoint.manifest.events.late)


@pytest.mark.parametrize(("backend", "strategy"), BACKENDS)
def test_windows_are_right_through_checkpoints_and_rescaling(backend: str, strategy: str, tmp_path: Path) -> None:
    deployment = deployment_with(tmp_path, backend, strategy)
    one = run_day(deployment, 1, passes(("a", "N", 1), ("a", "N", 1.9), ("b", "S", 23.5), ("a", "S", 22)))
    assert counts(one, "hourly") == {("a", 22, 23): 1, ("b", 23, 24): 1}
    assert counts(one, "moving") == {
        ("b", "S", 18, 26): 1,
        ("b", "S", 20, 28): 1,
        ("b", "S", 22, 30): 1,
        ("a", "S", 18, 26): 1,
        ("a", "S", 20, 28): 1,
        ("a", "S", 22, 30): 1,
    }
    assert late(one) == {"hourly": 0, "moving": 0}
    assert one.to_arrow("_timer_state/event_hourly")["timestamp"].cast(pa.int64()).to_pylist() in (
        [FIRST + 41 * HOUR - 1, FIRST + 42 * HOUR - 1],
        [FIRST + 42 * HOUR - 1, FIRST + 41 * HOUR - 1],
    )
    # The events are late by a day: the hours of yesterday's evening accept six more, sliding windows those that are
    # open.
    two = run_day(deployment, 2, passes(("a", "N", 17.5), ("a", "N", 18.5), ("c", "S", 40)))
    assert late(two) == {"hourly": 1, "moving": 1}
    assert counts(two, "hourly") == {("c", 40, 41): 1}
    three = run_day(deployment, 3, passes())
    assert counts(three, "hourly") == counts(three, "moving") == {}
    assert three.to_arrow("_timer_state/event_moving").num_rows == 0
    assert dict(zip(*(three.to_arrow("total")[c].to_pylist() for c in ("key", "value")), strict=True)) == {
        "a": {"passes": 5},
        "b": {"passes": 1},
        "c": {"passes": 1},
    }

    plan = plan_restore(deployment, deployment.pipeline("toll"), "1", 3, ClaimMode.NO_CLAIM)
    apply_restore(deployment, deployment.pipeline("toll"), plan, "test")
    again = run_day(deployment, 2, passes(("a", "N", 17.5), ("a", "N", 18.5), ("c", "S", 40)))
    assert len(again.handles()) == 3
    for state in ("hourly", "moving"):
        assert counts(again, state) == counts(two, state)
    assert late(again) == late(two)
    assert not verify(again, scratch=deployment.work_directory).problems


def test_savepoints_exports_and_diffs_include_windows(tmp_path: Path) -> None:
    deployment = deployment_with(tmp_path, "rocksdb", "incremental")
    pipeline = deployment.pipeline("toll")
    one = run_day(deployment, 1, passes(("a", "N", 23), ("b", "S", 23.5)))
    begun = begin_savepoint(
        deployment, pipeline, format="canonical", target=str(tmp_path / "save"), note="", owner="test", key="k"
    )
    publish_here(deployment, pipeline, begun.checkpoint_id)
    register(deployment, pipeline, begun.checkpoint_id, check(deployment, pipeline, begun.checkpoint_id).report_uri)
    saved = resolve(deployment, f"toll/{begun.checkpoint_id}")
    assert sorted(export_lines(saved, None)) == sorted(export_lines(one, None))
    assert not any(state.added or state.removed or state.changed for state in Diff(one, saved).states)
    lines = [json.loads(line) for line in export_lines(saved, "hourly")]
    window = {"type": "timewindow", "start": FIRST + 23 * HOUR, "end": FIRST + 24 * HOUR}
    assert [line["ns"] for line in lines] == [window, window]
    (path,) = export_parquet(saved, "hourly", tmp_path / "out")
    start = pq.read_table(path)["namespace"].combine_chunks().field("start")
    assert start.to_pylist() == [datetime(2013, 1, 1, 23, tzinfo=UTC)] * 2
    (timers,) = export_parquet(saved, "_timer_state/event_hourly", tmp_path / "out")
    assert pq.read_table(timers).column_names == ["key_group", "key", "namespace", "timestamp"]

    run_day(deployment, 2, passes(("a", "N", 17), ("c", "S", 40)))
    output = said(deployment, "inspect", "toll/3", columns=300)
    assert "timewindow" in output
    assert "state hourly: 1 event of this interval was too late for its window" in output
    changes = Diff(one, resolve(deployment, "toll/3"))
    rows = changes.to_arrow("hourly").select(["key", "change", "before", "after"]).to_pylist()
    gone, new = {"change": "removed", "before": 1, "after": None}, {"change": "added", "before": None, "after": 1}
    assert sorted(rows, key=str) == sorted([{"key": "a"} | gone, {"key": "b"} | gone, {"key": "c"} | new], key=str)
    assert changes.to_arrow("_timer_state/event_hourly").column_names[:4] == [
        "key_group",
        "key",
        "namespace",
        "timestamp",
    ]
    output = said(deployment, "checkpoints", "diff", "toll/1", "toll/3", "--limit", "5", columns=300)
    assert "_timer_state/event_hourly" in output


def test_hours_of_departures_are_counted_on_spark(
    spark: SparkSession, data: Path, flights: pl.DataFrame, tmp_path: Path
) -> None:
    """There are two days; nothing is left of the hours that closed before noon of the second day."""
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "hours.yaml").write_text("""\
name: hours
source: {path: "{data}/flights/{start:%Y-%m-%d}", columns: {origin: string, time_hour: instant}}
key: [origin]
states:
  departures: {kind: reducing, value: {agg: count}, window: {time: time_hour, tumbling: 2h, retain: 12h}}
backend: rocksdb
parallelism: 2
""")
    deployment = new_deployment(tmp_path, data, tmp_path / "pipelines")
    pipeline = deployment.pipeline("hours")
    for number in (1, 2):
        checkpoint_id = begin(deployment, pipeline, day(number), "test").checkpoint_id
        run_snapshot(spark, deployment, pipeline, checkpoint_id)
        register(deployment, pipeline, checkpoint_id, check(deployment, pipeline, checkpoint_id).report_uri)
    opened = resolve(deployment, "hours/2")
    noon = datetime(2013, 1, 2, 12, tzinfo=UTC)
    departures = flights.filter(
        (pl.col("time_hour") >= noon) & (pl.col("time_hour") < datetime(2013, 1, 3, tzinfo=UTC))
    )
    wanted = departures.group_by("origin", pl.col("time_hour").dt.truncate("2h")).len().rows()
    table = opened.to_arrow("departures")
    starts = table["namespace"].combine_chunks().field("start").to_pylist()
    result = zip(table["key"].to_pylist(), starts, table["value"].to_pylist(), strict=True)
    assert sorted(result) == sorted(wanted)
    assert len(wanted) > 10
    assert late(opened) == {"departures": 0}
    reports = rehearse(spark, deployment, pipeline, opened.directory, 3)
    assert sum(report.statistics[1].total_entries for report in reports) == len(wanted)
