"""Local copies outlive their process, survive its death at any moment, and are shared by the tasks of a host."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pytest

from statelib.flows.checkpoint.publishing import publish
from statelib.flows.checkpoint.snapshot_plan import plan_snapshot
from statelib.flows.checkpoint.steps import begin, register
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.savepoints.verification.snapshots import verify
from statelib.spark.snapshot.subtask.worker import Work, snapshot_subtask
from tests.integration.test_incremental_flow import events
from tests.integration.test_local_recovery_flow import copies, directories_of_copies, local, run, use
from tests.support.worlds import CHECKOUT, day, new_deployment, owned


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    (tmp_path / "pipelines").mkdir()
    deployment = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    use(deployment, "rocksdb", "incremental")
    yield deployment
    assert not list(local(deployment).rglob("*.ongoing"))


def elsewhere(tmp_path: Path, *arguments: object) -> int:
    """Run ``one_run`` in a process of its own, and return its exit status."""
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    command = [sys.executable, "-m", "tests.integration.one_run", str(tmp_path), *map(str, arguments)]
    return subprocess.run(command, env=environment, check=False).returncode


def test_a_new_process_uses_the_copies_of_another(deployment: Deployment, tmp_path: Path) -> None:
    assert elsewhere(tmp_path, 1) == 0
    assert run(deployment, 2).restored_from == ("local", "local")


DEATHS = [("os.mkdir", 0), ("os.mkdir", 4), *(("os.link", n) for n in (0, 3, 9)), ("os.rename", 0), ("os.rename", 1)]


@pytest.mark.parametrize(("event", "number"), DEATHS)
def test_a_process_that_dies_while_copying_loses_only_copies(
    deployment: Deployment, tmp_path: Path, event: str, number: int
) -> None:
    assert elsewhere(tmp_path, 1, event, number) == -signal.SIGKILL
    assert run(deployment, 1).restored_from == ("empty", "empty")
    assert run(deployment, 2).restored_from == ("local", "local")
    assert len(directories_of_copies(deployment)) == 2
    assert all(
        len({p.parent for p in copies(deployment, int(name[4:]))}) == 2 for name in directories_of_copies(deployment)
    )
    assert run(deployment, 3).restored_from == ("local", "local")


@pytest.mark.parametrize(("event", "number"), [("os.rename", 0), ("shutil.rmtree", 0), ("os.rmdir", 0)])
def test_removal_that_a_process_death_interrupted_is_completed_by_the_next_run(
    deployment: Deployment, tmp_path: Path, event: str, number: int
) -> None:
    for day_number in (1, 2):
        run(deployment, day_number)
    assert elsewhere(tmp_path, 3, event, number) == -signal.SIGKILL
    assert run(deployment, 3).restored_from == ("local", "local")
    assert directories_of_copies(deployment) == ["chk-2", "chk-4"]


def test_tasks_on_one_host_can_run_at_the_same_time(deployment: Deployment) -> None:
    run(deployment, 1)
    run(deployment, 2)
    pipeline = deployment.pipeline("tours")
    third = begin(deployment, pipeline, day(3), "test").checkpoint_id
    plan = plan_snapshot(deployment, pipeline, third)
    assert plan is not None
    parts = [events(3).filter(pa.array(mask)) for mask in owned(pipeline, plan, events(3))]
    # There are four tasks: each subtask runs twice, as with speculative execution.
    with ProcessPoolExecutor(4, get_context("spawn")) as pool:
        work = Work(deployment, pipeline, plan)
        tasks = [pool.submit(snapshot_subtask, work, n % 2, n, parts[n % 2]) for n in range(4)]
        reports = [task.result() for task in tasks]
    assert [r.restored_from for r in reports] == ["local"] * 4
    publish(deployment, pipeline, plan, len(events(3)), [reports[0], reports[3]])
    register(deployment, pipeline, third)
    assert not verify(resolve(deployment, "tours/3"), scratch=deployment.work_directory).problems
    assert len({p.parent for p in copies(deployment, 3)}) == 4
    assert run(deployment, 4).restored_from == ("local", "local")
    assert len({p.parent for p in copies(deployment, 3)}) == 2, "the losers' copies are of no use"
    assert directories_of_copies(deployment) == ["chk-3", "chk-4"]
