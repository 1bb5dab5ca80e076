"""Clocks that jump ten years ahead or back, between any two steps: nothing goes early, ids and epochs only grow."""

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
    """This process's clock; the storage keeps its own."""
    made = Clock(time.time_ns)
    monkeypatch.setattr(time, "time_ns", made)
    return made


class Clock:
    def __init__(self, real: object) -> None:
        self._real, self.off_s = real, 0

    def __call__(self) -> int:
        return self._real() + self.off_s * 10**9


def completed(here: Deployment) -> list[int]:
    return sorted(r.checkpoint_id for r in here.catalog().list(NAME, {CheckpointState.COMPLETED}))


def test_clocks_that_jump_between_any_two_steps(tmp_path: Path, clock: Clock) -> None:
    """Retention keeps two; the sweep has its usual grace period."""
    here, chance = tally(tmp_path), random.Random(SEED)
    pipeline, ids, epochs = here.pipeline("tally"), [0], [0]
    for number in range(1, ROUNDS + 1):
        steps = (
            lambda: publish_here(here, pipeline, begun, events(number)),  # noqa: B023 - called at once
            lambda: orphans(here, dry_run=False),
            lambda: register(here, pipeline, begun),  # noqa: B023
            lambda: orphans(here, dry_run=False),
            lambda: retire(here),
            lambda: collect_garbage(here),
        )
        clock.off_s = chance.choice(JUMPS)
        begun = begin(here, pipeline, day(number), "test").checkpoint_id
        for step in steps:
            clock.off_s = chance.choice(JUMPS)
            step()
        ids.append(begun)
        epochs.append(here.catalog().head(NAME).epoch)
        assert completed(here) == ids[-2:] if number > 1 else [1]
        assert stored(here) == needed(here)
    assert sorted(set(ids)) == ids
    assert sorted(set(epochs)) == epochs
    rows = resolve(here, f"tally/{ids[-1]}").to_arrow("total", scratch=here.work_directory).to_pylist()
    assert {row["value"] for row in rows} == {ROUNDS * (ROUNDS + 1) // 2}
    record("G1", "checkpoints under clocks that jump", ROUNDS)


@pytest.mark.parametrize("jump_s", JUMPS)
def test_one_run_with_a_wrong_clock_costs_no_history(tmp_path: Path, clock: Clock, jump_s: int) -> None:
    here = tally(tmp_path, "{count: 1, days: 30}")
    days(here, 1, 2)
    clock.off_s = jump_s
    days(here, 3, 3)
    retire(here)
    clock.off_s = 0
    days(here, 4, 4)
    retire(here)
    kept = completed(here)
    assert {1, 2, 4} <= set(kept), "what completed today stays for thirty days, whatever was said of one of them"


@pytest.mark.parametrize("off_s", [-DAY_S, DAY_S, -YEARS_10, YEARS_10])
def test_the_grace_period_is_told_by_the_storages_own_clock(tmp_path: Path, clock: Clock, off_s: int) -> None:
    here = tally(tmp_path)
    days(here, 1, 2)
    young = put_file(here, f"tally/chk-1/{'e' * 32}-0-0", "of a task that nobody knows yet")
    old = put_file(here, f"tally/chk-1/{'f' * 32}-0-0", "of one that nobody knows any more")
    eight_days_ago = time.time() - 8 * DAY_S
    os.utime(old.removeprefix("file://"), (eight_days_ago, eight_days_ago))
    clock.off_s = off_s
    (swept,) = orphans(here, dry_run=False, force=True)
    assert (swept.files, swept.young) == ((old,), (young,))
    assert young in stored(here)
