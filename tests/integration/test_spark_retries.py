"""A standalone Spark on two hosts runs subtasks twice, as it decides: a speculative copy of a slow one, and a stage
once more because an executor died with the output of the stage before. One attempt of each subtask counts."""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demo.places import Places, Ports, environment
from demo.processes import family, kill
from demo.spark_cluster import SparkCluster, spark_cluster
from statelib.flows import wiring
from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.verification.snapshots import verify
from statelib.storage.registry import PLACES
from tests.integration import spark_events
from tests.integration.garbage import needed, stored
from tests.integration.held_tasks import DIRECTORY, Came, Held
from tests.support.extent import TEST_ALL
from tests.support.worlds import CHECKOUT, checkpoint_of, day

PIPELINE = """\
name: {name}
source: {{path: "{{data}}/{{start:%Y-%m-%d}}/[!_]*.parquet", columns: {{shop: string, item: string}}}}
key: [shop]
states:
  seen: {{kind: value, fields: {{events: long}}, function: "tests.integration.held_tasks:update"}}
  per_item: {{kind: map, user_key: item, value: {{agg: count}}}}
backend: rocksdb
parallelism: 2
checkpoint: {{strategy: incremental, inline_threshold_bytes: 0}}
"""
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1",
    "spark.speculation.quantile": "0.1",
}
BOTH_EXECUTORS = {
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}
"""Settings that make the job wait for both executors. Without them, everything might run on the first one before
there is a second one."""
DAYS = 3
PATIENCE_S = 600.0
T = TypeVar("T")

pytestmark = pytest.mark.timeout(1800)


def events(number: int) -> pa.Table:
    """Return a day's 2000 events of about 300 shops."""
    numbers = range(number * 2000, number * 2000 + 2000)
    return pa.table(
        {"shop": [f"shop-{n * 37 % (290 + number)}" for n in numbers], "item": [f"i{n % 7}" for n in numbers]}
    )


@dataclass(frozen=True)
class World:
    places: Places
    spark: SparkCluster
    deployment: Deployment

    def new_pipeline(self, name: str) -> None:
        """Write a pipeline file, and take the checkpoint of its first day."""
        (self.places.pipelines / f"{name}.yaml").write_text(PIPELINE.format(name=name))
        checkpoint_of(self.deployment, name, 1, events(1))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("retries")
    places = Places(work=root / "work", pipelines=root / "pipelines", settings={"PYTHONPATH": str(CHECKOUT)})
    places.make_directories()
    places.pipelines.mkdir()
    for number in range(1, DAYS + 1):
        directory, both = places.data / f"2013-01-{number:02}", events(number)
        directory.mkdir()
        for half in (0, 1):  # There are two files, so that two tasks read them.
            pq.write_table(both.slice(half * 1000, 1000), directory / f"{half}.parquet")
    env = environment(places, Ports())
    deployment = wiring.deployment(env)
    deployment.catalog().migrate()
    with spark_cluster(places.work / "spark", env) as spark:
        yield World(places, spark, deployment)


@dataclass(frozen=True)
class Job:
    """A running snapshot job, the attempts that are held in it, and Spark's record of it."""

    process: subprocess.Popen[str]
    held: Held
    log: Path

    def event_log(self) -> spark_events.EventLog:
        return spark_events.EventLog.of(self.log)

    def wait_for(self, find: Callable[[], T | None], what: str) -> T:
        deadline = time.monotonic() + PATIENCE_S
        while (answer := find()) is None:
            assert self.process.poll() is None, f"ended before {what}: {self.process.communicate()[0]}"
            assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {what}"
            time.sleep(0.05)
        return answer

    def came(self, name: str) -> Came:
        """Wait until an attempt has written its snapshot, and return it."""
        return self.wait_for(lambda: self.held.came(name), f"attempt {name}")

    def succeed(self) -> None:
        output, _ = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, output


