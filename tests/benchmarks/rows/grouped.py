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
    sides: dict[str, tuple[Deployment, list[Pipeline]]] = {}
    for name, pipelines, events in (("many", count, EVENTS), ("one", 1, EVENTS * count)):
        (directory := root / name).mkdir()
        write_batches(directory, WARMUPS + runs, events)
        deployment = new_deployment(directory)
        sides[name] = deployment, [new_pipeline(directory, "heap", name=f"{name}_{n}") for n in range(pipelines)]
    spark = new_session(root)
    try:
        many, one = Group(spark, *sides["many"]), Stateful(spark, sides["one"][0], sides["one"][1][0])
        figures = take_turns({"many": many.contender(), "one": one.contender()}, runs, WARMUPS)
        rows = {count * n for n in (many.smallest_events(), one.totals()[1] // count)}
    finally:
        spark.stop()
    right = {EVENTS * count * (WARMUPS + runs)}
    note = f"{count} of {EVENTS:,} events each" if rows == right else f"INVALID, events {rows}"
    what, against = "many small pipelines as a group", "one of as many events"
    return [Ratio("P25", what, against, "≤ 3", "cpu s", figures["many"], figures["one"], note=note)]


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
