"""The state of a real streaming query becomes that of a pipeline, which then continues with its own events."""

import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from statelib.errors import ConflictError, InvalidRequestError, NotFoundError
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.model.record import CheckpointState, ClaimMode
from statelib.savepoints.opened import open_checkpoint
from statelib.savepoints.verification.snapshots import verify
from statelib.spark.imports.statestore import StateStoreMapping
from statelib.spark.imports.statestore_import import StateStoreImport, import_statestore
from tests.integration.shop import sales
from tests.integration.shop_cli import refused, said
from tests.support.worlds import checkpoint_of, new_deployment

PIPELINE = """\
name: {name}
source: {{path: "{{data}}/{{start}}-{{end}}", columns: {{shop: string, item: string, amount: long}}}}
key: [shop]
states:
  total: {{kind: value, fields: {{sold: {{agg: count}}, amount: {{agg: sum, of: amount}}}}}}
  per_item: {{kind: map, user_key: item, value: {{agg: count}}}}
backend: {backend}
parallelism: 2
"""
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
TOTAL = StateStoreMapping("total", values={"sold": "value.count", "amount": "value.sum"})


@pytest.fixture(scope="module")
def queries(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the checkpoints of two queries: ``shop`` counts and sums per shop, in RocksDB; ``item`` counts per shop
    and item, in Spark's other store."""
    root = tmp_path_factory.mktemp("queries")
    (root / "events").mkdir()
    pq.write_table(pa.concat_tables([sales(0), sales(6)]), root / "events" / "0.parquet")
    events = "shop string, item string, amount long"
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    for name, keys in (("shop", ["shop"]), ("item", ["shop", "item"])):
        if name == "shop":
            spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        stream = spark.readStream.schema(events).parquet(str(root / "events"))
        counted = stream.groupBy(*keys).agg(f.count("*"), f.sum("amount"))
        writer = counted.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
        writer.option("checkpointLocation", str(root / name)).start().awaitTermination()
        spark.conf.unset("spark.sql.streaming.stateStore.providerClass")
    return root


@pytest.fixture(params=["heap", "rocksdb"])
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "p.yaml").write_text(PIPELINE.format(name="p", backend=request.param))
    return new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")


def take_in(spark: SparkSession, deployment: Deployment, location: Path, mapping: StateStoreMapping) -> str:
    wanted = StateStoreImport(str(location), {}, mapping)
    record = import_statestore(spark, deployment, deployment.pipeline("p"), wanted, "test")
    assert record.state is CheckpointState.COMPLETED
    return str(record.checkpoint_id)


def totals(deployment: Deployment, number: int) -> dict[str, dict[str, int]]:
    record = next(r for r in deployment.catalog().list(PipelineName("p")) if r.checkpoint_id == number)
    snapshot = open_checkpoint(record.directory, own=True, storage_root=deployment.storage_root)
    assert not verify(snapshot).problems
    return {row["key"]: row["value"] for row in snapshot.to_arrow("total").to_pylist()}


def expected(*parts: pa.Table) -> dict[str, dict[str, int]]:
    events = pa.concat_tables(parts).group_by("shop").aggregate([("item", "count"), ("amount", "sum")])
    return {row["shop"]: {"sold": row["item_count"], "amount": row["amount_sum"]} for row in events.to_pylist()}


def test_a_query_is_continued_as_a_pipeline(spark: SparkSession, queries: Path, deployment: Deployment) -> None:
    number = take_in(spark, deployment, queries / "shop", TOTAL)
    assert totals(deployment, int(number)) == expected(sales(0), sales(6))
    assert take_in(spark, deployment, queries / "shop", TOTAL) == number, "the same import is the same savepoint"

    pipeline = deployment.pipeline("p")
    apply_restore(deployment, pipeline, plan_restore(deployment, pipeline, number, None, ClaimMode.NO_CLAIM), "test")
    after = checkpoint_of(deployment, "p", 3, sales(100))
    assert totals(deployment, after) == expected(sales(0), sales(6), sales(100))
    with pytest.raises(ConflictError) as caught:
        take_in(spark, deployment, queries / "shop", TOTAL)
    assert caught.value.kind == "has-state"


def test_a_map_state_uses_a_part_of_the_key_as_user_key(
    spark: SparkSession, queries: Path, deployment: Deployment
) -> None:
    per_item = StateStoreMapping("per_item", values={"": "value.count"}, user_key="key.item")
    number = take_in(spark, deployment, queries / "item", per_item)
    record = deployment.catalog().list(PipelineName("p"))[0]
    assert str(record.checkpoint_id) == number
    rows = open_checkpoint(record.directory).to_arrow("per_item").to_pylist()
    events = pa.concat_tables([sales(0), sales(6)]).group_by(["shop", "item"]).aggregate([("amount", "count")])
    assert {(r["key"], r["user_key"]): r["value"] for r in rows} == {
        (r["shop"], r["item"]): r["amount_count"] for r in events.to_pylist()
    }


def test_state_that_does_not_fit_is_refused_and_leaves_nothing(
    spark: SparkSession, queries: Path, deployment: Deployment
) -> None:
    for location, mapping, kind in (
        ("shop", replace(TOTAL, values={"sold": "value.count"}), "no-mapping"),
        ("shop", replace(TOTAL, values={**TOTAL.values, "amuont": "1"}), "bad-mapping"),
        ("shop", replace(TOTAL, keys={"item": "key.shop"}), "bad-mapping"),
        ("shop", replace(TOTAL, keys={"shop": "key.nothing"}), "bad-mapping"),
        ("shop", replace(TOTAL, values={**TOTAL.values, "amount": "value.sum / 2"}), "column-type"),
        ("shop", replace(TOTAL, state="nope"), "unknown-state"),
        ("shop", replace(TOTAL, user_key="key.shop"), "bad-mapping"),
    ):
        with pytest.raises(InvalidRequestError) as caught:
            take_in(spark, deployment, queries / location, mapping)
        assert caught.value.kind == kind
    with pytest.raises(NotFoundError, match="nowhere"):
        take_in(spark, deployment, queries / "nowhere", TOTAL)
    assert not deployment.catalog().list(PipelineName("p"))

    with pytest.raises(Exception, match="two entries of the store have the key shop-"):
        take_in(spark, deployment, queries / "item", TOTAL)
    (record,) = deployment.catalog().list(PipelineName("p"))
    assert record.state is CheckpointState.ABORTED
    assert "two entries" in record.reason
    # Spark reports the first failure while it is still ending the job's other tasks.
    deadline = time.monotonic() + 30
    while list(Path(deployment.work_directory).iterdir()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not list(Path(deployment.work_directory).iterdir())


def test_a_query_can_be_imported_on_the_command_line(
    spark: SparkSession, queries: Path, deployment: Deployment
) -> None:
    words = ("import-statestore", "p", queries / "shop", "--state", "total")
    assert "expected NAME=" in refused(deployment, *words, "--value", "value.count")
    assert "'nope'" in refused(deployment, *words, "--value", "nope=value.count")
    assert "nothing says where 'sold' comes from" in refused(deployment, *words, "--option", "operatorId=0")
    lines = said(
        deployment, *words, "--key", "shop=key.shop", "--value", "sold=value.count", "--value", "amount=value.sum"
    )
    assert lines.splitlines()[0].startswith("p/1 holds 3 keys, 3 entries, in file:")
    assert lines.splitlines()[1] == "next: statelib restore p 1"
    assert totals(deployment, 1) == expected(sales(0), sales(6))
    assert spark.range(1).count() == 1, "a session that was there before stays"
