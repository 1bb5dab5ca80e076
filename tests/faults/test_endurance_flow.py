"""A pipeline's days through all the flows, most of them failing first: killed subtasks, storage that does not answer,
lost replies, runs given up. What completes is right; after the orphan sweep and gc nothing else is there."""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from statelib.errors import RetryableError
from statelib.flows.checkpoint.steps import abort, begin
from statelib.flows.wiring import Deployment
from statelib.savepoints.verification.snapshots import verify
from tests.faults.endured_flow import (
    TOURS,
    FaultyDeployment,
    attempt,
    check_nothing_else,
    expected,
    opened_checkpoints,
    sweep,
)
from tests.support.extent import TEST_ALL, cases
from tests.support.worlds import day

CHECKOUT = Path(__file__).resolve().parents[2]
DAYS = 34 if TEST_ALL else 10
STRATEGIES = (
    ("heap", "canonical"),
    ("heap", "full"),
    ("rocksdb", "full"),
    ("rocksdb", "incremental"),
    ("rocksdb", "changelog"),
)


@pytest.mark.parametrize(("storing", "local"), cases(STRATEGIES, ["false", "true"]))
def test_days_that_fail_first_succeed_later_and_leave_no_file(
    tmp_path: Path, storing: tuple[str, str], local: str
) -> None:
    backend, strategy = storing
    (tmp_path / "pipelines").mkdir()
    text = TOURS.format(backend=backend, strategy=strategy, local=local)
    (tmp_path / "pipelines" / "tours.yaml").write_text(text)
    deployment = FaultyDeployment.at(tmp_path)
    chance = random.Random(f"{backend} {strategy} {local}")
    seen: Counter[str] = Counter()
    kills = 2
    for number in range(1, DAYS + 1):
        for fate in chance.sample(sorted(FAILURES), chance.randrange(4)):
            if fate == "killed" and kills == 0:
                continue
            kills -= fate == "killed"
            fail(tmp_path, number, fate, chance.randrange(12))
            seen[fate] += 1
            check_clean(tmp_path, fate)
        attempt(deployment, number)
        check_clean(tmp_path, "complete")
    assert sum(seen.values()) >= DAYS // 2, seen
    sweep(deployment)
    check_storage(deployment)


def fail(root: Path, number: int, fate: str, at: int) -> None:
    """Make a run of the day that fails, unless the fault comes too late."""
    FAILURES[fate](root, number, at)


def killed(root: Path, number: int, at: int) -> None:
    command = [sys.executable, "-m", "tests.faults.kill_run", str(root), str(number), str(at % 6)]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(CHECKOUT)}, check=False)
    assert done.returncode in {0, -signal.SIGKILL}


def given_up(root: Path, number: int, _at: int) -> None:
    deployment = FaultyDeployment.at(root)
    begun = begin(deployment, deployment.pipeline("tours"), day(number), "test")
    if not begun.already_completed:
        abort(deployment, "tours", begun.checkpoint_id, "given up")


def without_catalog(root: Path, number: int, _at: int) -> None:
    def unplugged() -> None:
        raise ConnectionError("the catalog did not answer")

    with suppress(ConnectionError):
        attempt(FaultyDeployment.at(root), number, unplugged)


def burning(root: Path, number: int, at: int) -> None:
    def hook(operation: int) -> None:
        if operation == at:
            raise OSError("disk on fire")

    with suppress(OSError):
        attempt(FaultyDeployment.at(root, hook), number)


def unanswered(root: Path, number: int, at: int) -> None:
    """Let publishing fail, or lose its answer."""
    with suppress(RetryableError):
        attempt(FaultyDeployment.at(root, publishing="before" if at % 2 else "after"), number)


FAILURES = {
    "stream": burning,
    "publish": unanswered,
    "no-register": without_catalog,
    "abort": given_up,
    "killed": killed,
}


def check_clean(root: Path, fate: str) -> None:
    """Assert that a run that ended by itself leaves nothing in its working directory; files of a killed one stay
    until the next run."""
    if fate != "killed":
        assert fate == "complete" or not list((root / "local-state").rglob("*.ongoing"))


def check_storage(deployment: Deployment) -> None:
    """Assert that storage contains exactly the files that completed checkpoints name, and that each checkpoint is
    complete and has the state of its days."""
    checkpoints = opened_checkpoints(deployment)
    assert len(checkpoints) == 3
    for back, opened in enumerate(reversed(checkpoints)):
        assert verify(opened, scratch=deployment.work_directory).problems == ()
        rows = opened.to_arrow("best", scratch=deployment.work_directory).to_pylist()
        assert {row["key"]: row["value"] for row in rows} == expected(DAYS - back)
    check_nothing_else(deployment, checkpoints)
