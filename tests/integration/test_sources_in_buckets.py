"""A source in a bucket: a whole run whose Spark cannot read buckets, and the cases that are left to Spark."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval
from statelib.spark.events.source import SourcePlaces, files_of_interval
from statelib.spark.events.source_files import own_events, source_files
from tests.integration.shop import environment
from tests.support.delta_histories import append
from tests.support.s3_endpoint import S3Endpoint
from tests.support.worlds import new_deployment

ORDERS = """\
name: orders
schedule: {cron: "@daily", start: 2026-01-01}
source: {SOURCE, columns: {shop: string, amount: long}}
key: shop
states: {total: {kind: value, value: {agg: sum, of: amount}}}
backend: heap
parallelism: 2
"""
DATED = 'path: "{data}/{start:%Y-%m-%d}"'
FOLLOWED = 'format: delta, incremental: true, path: "{data}/orders"'
FIRST = 1_767_225_600_000


@pytest.fixture
def deployment(tmp_path: Path, bucket: str) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    made = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    return dataclasses.replace(made, storage_root=f"s3://{bucket}/state", data=f"s3://{bucket}/data")


def write_pipeline(deployment: Deployment, source: str) -> None:
    (Path(deployment.pipelines_directory) / "orders.yaml").write_text(ORDERS.replace("SOURCE", source))


def run(deployment: Deployment) -> int:
    """Run the next interval in a process of its own, and return the number of events that it read."""
    command = [sys.executable, "-m", "statelib", "run", "orders", "--json"]
    env = os.environ | environment(deployment)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    read: int = json.loads(done.stdout)["checkpoints"][0]["events"]["read"]
    return read


def totals(deployment: Deployment) -> dict[str, int]:
    return {row["key"]: row["value"] for row in resolve(deployment, "orders/head").to_arrow("total").to_pylist()}


def put(s3: S3Endpoint, bucket: str, directory: Path, prefix: str) -> None:
    for file in directory.rglob("*"):
        if file.is_file():
            s3.put_object(bucket, f"{prefix}/{file.relative_to(directory)}", file.read_bytes())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_reads_a_bucket_that_spark_cannot_read(
    deployment: Deployment, s3: S3Endpoint, bucket: str, tmp_path: Path
) -> None:
    write_pipeline(deployment, DATED)
    (tmp_path / "day").mkdir()
    pl.DataFrame({"shop": ["a", "b", "b"], "amount": [1, 2, 3]}).write_parquet(tmp_path / "day" / "x.parquet")
    put(s3, bucket, tmp_path / "day", "data/2026-01-01")
    assert run(deployment) == 3
    assert totals(deployment) == {"a": 1, "b": 5}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_commits_of_a_table_in_a_bucket_are_read(
    deployment: Deployment, s3: S3Endpoint, bucket: str, tmp_path: Path
) -> None:
    write_pipeline(deployment, FOLLOWED)
    table = tmp_path / "orders"
    append(table, {"shop": ["a"], "amount": [1]}, FIRST + 1)
    put(s3, bucket, table, "data/orders")
    assert run(deployment) == 1
    append(table, {"shop": ["a", "b"], "amount": [10, 20]}, FIRST + 2)
    DeltaTable(str(table)).optimize.compact()
    put(s3, bucket, table, "data/orders")
    assert run(deployment) == 2
    assert totals(deployment) == {"a": 11, "b": 20}


def test_events_of_many_small_objects_are_in_the_order_of_their_names(
    deployment: Deployment, s3: S3Endpoint, bucket: str, tmp_path: Path
) -> None:
    write_pipeline(deployment, DATED)
    for number in range(120):
        frame = pl.DataFrame({"shop": ["a", "b"], "amount": [number, -number]})
        frame.write_parquet(tmp_path / "x.parquet")
        s3.put_object(bucket, f"day/{number:03}.parquet", (tmp_path / "x.parquet").read_bytes())
    pipeline = deployment.pipeline("orders")
    files = source_files(pipeline, {"source": [f"s3://{bucket}/day"]}, 2)
    assert files is not None
    parts = [own_events(pipeline, files, subtask, 2).to_pydict() for subtask in range(2)]
    assert sorted((part["shop"][0], part["amount"]) for part in parts) == [
        ("a", list(range(120))), ("b", [-number for number in range(120)]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("location", "root", "endpoint", "by_subtasks"),
    [
        ("s3a://BUCKET/day", "s3://elsewhere/state", "http://own:1/", True),
        ("s3a://BUCKET/day", "s3://elsewhere/state", "", False),
        ("s3a://BUCKET/day", "/state", "http://own:1", False),
        ("s3://BUCKET/day", "s3://elsewhere/state", "", True),
    ],
    ids=["the same endpoint", "another endpoint", "checkpoints elsewhere", "a scheme that spark does not have"],
)
def test_subtasks_read_what_spark_would_read_at_the_same_endpoint(
    spark: SparkSession, deployment: Deployment, s3: S3Endpoint, bucket: str, tmp_path: Path,
    location: str, root: str, endpoint: str, by_subtasks: bool,
) -> None:  # fmt: skip
    pl.DataFrame({"shop": ["a"], "amount": [1]}).write_parquet(tmp_path / "x.parquet")
    s3.put_object(bucket, "day/2026-01-01.parquet", (tmp_path / "x.parquet").read_bytes())
    write_pipeline(deployment, f'path: "{location.replace("BUCKET", bucket)}/{{start:%Y-%m-%d}}.parquet"')
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.s3a.endpoint", "http://own:1")
    try:
        places = SourcePlaces(deployment.data, root, endpoint)
        day = DataInterval(FIRST, FIRST + 86_400_000)
        assert (files_of_interval(spark, deployment.pipeline("orders"), places, day, 2) is not None) == by_subtasks
    finally:
        hadoop.unset("fs.s3a.endpoint")
