"""``spark.read.format("statelib")`` in a real session: equal to what the library itself reads, filters included."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import statelib.spark
from statelib.definition.columns import event_schema
from statelib.definition.parts.source import Source
from statelib.flows.wiring import VARIABLES, Deployment
from statelib.model.checkpoint import DataInterval
from statelib.model.ids import CheckpointId, PipelineName
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.spark.events import source
from statelib.storage.uris import local_path
from tests.integration.foreign import FLINK, savepoint
from tests.support.stored_longs import STRIDE, long_columns, store_longs
from tests.support.worlds import checkpoint_of, new_deployment

ENTRIES = 300_000
PIPELINES = ("aircraft_activity", "route_delays", "carrier_streaks")
OWN_SESSION = """
import sys
from pyspark.sql import SparkSession
import statelib.spark

spark = SparkSession.builder.master("local[1]").getOrCreate()
statelib.spark.register(spark)
total = spark.read.format("statelib").load(sys.argv[1]).selectExpr("sum(value)").first()[0]
print(spark.sparkContext.getConf().get("spark.python.daemon.module"), total)
"""


@pytest.fixture(scope="module")
def reading(spark: SparkSession) -> SparkSession:
    statelib.spark.register(spark)
    return spark


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Deployment:
    """Return a deployment with one day of each of the project's pipelines."""
    deployment = new_deployment(tmp_path_factory.mktemp("world"), data)
    for name in PIPELINES:
        schema = event_schema(deployment.pipeline(name))
        day = pq.read_table(data / "flights" / "2013-01-01").select(schema.names).cast(schema)
        checkpoint_of(deployment, name, 1, day)
    return deployment


def load(spark: SparkSession, path: object, **options: str) -> DataFrame:
    return spark.read.format("statelib").options(**options).load(str(path))


def assert_same(actual: pa.Table, expected: pa.Table) -> None:
    """Assert that the tables have the same rows, in any order, after a cast to Spark's types (times in
    microseconds)."""
    assert actual.column_names == expected.column_names
    assert sorted(map(repr, actual.to_pylist())) == sorted(
        map(repr, expected.cast(actual.schema, safe=False).to_pylist())
    )


def opened(deployment: Deployment, name: str) -> Checkpoint:
    directory = deployment.catalog().get(PipelineName(name), CheckpointId(1)).directory
    return open_checkpoint(directory, storage_root=deployment.storage_root)


def test_counts_and_sums_of_a_large_savepoint_are_right(reading: SparkSession, tmp_path: Path) -> None:
    frame = load(reading, store_longs(tmp_path, ENTRIES))
    expected = long_columns(ENTRIES)
    (row,) = frame.agg(f.count("*"), f.sum("key"), f.sum("value"), f.countDistinct("key_group")).collect()
    assert tuple(row) == (ENTRIES, pc.sum(expected["key"]).as_py(), pc.sum(expected["value"]).as_py(), 128)
    assert frame.rdd.getNumPartitions() == 2

    one = frame.where(f.col("key") == 123 * STRIDE)
    assert [(r.key, r.value) for r in one.collect()] == [(123 * STRIDE, 123 * STRIDE % 1000 + 1)]
    assert one.rdd.getNumPartitions() == 1, "the filter reached the reader: one key group is one part"
    few = frame.where("key_group in (3, 5) and value > 500")
    assert few.count() == frame.where("key_group = 3 or key_group = 5").where("value > 500").count() > 0
    assert frame.where("key_group > 200").count() == 0


def test_a_session_with_the_daemon_of_spark_reads_state(tmp_path: Path) -> None:
    """The session of the other tests forks its Python workers from statelib's daemon, that of a user from Spark's."""
    command = [sys.executable, "-c", OWN_SESSION, store_longs(tmp_path, 1000)]
    python = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, env=os.environ | python, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["None", str(pc.sum(long_columns(1000)["value"]).as_py())], done.stderr


@pytest.mark.parametrize("name", PIPELINES)
def test_every_state_of_the_shipped_pipelines_is_read(reading: SparkSession, deployment: Deployment, name: str) -> None:
    snapshot = opened(deployment, name)
    for state in snapshot.schema().states:
        rows = load(reading, snapshot.directory, state=state.name).toArrow()
        assert_same(rows, snapshot.to_arrow(state.name))


def test_the_metadata_table_has_the_counts_of_the_manifest(reading: SparkSession, deployment: Deployment) -> None:
    snapshot = opened(deployment, "aircraft_activity")
    assert snapshot.manifest is not None
    facts = reading.read.format("statelib-metadata").load(snapshot.directory)
    counted = {r.state: (r[1], r[2]) for r in facts.groupBy("state").agg(f.sum("entries"), f.count("*")).collect()}
    recorded = zip(snapshot.schema().states, snapshot.manifest.statistics, strict=True)
    assert counted == {state.name: (s.total_entries, 128) for state, s in recorded}


