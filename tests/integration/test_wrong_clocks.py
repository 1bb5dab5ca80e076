"""Clocks jump ten years ahead or back between any two steps: nothing is removed too early, and ids and epochs only
grow."""

import os
import random
import time
from pathlib import Path

import pytest

from statelib.flows.checkpoint.steps import begin, register
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.cleanup.retention import retire
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.model.record import CheckpointState
from tests.integration.garbage import days, events, needed, put_file, stored, tally
from tests.support.extent import rounds
from tests.support.figures import record
from tests.support.worlds import day, publish_here

NAME = PipelineName("tally")
YEARS_10, DAY_S = 10 * 365 * 86_400, 86_400
JUMPS = (-YEARS_10, YEARS_10, -DAY_S, DAY_S, 0)
ROUNDS = rounds(12, 100)
SEED = 20260614


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> "Clock":
    """Return the clock of this process, which a test can set; the storage has its own."""
    made = Clock(time.time_ns)
    monkeypatch.setattr(time, "time_ns", made)
    return made


class Clock:
    def __init__(self, real: object) -> None:
        self._real, self.off_s = real, 0

    def __call__(self) -> int:
        return self._real() + self.off_s * 10**9


def completed(deployment: Deployment) -> list[int]:
    return sorted(r.checkpoint_id for r in deployment.catalog().list(NAME, {CheckpointState.COMPLETED}))


def test_clocks_that_jump_between_any_two_steps_lose_no_state(tmp_path: Path, clock: Clock) -> None:
    """Retention keeps two checkpoints; the sweep has its usual grace period."""
    deployment, chance = tally(tmp_path), random.Random(SEED)
    pipeline, ids, epochs = deployment.pipeline("tally"), [0], [0]
    for number in range(1, ROUNDS + 1):
        steps = (
            lambda: publish_here(deployment, pipeline, begun, events(number)),  # noqa: B023 - called at once
            lambda: orphans(deployment, dry_run=False),
            lambda: register(deployment, pipeline, begun),  # noqa: B023
            lambda: orphans(deployment, dry_run=False),
            lambda: retire(deployment),
            lambda: collect_garbage(deployment),
        )
        clock.off_s = chance.choice(JUMPS)
        begun = begin(deployment, pipeline, day(number), "test").checkpoint_id
        for step in steps:
            clock.off_s = chance.choice(JUMPS)
            step()
        ids.append(begun)
        epochs.append(deployment.catalog().head(NAME).epoch)
        assert completed(deployment) == ids[-2:] if number > 1 else [1]
        assert stored(deployment) == needed(deployment)
    assert sorted(set(ids)) == ids
    assert sorted(set(epochs)) == epochs
    rows = resolve(deployment, f"tally/{ids[-1]}").to_arrow("total", scratch=deployment.work_directory).to_pylist()
    assert {row["value"] for row in rows} == {ROUNDS * (ROUNDS + 1) // 2}
    record("G1", "checkpoints under clocks that jump", ROUNDS)


@pytest.mark.parametrize("jump_s", JUMPS)
def test_one_run_with_a_wrong_clock_costs_no_history(tmp_path: Path, clock: Clock, jump_s: int) -> None:
    deployment = tally(tmp_path, "{count: 1, days: 30}")
    days(deployment, 1, 2)
    clock.off_s = jump_s
    days(deployment, 3, 3)
    retire(deployment)
    clock.off_s = 0
    days(deployment, 4, 4)
    retire(deployment)
    completed_before = completed(deployment)
    assert {1, 2, 4} <= set(completed_before), (
        "what completed today stays for thirty days, whatever was said of one of them"
    )


@pytest.mark.parametrize("off_s", [-DAY_S, DAY_S, -YEARS_10, YEARS_10])
def test_the_grace_period_is_measured_by_the_storages_own_clock(tmp_path: Path, clock: Clock, off_s: int) -> None:
    deployment = tally(tmp_path)
    days(deployment, 1, 2)
    young = put_file(deployment, f"tally/chk-1/{'e' * 32}-0-0", "of a task that nobody knows yet")
    old = put_file(deployment, f"tally/chk-1/{'f' * 32}-0-0", "of one that nobody knows any more")
    eight_days_ago = time.time() - 8 * DAY_S
    os.utime(old.removeprefix("file://"), (eight_days_ago, eight_days_ago))
    clock.off_s = off_s
    (swept,) = orphans(deployment, dry_run=False, force=True)
    assert (swept.files, swept.young) == ((old,), (young,))
    assert young in stored(deployment)
