"""A signal, or a thread that cannot start, at any step of a subtask's snapshot: no file of it is left."""

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest

from statelib.flows.checkpoint.publishing import publish
from statelib.flows.checkpoint.snapshot_plan import SnapshotPlan, plan_snapshot
from statelib.flows.checkpoint.steps import begin, register
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import SubtaskReport
from statelib.spark.snapshot.subtask.worker import Work, snapshot_subtask
from statelib.testing.interruptions import no_thread_starts, signal_arrives
from tests.support.extent import rounds
from tests.support.worlds import day, new_deployment, own_threads

SEED = 21
PIPELINE = """\
name: counts
source: {{path: "{{data}}/{{start:%Y-%m-%d}}", columns: {{key: string, amount: long}}}}
key: [key]
states:
  total: {{kind: value, fields: {{amount: {{agg: sum, of: amount}}}}}}
  greatest: {{kind: reducing, value: {{agg: max, of: amount}}}}
backend: {backend}
checkpoint: {{inline_threshold_bytes: 0, execution: {execution}, strategy: {strategy}, local_recovery: {local},
  file_merging: {{enabled: {merged}}}}}
"""
WAYS = [
    ("heap", "canonical", "async", "false", "false"),
    ("heap", "full", "sync", "true", "false"),
    ("heap", "changelog", "async", "true", "true"),
    ("rocksdb", "full", "sync", "false", "false"),
    ("rocksdb", "incremental", "async", "true", "true"),
    ("rocksdb", "changelog", "sync", "true", "false"),
]
EVENTS = pa.table({"key": [f"key-{n}" for n in range(200)], "amount": pa.array(range(200), pa.int64())})


LEAVING_STEPS = 60
"""The number of steps at the end of a subtask that are left out: its report is complete, and only contexts are left.
A signal there has the effect of one a moment later, before Spark has the report: the files are orphans, which a
sweep removes."""


@contextmanager
def ended_by_signal() -> Iterator[None]:
    """End the block at SystemExit. In two places, Python's library raises another error in place of SystemExit:
    ``shutil.rmtree`` just after it has closed a directory, which it closes once more, and a thread that waits for
    another just after it has released their lock, which it releases once more."""
    try:
        yield
    except SystemExit:
        pass
    except (OSError, RuntimeError) as error:
        if not isinstance(error.__context__, SystemExit):
            raise


class World:
    """A pipeline with one completed checkpoint, on which further checkpoints are tried."""

    def __init__(self, root: Path, way: tuple[str, ...]) -> None:
        (root / "pipelines").mkdir()
        names = ("backend", "strategy", "execution", "local", "merged")
        text = PIPELINE.format(**dict(zip(names, way, strict=True)))
        (root / "pipelines" / "counts.yaml").write_text(text)
        self.root = root
        self.deployment: Deployment = new_deployment(root, root, root / "pipelines")
        self.pipeline = self.deployment.pipeline("counts")
        first = self.begun(1)
        publish(self.deployment, self.pipeline, first, len(EVENTS), [self.attempt(first)])
        register(self.deployment, self.pipeline, first.record.checkpoint_id)
        self.plan = self.begun(2)
        self.files = self.files_left()

    def begun(self, number: int) -> SnapshotPlan:
        begun = begin(self.deployment, self.pipeline, day(number), "test")
        plan = plan_snapshot(self.deployment, self.pipeline, begun.checkpoint_id)
        assert plan is not None
        return plan

    def attempt(self, plan: SnapshotPlan, task: int = 0) -> SubtaskReport:
        return snapshot_subtask(Work(self.deployment, self.pipeline, plan), 0, task, EVENTS)

    def files_left(self) -> set[Path]:
        return {path for path in (self.root / "state").rglob("*") if path.is_file()}

    def check(self, after: str) -> None:
        assert self.files_left() == self.files, after


@pytest.fixture(params=WAYS, ids="-".join)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    return World(tmp_path, request.param)


def test_a_thread_that_cannot_start_leaves_no_file(world: World) -> None:
    for number in range(20):
        with suppress(RuntimeError), no_thread_starts(number) as started:
            world.attempt(world.plan, number)
            assert 0 < started.count <= number
            return
        world.check(f"the start of thread {number} failed")
        assert own_threads() == []
        assert list((world.root / "scratch").glob("statelib-scratch-*")) == []
        assert list((world.root / "scratch").rglob("*.ongoing")) == []
    raise AssertionError("more than 20 threads")


@pytest.mark.timeout(3600)
def test_a_signal_at_any_step_leaves_no_file(world: World) -> None:
    world.attempt(world.plan, 0)  # Modules that are imported on first use take steps only once.
    with signal_arrives(None) as steps:
        world.attempt(world.plan, 1)
    world.files = world.files_left()
    places = random.Random(SEED)
    numbers, ended = sorted(places.sample(range(steps.count - LEAVING_STEPS), rounds(60, 2000))), 0
    for number in numbers:
        with ended_by_signal(), signal_arrives(number):
            world.attempt(world.plan, 2 + number)
            # The attempt had fewer steps, or Python dropped the exception, as it does with an exception in a
            # finalizer.
            world.files, ended = world.files_left(), ended + 1
            continue
        world.check(f"a signal at step {number} of {steps.count}")
    assert ended < len(numbers) / 4