@contextmanager
def submitted(world: World, name: str, directory: Path, conf: dict[str, str]) -> Iterator[Job]:
    """Start the snapshot job of the pipeline's second day as Airflow's operator does."""
    begin(world.deployment, world.deployment.pipeline(name), day(2), "test")
    held, log = Held(directory / "held"), directory / "log"
    held.directory.mkdir()
    log.mkdir()
    conf_words = [f"{key}={value}" for key, value in {**conf, f"spark.executorEnv.{DIRECTORY}": held.directory}.items()]
    options = [argument for setting in conf_words for argument in ("--conf", setting)]
    binary = str(Path(sys.executable).parent / "spark-submit")
    script, file = (
        str(CHECKOUT / "jobs" / "statelib_jobs" / "snapshot.py"),
        str(world.places.pipelines / f"{name}.yaml"),
    )
    where = ["--master", world.spark.url, "--deploy-mode", "client"]
    process = subprocess.Popen(
        [binary, *where, *options, *spark_events.settings(log), script, "--pipeline", file, "--checkpoint-id", "2"],
        env=environment(world.places, Ports()),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield Job(process, held, log)
    finally:
        for member in family(process.pid):
            kill(member)


def test_the_speculative_copy_of_a_slow_attempt_counts(world: World, tmp_path: Path) -> None:
    """The slow attempt waits after it has written its snapshot, and the copy waits for that."""
    world.new_pipeline("slow")
    with submitted(world, "slow", tmp_path, SPECULATION) as job, job.held.holding("0-0-0", "0-1-0"):
        slow, copy = job.came("0-0-0").task, job.came("0-1-0").task
        job.held.release("0-1-0")
        job.succeed()
        output = job.event_log()
    tasks = {task.task: task for task in output.started()}
    assert (tasks[slow].speculative, tasks[copy].speculative) == (False, True)
    assert (tasks[slow].stage, tasks[slow].stage_attempt) == (tasks[copy].stage, tasks[copy].stage_attempt)
    assert tasks[slow].executor != tasks[copy].executor
    assert copy in output.succeeded()
    assert_one_of_each(world, "slow", won={copy}, lost={slow})


@pytest.mark.parametrize("wins", ["new", "old"] if TEST_ALL else ["old"])
def test_the_stage_is_run_again_after_an_executor_died(world: World, tmp_path: Path, wins: str) -> None:
    """The subtask of the executor runs again, and so does the other one, which is still running: the stage's new
    attempt takes only results into account. Either of the two attempts at that other subtask may end first."""
    name = f"retried_{wins}"
    world.new_pipeline(name)
    with submitted(world, name, tmp_path, BOTH_EXECUTORS) as job, job.held.holding("0-0-0", "1-0-0"):
        first = [job.came("0-0-0"), job.came("1-0-0")]
        shuffled = job.event_log().stages("Completed")[-1]["Stage ID"]
        writers = {task.executor for task in job.event_log().started() if task.stage == shuffled}
        dead = next(subtask for subtask, came in enumerate(first) if came.executor in writers)
        alive = 1 - dead
        with job.held.holding(*[f"{alive}-0-1"] * (wins == "old")):
            for member in family(first[dead].pid):
                kill(member)
            again = job.came(f"{alive}-0-1").task
            if wins == "old":
                job.held.release(f"{alive}-0-0")
            retried = job.came(f"{dead}-0-1").task
            job.succeed()
            output = job.event_log()
    assert first[dead].executor in output.lost_executors()
    assert "FetchFailed" in output.failures()
    assert_stages_were_run_again(output, {first[dead].task, first[alive].task}, {again, retried})
    remaining, lost = (again, first[alive].task) if wins == "new" else (first[alive].task, again)
    assert_one_of_each(world, name, won={retried, remaining}, lost={first[dead].task, lost}, killed={first[dead].task})


def assert_stages_were_run_again(log: spark_events.EventLog, first: set[int], again: set[int]) -> None:
    """Assert that the stage of the ``first`` tasks ran again, and tasks of a stage before it, whose output was
    lost."""
    tasks = {task.task: task for task in log.started()}
    (stage,) = {tasks[task].stage for task in first | again}
    assert {tasks[task].stage_attempt for task in first} == {0}
    assert {tasks[task].stage_attempt for task in again} == {1}
    order = [(info["Stage ID"], info["Stage Attempt ID"]) for info in log.stages()]
    between = {number for number, _ in order[order.index((stage, 0)) + 1 : order.index((stage, 1))]}
    parents = next(info["Parent IDs"] for info in log.stages() if info["Stage ID"] == stage)
    assert between
    assert between <= set(parents)
    assert any(task.stage in between and task.task in log.succeeded() for task in log.started())


def assert_one_of_each(world: World, name: str, won: set[int], lost: set[int], killed: Set[int] = frozenset()) -> None:
    """Assert that checkpoint 2 passes the gate and contains the files of the tasks that ``won``; files of others are
    removed, and the next day's checkpoint builds on it. ``killed``: those of the ``lost`` that had no time to remove
    their own files."""
    deployment, pipeline = world.deployment, world.deployment.pipeline(name)
    report = check(deployment, pipeline, CheckpointId(2))
    assert report.passed
    register(deployment, pipeline, CheckpointId(2), report.report_uri)
    opened = resolve(deployment, f"{name}/2")
    assert verify(opened, scratch=deployment.work_directory).problems == ()
    assert_contents(opened, days=2)
    assert opened.manifest is not None
    assert opened.manifest.events.read == 2000
    attempt = opened.manifest.attempt
    tasks = tasks_of(attempt, [file.path for file in opened.manifest.files])
    assert (tasks >= won, tasks & lost) == (True, set())
    left = tasks_of(attempt, stored(deployment) - needed(deployment))
    assert left >= killed, "they had written all of their snapshot"
    (swept,) = orphans(deployment, name, dry_run=False)
    assert swept.deleted or not killed
    assert_nothing_else(deployment, name)
    checkpoint_of(deployment, name, 3, events(3))
    assert_contents(resolve(deployment, f"{name}/3"), days=3)
    assert_nothing_else(deployment, name)


def tasks_of(attempt: str, files: Iterable[str]) -> set[int]:
    """Return Spark's ids of the tasks of this attempt at the checkpoint that wrote one of the files, by the names of
    the files."""
    names = [file.rpartition("/")[2].partition("-")[0] for file in files]
    return {int(name[24:], 16) for name in names if name.startswith(attempt[:24])}


def assert_contents(opened: Checkpoint, days: int) -> None:
    rows = pa.concat_tables([events(number) for number in range(1, days + 1)]).to_pylist()
    seen = {row["key"]: row["value"]["events"] for row in opened.to_arrow("seen").to_pylist()}
    per_item = {(row["key"], row["user_key"]): row["value"] for row in opened.to_arrow("per_item").to_pylist()}
    assert seen == Counter(row["shop"] for row in rows)
    assert per_item == Counter((row["shop"], row["item"]) for row in rows)


def assert_nothing_else(deployment: Deployment, name: str) -> None:
    """Assert that storage contains exactly the files that the pipeline's checkpoints name."""
    root = f"{deployment.root_uri()}/{name}"
    named = set()
    for record in deployment.catalog().list(name):
        opened = resolve(deployment, f"{name}/{record.checkpoint_id}")
        assert opened.manifest is not None
        named |= {PLACES.file_uri(record.directory, file.path) for file in opened.manifest.files}
        named.add(f"{record.directory}/_metadata")
    assert {uri for uri in stored(deployment) if uri.startswith(f"{root}/")} == named
