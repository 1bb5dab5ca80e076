"""Sketches, the best events and fading sums through retries, restores and rescaling, and read by Spark's functions."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import statelib.spark
from statelib.definition.columns import event_schema
from statelib.flows.checkpoint.snapshot_plan import plan_snapshot
from statelib.flows.checkpoint.steps import begin, register
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.views.inspection import resolve
from statelib.model.record import ClaimMode
from statelib.savepoints.verification.snapshots import verify
from statelib.spark.snapshot.subtask.worker import Work, snapshot_subtask
from tests.integration.shop_cli import said
from tests.support.worlds import day, new_deployment, owned, publish_here

FILE = """\
name: visits
source:
  path: "{data}/{start}-{end}"
  columns: {page: string, visitor: long, name: string, minute: int, at: instant}
key: [page]
states:
  sketches:
    kind: value
    fields:
      visitors: {agg: approx_distinct, of: visitor}
      names: {agg: approx_distinct, of: name}
      set: {agg: theta, of: visitor}
      minutes: {agg: bitmap, of: minute}
      times: {agg: approx_quantiles, of: minute}
  events:
    kind: value
    fields:
      newest: {agg: latest, by: [at, visitor]}
      best: {agg: top, of: [visitor, name], by: minute, n: 3}
      least: {agg: bottom, of: visitor, by: [minute], n: 2}
      few: {agg: collect, of: visitor, limit: 4}
  heat: {kind: aggregating, value: {agg: decay, by: at, half_life: 6h}}
