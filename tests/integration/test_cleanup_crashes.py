"""The process, or the storage, gives up at every single step of cleaning up; running again ends clean."""

import contextlib
import multiprocessing
import os
import shutil
import signal
from dataclasses import astuple
from pathlib import Path

import pytest

from statelib.errors import RetryableError
from statelib.flows.checkpoint.steps import abort, begin
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.cleanup.retention import retire
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.model.record import CheckpointState
from statelib.savepoints.verification.snapshots import verify_at
from tests.integration.garbage import (
    FailingDeployment,
    Killer,
    KillError,
    days,
    directories,
    events,
    failing_remover,
    needed,
    save,
    stored,
    tally,
)
from tests.support.worlds import day, publish_here

TALLY = PipelineName("tally")
SPAWN = multiprocessing.get_context("spawn")


class World:
    """A deployment with garbage of every kind, which can be reset."""

    def __init__(self, root: Path) -> None:
        self.root, self.backup = root, root.with_name(f"{root.name}-backup")
        self.deployment = tally(root)
        days(self.deployment, 1, 3)
        self.doomed = save(self.deployment, "doomed")
        days(self.deployment, 4, 5)
        pipeline = self.deployment.pipeline("tally")
        left = begin(self.deployment, pipeline, day(6), "t").checkpoint_id
        publish_here(self.deployment, pipeline, left, events(6))
        abort(self.deployment, "tally", left, "t")
        retire(self.deployment)
        self.deployment.catalog().cleanup.dispose(TALLY, self.doomed)
        shutil.copytree(root, self.backup)

    def again(self) -> Deployment:
        shutil.rmtree(self.root)
        shutil.copytree(self.backup, self.root)
        return self.deployment


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


def is_consistent(deployment: Deployment) -> None:
    """Assert what holds at any moment: all files that an existing ``_metadata`` names exist, and completed
    checkpoints are complete."""
    for metadata in Path(deployment.storage_root).rglob("_metadata"):
        assert verify_at(str(metadata.parent), own=True).problems == ()
    assert needed(deployment) <= stored(deployment)
    for record in deployment.catalog().list(TALLY, {CheckpointState.COMPLETED}):
        assert verify_at(record.directory, own=True).problems == ()


def is_clean(deployment: Deployment) -> None:
    collect_garbage(deployment)
    orphans(deployment, dry_run=False)
    assert stored(deployment) == needed(deployment)
    assert directories(deployment) == {"chk-5", "chk-6"}
    states = {r.checkpoint_id: r.state for r in deployment.catalog().list(TALLY)}
    assert states == dict.fromkeys([1, 2, 3, 4], "DELETED") | {5: "COMPLETED", 6: "COMPLETED", 7: "ABORTED"}


def test_a_cleanup_that_is_killed_at_every_point_twice_ends_clean_in_the_next_run(world: World) -> None:
    seen: list[str] = []
    for at in range(200):
        deployment, killer = world.again(), Killer(at)
        try:
            collect_garbage(deployment, at=killer)
            orphans(deployment, dry_run=False, at=killer)
        except KillError:
            is_consistent(deployment)
            with contextlib.suppress(KillError):
                collect_garbage(deployment, at=Killer(at // 2))
            is_consistent(deployment)
            is_clean(deployment)
        else:
            seen = killer.seen
            is_clean(deployment)
            break
    assert set(seen) == {
        "before condemn",
        "condemned",
        "before metadata",
        "metadata deleted",
        "before file",
        "files deleted",
        "files confirmed",
        "before directory",
        "before checkpoints",
        "done",
        "before orphan",
        "orphans deleted",
        "before orphan directory",
    }
    assert len(seen) > 25


def die_at(deployment: Deployment, at: int) -> None:
    try:
        collect_garbage(deployment, at=Killer(at))
    except KillError:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("at", [1, 6, 10, 15, 21])
def test_a_cleanup_that_sigkill_ends_is_completed_by_the_next_run(world: World, at: int) -> None:
    deployment = world.again()
    process = SPAWN.Process(target=die_at, args=(deployment, at))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    is_consistent(deployment)
    is_clean(deployment)


@pytest.mark.parametrize("applied", [False, True], ids=["failed", "reply-lost"])
def test_a_cleanup_whose_storage_fails_at_every_removal_is_completed_by_the_next_run(
    world: World, applied: bool
) -> None:
    for fail_at in range(1, 200):
        deployment = world.again()
        failing = failing_remover(deployment, fail_at, applied)
        shaky = FailingDeployment(*astuple(deployment), failing=failing)
        try:
            collect_garbage(shaky)
            orphans(shaky, dry_run=False)
        except RetryableError:
            is_consistent(deployment)
            is_clean(deployment)
        else:
            assert len(failing.calls) == fail_at - 1
            is_clean(deployment)
            return
    raise AssertionError("more removals than there are files")
