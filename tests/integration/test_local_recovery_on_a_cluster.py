"""Local recovery on a standalone Spark whose executors come and go: each run has new ones, a host leaves with all of
its processes, and another comes whose disk lacks copies."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demo.places import Places, Ports, environment
from demo.spark_cluster import HOSTS, SparkCluster, spark_cluster
from statelib.flows import wiring
from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.record import ClaimMode
from tests.support.extent import large
from tests.support.worlds import CHECKOUT, day

SALES = """\
name: sales
source: {path: "{data}/{start:%Y-%m-%d}/[!_]*.parquet", columns: {shop: string}}
key: [shop]
states: {orders: {kind: reducing, value: {agg: count}}}
backend: rocksdb
parallelism: 2
checkpoint: {strategy: incremental, local_recovery: true, inline_threshold_bytes: 0}
"""
DAYS = 5
SHOPS = 300

pytestmark = [pytest.mark.timeout(1800), large("make test has test_local_recovery_on_spark and test_cluster")]


@dataclass(frozen=True)
class World:
    places: Places
    spark: SparkCluster
    deployment: Deployment

    def run(self, number: int) -> tuple[str, ...]:
        """Apply a day as Airflow's operator does, and return where each subtask restored from."""
        pipeline = self.deployment.pipeline("sales")
        checkpoint_id = begin(self.deployment, pipeline, day(number), "test").checkpoint_id
        submit = [str(Path(sys.executable).parent / "spark-submit"), "--master", self.spark.url]
        job = [str(CHECKOUT / "jobs" / "statelib_jobs" / "snapshot.py"), "--pipeline", pipeline.path]
        ended = subprocess.run(
            [*submit, *job, "--checkpoint-id", str(checkpoint_id)],
            env=environment(self.places, Ports()),
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        register(self.deployment, pipeline, checkpoint_id, check(self.deployment, pipeline, checkpoint_id).report_uri)
        opened = resolve(self.deployment, f"sales/{checkpoint_id}")
        rows = opened.to_arrow("orders").to_pylist()
        assert {row["key"]: row["value"] for row in rows} == {f"shop-{n}": number for n in range(SHOPS)}
        assert opened.manifest is not None
        return opened.manifest.restored_from

    def copies(self, number: int) -> list[Path]:
        """Return the directories of the subtasks' copies of a checkpoint."""
        return sorted(
            (self.deployment.local_states(self.deployment.pipeline("sales")).path / f"chk-{number}").iterdir()
        )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    places = Places(work=tmp_path / "work", pipelines=tmp_path / "pipelines")
    places.make_directories()
    places.pipelines.mkdir()
    (places.pipelines / "sales.yaml").write_text(SALES)
    for number in range(1, DAYS + 1):
        directory = places.data / f"2013-01-{number:02}"
        directory.mkdir()
        pq.write_table(pa.table({"shop": [f"shop-{n}" for n in range(SHOPS)]}), directory / "events.parquet")
    env = environment(places, Ports())
    deployment = wiring.deployment(env)
    deployment.catalog().migrate()
    with spark_cluster(places.work / "spark", env) as spark:
        yield World(places, spark, deployment)


def test_copies_are_used_although_executors_and_hosts_change(world: World) -> None:
    assert world.run(1) == ("empty", "empty")
    assert world.run(2) == ("local", "local"), "by executors that did not write the copies"
    world.spark.kill_worker(HOSTS[1])
    world.spark.wait_for_workers(1)
    assert world.run(3) == ("local", "local"), "on the host that is left"
    world.spark.start_worker(HOSTS[1])
    world.spark.wait_for_workers(2)
    shutil.rmtree(world.copies(3)[0])
    assert sorted(world.run(4)) == ["local", "remote"], "what a host lacks is read from the storage"
    pipeline = world.deployment.pipeline("sales")
    apply_restore(
        world.deployment, pipeline, plan_restore(world.deployment, pipeline, "4", 3, ClaimMode.NO_CLAIM), "test"
    )
    assert world.run(5) == ("local",) * 3, "other key groups, of the same copies"