def test_a_checkpoint_can_be_read_by_its_id(
    reading: SparkSession, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deployment is taken from the environment of the driver when the format is registered."""
    values = (
        deployment.catalog_url,
        deployment.storage_root,
        deployment.pipelines_directory,
        deployment.data,
        deployment.docs_directory,
    )
    for variable, value in zip(VARIABLES, (*values, deployment.work_directory), strict=True):
        monkeypatch.setitem(reading.sparkContext.environment, variable, value)
    statelib.spark.register(reading)
    (state,) = opened(deployment, "carrier_streaks").schema().states
    assert_same(
        load(reading, "carrier_streaks/1").toArrow(), opened(deployment, "carrier_streaks").to_arrow(state.name)
    )


def test_the_source_of_a_pipeline_may_be_a_snapshot(
    spark: SparkSession, deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that is a snapshot registers the formats in the session; other sources do not."""
    sessions = []
    monkeypatch.setattr(
        source, "register", lambda session: (sessions.append(session), statelib.spark.register(session))
    )
    snapshot, pipeline = opened(deployment, "carrier_streaks"), deployment.pipeline("carrier_streaks")
    (state,) = snapshot.schema().states
    day = DataInterval(1_356_998_400_000, 1_357_084_800_000)
    shutil.copytree(local_path(snapshot.directory), tmp_path / "2013-01-01")
    path = f"{tmp_path}/{{start:%Y-%m-%d}}"
    columns = {"key_group": "int", "key": "string"}
    of_it = Source.model_validate({"format": "statelib", "path": path, "columns": columns})
    pipeline_of_it = pipeline.model_copy(update={"source": of_it})
    table = source.read_interval(spark, pipeline_of_it, source.SourcePlaces.of(deployment), day)
    assert_same(table.toArrow(), snapshot.to_arrow(state.name).select(["key_group", "key"]))
    assert sessions == [spark]
    assert source.read_interval(spark, pipeline, source.SourcePlaces.of(deployment), day).count() > 0
    assert sessions == [spark]


@pytest.mark.parametrize(
    ("fixture", "uid"), [("2.3.0/kinds-hashmap-native-p2", "keyed"), ("2.3.0/windows-hashmap-canonical", "w-session")]
)
def test_states_of_flink_jobs_are_read(reading: SparkSession, fixture: str, uid: str) -> None:
    """Namespaces of windows and timestamps of timers are columns."""
    snapshot = open_checkpoint(str(savepoint(fixture))).select(uid)
    held = {state.name: snapshot.to_arrow(state.name) for state in snapshot.schema().states}
    held = {name: table for name, table in held.items() if len(table)}
    assert len(held) > 2
    for name, table in held.items():
        assert_same(load(reading, savepoint(fixture), state=name, operator=uid).toArrow(), table)


def test_a_moved_flink_checkpoint_is_read_with_relocate(reading: SparkSession) -> None:
    """Its change log contains the path from when the job ran."""
    home = FLINK / "1.20.5" / "rocksdb-changelog-materialized"
    (checkpoint,) = home.glob("checkpoints/*/chk-3")
    with pytest.raises(AnalysisException, match="--relocate OLD_PREFIX=NEW_PREFIX"):
        load(reading, checkpoint, state="value")
    moved = (f"file:///flink-data/1.20.5/1.20.5/{home.name}", str(home))
    snapshot = open_checkpoint(str(checkpoint), relocate=dict([moved]))
    for name in ("value", "map"):
        rows = load(reading, checkpoint, state=name, relocate="=".join(moved)).toArrow()
        assert len(rows) >= 30
        assert_same(rows, snapshot.to_arrow(name))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state": "nope"}, r"known states are .*mr.*\s*kind: unknown-state"),
        ({}, r"there are .*kind: no-state"),
        ({"state": "mr", "operator": "nope"}, "kind: no-operator"),
    ],
)
def test_errors_are_raised_while_planning(reading: SparkSession, options: dict[str, str], message: str) -> None:
    with pytest.raises(AnalysisException) as caught:
        load(reading, savepoint("1.20.5/mapnull-hashmap-native"), **options)
    assert pc.match_substring_regex(pa.array([str(caught.value)]), f"(?s){message}").to_pylist() == [True]


def test_values_that_columns_cannot_hold_are_an_error_with_a_hint(reading: SparkSession) -> None:
    """Some of these rows are deletions, and a struct has no place for that."""
    place = savepoint("1.20.5/mapnull-hashmap-native")
    with pytest.raises(PythonException, match=r"(?s)found DELETE.*kind: row-kind"):
        load(reading, place, state="mr").collect()
    assert load(reading, place, state="mr", columns="key,user_key").count() > 0
