"""A pipeline begins with the state of a Flink job: an operator of a savepoint that a real Flink wrote."""

from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from statelib.backends.wrappers.written_keys import WrittenKeys
from statelib.definition.pipeline import Pipeline
from statelib.errors import CorruptStateError
from statelib.flows.checkpoint.publishing import publish
from statelib.flows.checkpoint.snapshot_plan import plan_snapshot
from statelib.flows.checkpoint.steps import check
from statelib.flows.savepoint.seeds import begin_seed, snapshot_for_seed
from statelib.flows.wiring import Deployment
from statelib.functions.interval import IntervalResult
from statelib.model.ids import CheckpointId, PipelineName
from statelib.savepoints.opened import open_checkpoint
from statelib.savepoints.verification.snapshots import verify
from statelib.spark.snapshot.subtask.worker import Work, snapshot_subtask
from tests.integration.foreign import KEYED, savepoint
from tests.integration.shop_cli import refused, said
from tests.support.worlds import new_deployment

PIPELINE = """\
name: {name}
schedule: {{cron: "@daily", start: 2026-01-01}}
source:
  path: "{{data}}/{{start:%Y-%m-%d}}.parquet"
  columns: {{id: long, word: string, number: int, amount: long, price: double}}
key: id
states:
  sum: {{kind: reducing, value: {{agg: sum, of: amount}}}}
  value: {{kind: value, value: {{agg: max, of: word}}}}
  list: {{kind: list, value: {{agg: collect, of: number}}}}
  map: {{kind: map, user_key: word, value: {{agg: sum, of: price}}}}
  orders: {{kind: value, value: {{agg: count}}}}
backend: {backend}
parallelism: 3
{more}
"""
KEPT = ("sum", "value", "list", "map")
SAVEPOINTS = [
    "1.20.5/kinds-rocksdb-canonical-p1",
    "1.20.5/kinds-hashmap-native-p2",
    "2.3.0/kinds-rocksdb-canonical-p1",
]


@pytest.fixture
def deployment(tmp_path: Path, spark: SparkSession) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    columns = {"word": "zzz", "number": 5, "amount": 7, "price": 1.0}
    types = {"number": pl.Int32, "amount": pl.Int64}
    events = pl.DataFrame([{"id": 10**15, **columns}]).cast(types)
    events.write_parquet(tmp_path / "2026-01-05.parquet")
    return new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")


def define(deployment: Deployment, name: str, backend: str = "heap", more: str = "") -> None:
    text = PIPELINE.format(name=name, backend=backend, more=more)
    (Path(deployment.pipelines_directory) / f"{name}.yaml").write_text(text)


def words(name: str, place: object, *more: str, operator: str = KEYED) -> tuple[object, ...]:
    return ("pipelines", "seed", name, "--from", place, "--operator", operator, "--until", "2026-01-05", *more)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("fixture", "backend"), zip(SAVEPOINTS, ("rocksdb", "heap", "heap"), strict=True))
def test_the_state_of_an_operator_becomes_the_head(deployment: Deployment, fixture: str, backend: str) -> None:
    define(deployment, "job", backend)
    command = words("job", savepoint(fixture), operator="keyed" if backend == "heap" else KEYED)
    assert "'avg'" in refused(deployment, *command)
    plan = said(deployment, *command, "--allow-non-restored-state", "--dry-run")
    assert "'map2'" in plan
    said(deployment, *command, "--allow-non-restored-state", "--yes")
    head = deployment.catalog().get(PipelineName("job"), CheckpointId(1))
    seeded, source = deployment.open(head), open_checkpoint(str(savepoint(fixture))).select(KEYED)
    for state in KEPT:
        left, right = (sorted(map(str, each.to_arrow(state).to_pylist())) for each in (seeded, source))
        assert left == right, state
        assert left
    assert seeded.to_arrow("orders").num_rows == 0
    assert not verify(seeded).problems
    said(deployment, "run", "job")
    sums = {row["key"]: row["value"] for row in seeded.to_arrow("sum").to_pylist()}
    after = deployment.open(deployment.catalog().get(PipelineName("job"), CheckpointId(2)))
    assert {row["key"]: row["value"] for row in after.to_arrow("sum").to_pylist()} == {**sums, 10**15: 7}


def test_a_savepoint_that_does_not_fit_is_refused(deployment: Deployment) -> None:
    place = savepoint(SAVEPOINTS[0])
    define(deployment, "job", more="max_parallelism: 64")
    assert "no operator 'nobody' with keyed state" in refused(deployment, *words("job", place, operator="nobody"))
    assert "max_parallelism 128, pipeline job has 64" in refused(deployment, *words("job", place))
    assert "belong to a table" in refused(deployment, *words("job", place, "--map", "orders=1"))
    other = savepoint("1.20.5/keys-string-hashmap-canonical")
    define(deployment, "other")
    assert "the key: the pipeline expects long" in refused(deployment, *words("other", other))


def test_an_entry_that_is_lost_on_the_way_is_found_by_the_gate(deployment: Deployment) -> None:
    define(deployment, "job", more="allow_non_restored_state: true")
    pipeline, until_ms = deployment.pipeline("job"), 1_767_571_200_000
    source = snapshot_for_seed(deployment, pipeline, str(savepoint(SAVEPOINTS[0])), KEYED, until_ms).opened
    begun = begin_seed(deployment, pipeline, until_ms, "a savepoint", "test")
    plan = plan_snapshot(deployment, pipeline, begun.checkpoint_id, seed="a savepoint", source=source)
    assert plan is not None

    def loses(_pipeline: Pipeline, backend: WrittenKeys, *_others: object) -> IntervalResult:
        """Remove the first entry of the state ``sum``."""
        before = backend.read("sum", next(iter(backend.scan("sum"))).keys.slice(0, 1))
        backend.write(before, "sum", before.values, pa.array([True]))
        return IntervalResult()

    work = Work(deployment, pipeline, plan)
    events = pl.DataFrame(schema={"id": pl.Int64}).to_arrow()
    reports = [snapshot_subtask(work, n, n, events, change=loses) for n in range(3)]
    publish(deployment, pipeline, plan, 0, reports)
    with pytest.raises(CorruptStateError, match="state sum"):
        check(deployment, pipeline, begun.checkpoint_id, source=source)
