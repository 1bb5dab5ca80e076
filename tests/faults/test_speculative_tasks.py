"""Two attempts of every task at once, in any order of their writes: one of each wins, both have the same content,
and the files of the losers are collected, whether they end before or after the checkpoint is complete, or never."""

import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from statelib.flows.checkpoint.publishing import publish
from statelib.flows.checkpoint.snapshot_plan import SnapshotPlan, plan_snapshot
from statelib.flows.checkpoint.steps import begin, register
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import SubtaskReport
from statelib.model.handles import KeyGroupsSavepointStateHandle, KeyGroupsStateHandle
from statelib.model.ids import PipelineName
from statelib.model.state import StateStatistics
from statelib.savepoints.verification.snapshots import verify
from statelib.spark.snapshot.subtask.worker import Work, snapshot_subtask
from tests.faults.endured_flow import (
    TOURS,
    FaultyDeployment,
    check_nothing_else,
    events,
    expected,
    opened_checkpoints,
    sweep,
)
from tests.support.extent import rounds
from tests.support.figures import record
from tests.support.worlds import day, owned

NAME = PipelineName("tours")
INTERLEAVINGS = rounds(10, 100)
SEED = 20260612
WAYS = [("heap", "canonical"), ("rocksdb", "incremental")]


class KilledError(Exception):
    """The error that ends a task which Spark no longer needs."""


class Task(threading.Thread):
    """One attempt at a subtask. It waits before each operation on storage until :meth:`step` lets it go on."""

    def __init__(self, run: Callable[[Callable[[int], None]], SubtaskReport], subtask: int) -> None:
        super().__init__(daemon=True)
        self.subtask = subtask
        self.report: SubtaskReport | None = None
        self.error: BaseException | None = None
        self._run, self._killed = run, False
        self._go, self._waits = threading.Semaphore(0), threading.Semaphore(0)

    def run(self) -> None:
        try:
            self._pause(0)
            self.report = self._run(self._pause)
        except BaseException as error:
            self.error = error
        finally:
            self.ended = True
            self._waits.release()

    ended = False

    def begin(self) -> None:
        self.start()
        self._waits.acquire()

    def step(self, *, kill: bool = False) -> None:
        """Run until the next operation, or the end. A killed attempt ends as soon as it can."""
        self._killed |= kill
        self._go.release()
        self._waits.acquire()

    def _pause(self, _operation: int) -> None:
        self._waits.release()
        self._go.acquire()
        if self._killed:
            raise KilledError


def tasks_of(root: Path, deployment: Deployment, plan: SnapshotPlan, number: int) -> list[Task]:
    """Return two attempts for each subtask."""
    pipeline = deployment.pipeline("tours")
    parts = [events(number).filter(pa.array(mask)) for mask in owned(pipeline, plan, events(number))]

    def run(subtask: int, task: int) -> Callable[[Callable[[int], None]], SubtaskReport]:
        def with_pauses(pause: Callable[[int], None]) -> SubtaskReport:
            work = Work(FaultyDeployment.at(root, pause), pipeline, plan)
            return snapshot_subtask(work, subtask, task, parts[subtask])

        return with_pauses

    return [Task(run(subtask, 2 * subtask + twin), subtask) for subtask in range(len(parts)) for twin in (0, 1)]


@pytest.mark.parametrize(("backend", "strategy"), WAYS)
def test_one_attempt_of_each_task_wins(tmp_path: Path, backend: str, strategy: str) -> None:
    (tmp_path / "pipelines").mkdir()
    text = TOURS.format(backend=backend, strategy=strategy, local="false")
    (tmp_path / "pipelines" / "tours.yaml").write_text(text)
    deployment = FaultyDeployment.at(tmp_path)
    chance, seen = random.Random(SEED), Counter[str]()
    for number in range(1, INTERLEAVINGS + 1):
        checkpoint(tmp_path, deployment, number, chance, seen)
        collected(deployment)
    opened = resolve(deployment, f"tours/{deployment.catalog().head(NAME).head}")
    rows = opened.to_arrow("best", scratch=deployment.work_directory).to_pylist()
    assert {row["key"]: row["value"] for row in rows} == expected(INTERLEAVINGS)
    print(dict(seen))
    assert min(seen["late"], seen["killed"]) > 0, seen
    record("G1", "interleavings of two attempts of each task", INTERLEAVINGS)


def checkpoint(root: Path, deployment: Deployment, number: int, chance: random.Random, seen: Counter[str]) -> None:
    pipeline = deployment.pipeline("tours")
    begun = begin(deployment, pipeline, day(number), "test")
    plan = plan_snapshot(deployment, pipeline, begun.checkpoint_id)
    assert plan is not None
    tasks = tasks_of(root, deployment, plan, number)
    for task in tasks:
        task.begin()
    won: dict[int, SubtaskReport] = {}
    while len(won) < plan.record.parallelism:
        task = chance.choice([t for t in tasks if not t.ended])
        task.step()
        if task.ended:
            won.setdefault(task.subtask, _report(task))
    steps = [
        lambda: publish(deployment, pipeline, plan, len(events(number)), list(won.values())),
        lambda: register(deployment, pipeline, begun.checkpoint_id),
    ]
    while losers := [t for t in tasks if not t.ended]:
        if steps and chance.random() < 0.3:
            steps.pop(0)()
        else:
            lose(chance.choice(losers), won, chance.random() < 0.1, seen)
    for step in steps:
        step()
    for task in tasks:
        task.join()
    assert verify(resolve(deployment, f"tours/{begun.checkpoint_id}"), scratch=deployment.work_directory).problems == ()


def lose(task: Task, won: dict[int, SubtaskReport], kill: bool, seen: Counter[str]) -> None:
    """Run a step of an attempt whose result is no longer needed."""
    task.step(kill=kill)
    seen["killed"] += kill
    if task.ended and not isinstance(task.error, KilledError):
        seen["late"] += 1
        _same(won[task.subtask], _report(task))


def _report(task: Task) -> SubtaskReport:
    if task.report is None:
        raise AssertionError(f"subtask {task.subtask}") from task.error
    return task.report


def _same(one: SubtaskReport, other: SubtaskReport) -> None:
    """Assert that two attempts have the same counts and digests of every state, and the same bytes of streams.
    RocksDB decides itself when it compacts, so its attempts may have different numbers of files."""
    assert len(one.statistics) == len(other.statistics)
    assert all(map(StateStatistics.same_content, one.statistics, other.statistics))
    assert one.attempt != other.attempt
    if isinstance(one.keyed, KeyGroupsStateHandle | KeyGroupsSavepointStateHandle):
        assert [(f.size_bytes, f.crc32c) for f in one.files] == [(f.size_bytes, f.crc32c) for f in other.files]


def collected(deployment: Deployment) -> None:
    """Clean up, and assert that storage contains exactly the files that completed checkpoints name."""
    sweep(deployment)
    check_nothing_else(deployment, opened_checkpoints(deployment))
    assert list(Path(deployment.work_directory).iterdir()) == []