backend: BACKEND
parallelism: 2
checkpoint: {strategy: STRATEGY}
"""
WAYS = [("heap", "canonical"), ("heap", "changelog"), ("rocksdb", "incremental"), ("rocksdb", "changelog")]
RANKS = (0.05, 0.5, 0.95)
PAGES = {"quiet": 3, "usual": 60, "busy": 2000, "crowded": 7000}
"""The number of visits per day of each page."""


def visits(number: int) -> list[dict[str, Any]]:
    """The visits of a day. Some visitors come back on other days."""
    chance = random.Random(number)
    return [
        {
            "page": page,
            "visitor": (visitor := chance.randrange(PAGES[page] * 2)),
            "name": f"visitor {visitor}",
            "minute": chance.randrange(1440),
            "at": day(number).start_ms + chance.randrange(86_400_000),
        }
        for page in PAGES
        for _ in range(PAGES[page])
    ]


class World:
    """A deployment with one pipeline file."""

    def __init__(self, root: Path, backend: str, strategy: str) -> None:
        (root / "pipelines").mkdir()
        self.path = root / "pipelines" / "visits.yaml"
        self.path.write_text(FILE.replace("BACKEND", backend).replace("STRATEGY", strategy))
        self.deployment = new_deployment(root, root, root / "pipelines")

    def events(self, number: int) -> pa.Table:
        schema = event_schema(self.deployment.pipeline("visits"))
        rows = visits(number)
        columns = {name: [row[name] for row in rows] for name in schema.names}
        columns["at"] = pa.array(columns["at"]).cast(pa.timestamp("ms", "UTC"))
        return pa.table(columns).cast(schema)

    def run(self, number: int) -> int:
        """Apply a day in two attempts. The first one ends after one subtask."""
        pipeline, events = self.deployment.pipeline("visits"), self.events(number)
        begun = begin(self.deployment, pipeline, day(number), "test")
        plan = plan_snapshot(self.deployment, pipeline, begun.checkpoint_id)
        assert plan is not None
        first = events.filter(pa.array(owned(pipeline, plan, events)[0]))
        snapshot_subtask(Work(self.deployment, pipeline, plan), 0, 0, first)
        publish_here(self.deployment, pipeline, begun.checkpoint_id, events)
        checkpoint = register(self.deployment, pipeline, begun.checkpoint_id).checkpoint_id
        opened = resolve(self.deployment, f"visits/{checkpoint}")
        assert verify(opened, scratch=self.deployment.work_directory).problems == ()
        return checkpoint

    def state(self, number: int, state: str) -> Mapping[str, Any]:
        table = resolve(self.deployment, f"visits/{number}").to_arrow(state, self.deployment.work_directory)
        return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))

    def restore(self, checkpoint: str, parallelism: int) -> None:
        pipeline = self.deployment.pipeline("visits")
        plan = plan_restore(self.deployment, pipeline, checkpoint, parallelism, ClaimMode.NO_CLAIM)
        apply_restore(self.deployment, pipeline, plan, "test")


@pytest.fixture(params=WAYS, ids="-".join)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(tmp_path, *request.param)


def expected(days: list[int]) -> dict[str, dict[str, Any]]:
    """Return the values after the visits of these days, computed one page and one visit at a time."""
    rows = {}
    for page in PAGES:
        events = [visit for number in days for visit in visits(number) if visit["page"] == page]
        last = max(events, key=lambda e: (e["at"], e["visitor"], e["name"], e["minute"]))
        most = sorted(events, key=lambda e: (e["minute"], e["visitor"], e["name"]), reverse=True)[:3]
        least = sorted(events, key=lambda e: (e["minute"], e["visitor"]))[:2]
        rows[page] = {
            "newest": (last["name"], last["minute"]),
            "best": [(e["minute"], e["visitor"], e["name"]) for e in most],
            "least": [(e["minute"], e["visitor"]) for e in least],
            "few": sorted(e["visitor"] for e in events)[:4],
            "visitors": len({e["visitor"] for e in events}),
            "minutes": sum(1 << minute for minute in {e["minute"] for e in events}),
            "heat": sum(0.5 ** ((last["at"] - e["at"]) / (6 * 3_600_000)) for e in events),
        }
    return rows


def check(world: World, checkpoint: int, days: list[int]) -> None:
    wanted = expected(days)
    events, sketches, heat = (world.state(checkpoint, name) for name in ("events", "sketches", "heat"))
    for page, row in wanted.items():
        stored = events[page]
        assert (stored["newest"]["value"]["name"], stored["newest"]["value"]["minute"]) == row["newest"]
        assert [(e["by_minute"], e["value"]["visitor"], e["value"]["name"]) for e in stored["best"]] == row["best"]
        assert [(e["by_minute"], e["value"]) for e in stored["least"]] == row["least"]
        assert stored["few"] == row["few"]
        assert heat[page]["value"] == pytest.approx(row["heat"], rel=1e-9)
        assert int.from_bytes(sketches[page]["minutes"], "little") == row["minutes"]
        if row["visitors"] <= 384:  # every coupon is stored, after at most 12 bytes
            assert len(sketches[page]["visitors"]) // 4 - (3 if row["visitors"] > 7 else 2) == row["visitors"]


def test_they_are_right_after_retries_a_restore_and_rescaling(world: World) -> None:
    world.run(1)
    world.run(2)
    world.run(3)
    check(world, 3, [1, 2, 3])
    world.restore("1", 3)
    world.path.write_text(world.path.read_text().replace("parallelism: 2", "parallelism: 3"))
    again = [world.run(2), world.run(3)]
    assert again == [4, 5]
    check(world, 4, [1, 2])
    for state in ("sketches", "events"):
        assert world.state(5, state) == world.state(3, state), "the same events make the same bytes"
    shown = said(world.deployment, "checkpoints", "diff", "visits/3", "visits/5", "--state", "sketches", "--json")
    assert '"changed":0' in shown.replace(" ", "")


def test_spark_reads_the_sketches_of_a_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path, "heap", "canonical")
    days = [1, 2, 3]
    for number in days:
        world.run(number)
    statelib.spark.register(spark)
    directory = resolve(world.deployment, "visits/3").directory
    state = spark.read.format("statelib").option("state", "sketches").load(directory)
    estimates = ("hll_sketch_estimate(value.visitors)", "hll_sketch_estimate(value.names)")
    unions = ("hll_sketch_estimate(hll_union(value.visitors, value.visitors))", "bitmap_count(value.minutes)")
    times = [f"kll_sketch_get_quantile_double(value.times, {rank})" for rank in RANKS]
    rows = state.selectExpr("key", *estimates, *unions, "theta_sketch_estimate(value.set)", *times).collect()
    assert {row[0] for row in rows} == set(PAGES)
    for page, visitors, names, union, minutes, theta, *quantiles in rows:
        events = [visit for number in days for visit in visits(number) if visit["page"] == page]
        exact = len({e["visitor"] for e in events})
        ordered = sorted(e["minute"] for e in events)
        for rank, quantile in zip(RANKS, quantiles, strict=True):
            below, up_to = (sum(minute < quantile + more for minute in ordered) for more in (0, 1))
            assert below / len(ordered) - 0.02 <= rank <= up_to / len(ordered) + 0.02
        assert minutes == len({e["minute"] for e in events})
        assert union == visitors
        if exact <= 384:
            assert visitors == names == theta == exact
        assert visitors == pytest.approx(exact, rel=0.05)
        assert names == pytest.approx(exact, rel=0.05)
        assert theta == pytest.approx(exact, rel=0.05)


def test_spark_adds_its_own_sketches_to_those_of_a_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    """Sketches of the same visitors that Spark made from the events are the same set."""
    world = World(tmp_path, "heap", "canonical")
    world.run(1)
    statelib.spark.register(spark)
    directory = resolve(world.deployment, "visits/1").directory
    state = spark.read.format("statelib").option("state", "sketches").load(directory)
    events = spark.createDataFrame(
        [(visit["page"], visit["visitor"]) for visit in visits(1)], "page string, visitor long"
    )
    made = events.groupBy("page").agg(
        f.expr("hll_sketch_agg(visitor) AS hll"), f.expr("theta_sketch_agg(visitor) AS theta")
    )
    both = state.join(made, state["key"] == made["page"]).selectExpr(
        "key",
        "hll_sketch_estimate(value.visitors)",
        "hll_sketch_estimate(hll_union(value.visitors, hll))",
        "theta_sketch_estimate(theta_intersection(value.set, theta))",
        "theta_sketch_estimate(theta_difference(value.set, theta))",
    )
    for page, ours, union, common, other in both.collect():
        exact = len({visit["visitor"] for visit in visits(1) if visit["page"] == page})
        assert union == ours
        assert common == pytest.approx(exact, rel=0.05)
        assert other == 0
