"""Row P25: the snapshots of 100 small pipelines as one group, in one Spark job, against the snapshot of one pipeline
with as many events.

``begin`` and ``register`` are not measured, as in the row W-many, whose pipelines have a Spark job each."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from statelib.definition.pipeline import Pipeline
from statelib.flows.checkpoint.steps import begin, register
from statelib.flows.wiring import Deployment
from statelib.spark.snapshot.group import Member, run_group
from tests.benchmarks.contenders import Stateful, new_session
from tests.benchmarks.events import interval, new_deployment, new_pipeline, write_batches
from tests.benchmarks.measure import Contender, Ratio, take_turns

EVENTS, PIPELINES = 10_000, 100
ROWS = ("P25",)
WARMUPS = 2


def run(_: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    count = max(int(PIPELINES * scale), 2)
    spark = new_session(root)
    try:
        one = _one(spark, root / "one", count, WARMUPS + runs)
        groups = {n: _group(spark, root / f"of-{n}", count, WARMUPS + runs, parallelism=n) for n in (2, 1)}
        contenders = {"one": one.contender()} | {f"{n}": group.contender() for n, group in groups.items()}
        figures = take_turns(contenders, runs, WARMUPS)
        rows = {count * group.smallest_events() for group in groups.values()} | {one.totals()[1]}
    finally:
        spark.stop()
    right = {EVENTS * count * (WARMUPS + runs)}
    note = f"{count} of {EVENTS:,} events each" if rows == right else f"INVALID, events {rows}"
    return [
        Ratio(
            "P25", f"many small pipelines of parallelism {n} as a group", "one of as many events, parallelism 2",
            "≤ 3", "cpu s", figures[f"{n}"], figures["one"], note=note,
        )
        for n in groups
    ]  # fmt: skip


def _one(spark: SparkSession, directory: Path, count: int, rounds: int) -> Stateful:
    directory.mkdir()
    write_batches(directory, rounds, EVENTS * count)
    return Stateful(spark, new_deployment(directory), new_pipeline(directory, "heap", name="one"))


def _group(spark: SparkSession, directory: Path, count: int, rounds: int, *, parallelism: int) -> "Group":
    directory.mkdir()
    write_batches(directory, rounds, EVENTS)
    deployment = new_deployment(directory)
    pipelines = [new_pipeline(directory, "heap", name=f"many_{n}", parallelism=parallelism) for n in range(count)]
    return Group(spark, deployment, pipelines)


class Group:
    """The pipelines whose snapshots one call takes."""

    def __init__(self, spark: SparkSession, deployment: Deployment, pipelines: Sequence[Pipeline]) -> None:
        self._spark, self._deployment, self._pipelines = spark, deployment, pipelines
        self._members: list[Member] = []

    def contender(self) -> Contender:
        return Contender(self._run, self._begin, self._register)

    def smallest_events(self) -> int:
        """Return the number of events of the pipeline that has the fewest."""
        return min(Stateful(self._spark, self._deployment, pipeline).totals()[1] for pipeline in self._pipelines)

    def _begin(self, number: int) -> None:
        begun = [(p, begin(self._deployment, p, interval(number), "bench").checkpoint_id) for p in self._pipelines]
        self._members = [Member(pipeline, checkpoint_id) for pipeline, checkpoint_id in begun]

    def _run(self, _: int) -> None:
        errors = run_group(self._spark, self._deployment, self._members)
        assert not errors, errors

    def _register(self, _: int) -> None:
        for member in self._members:
            register(self._deployment, member.pipeline, member.checkpoint_id)
