"""SIGKILL at every labelled crash point, on every kind of storage and catalog; then recovery in a new process."""

import json
import random
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from statelib.crash_points import POINTS
from statelib.testing.crash_points import Place
from tests.faults.crash_child import recovered, recovering, run, work
from tests.faults.crash_kit import EMPTY, ORDER, SETTINGS, Tally, Worlds, spread, worlds
from tests.support.extent import EVERYTHING, TEST_FAULTS, name_of, rounds, sample
from tests.support.s3_endpoint import S3Endpoint

SEED = 20130101
ONLY_FILES = ("directory:", "data file:", "publish:", "removal:", "clock:")
ONLY_OBJECTS = ("object:", "objects:")
ELSEWHERE = ("publication:",)
"""Crash points at which test_killed_publishing.py kills."""
SAMPLE, ALL = 4, TEST_FAULTS
Found = list[list[str]]


@pytest.fixture(params=SETTINGS if EVERYTHING else sample(SETTINGS), ids=name_of)
def made(
    request: pytest.FixtureRequest, tmp_path: Path, running_s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, Worlds]]:
    storage, catalog = request.param
    (tmp_path / "w").mkdir()
    with worlds(tmp_path / "w", storage, catalog, running_s3, monkeypatch) as ready:
        yield f"{storage}, {catalog}", ready


def ways(made: Worlds, workloads: Sequence[str]) -> dict[str, str]:
    """Return for each crash point a workload that reaches it."""
    chains: dict[str, str] = {}
    for workload in workloads:
        if workload != EMPTY:
            for place in made.trace(workload):
                chains.setdefault(place.point, workload)
    return chains | {f"rebuild: {when}": EMPTY for when in ("before commit", "committed")}


@pytest.mark.timeout(3600)
def test_a_process_killed_at_every_crash_point_is_recovered(made: tuple[str, Worlds], tmp_path: Path) -> None:
    setting, world = made
    every = ALL or world.catalog_url == ""
    chains = ways(world, ORDER if every else ["interval", "gc"])
    other = (*ELSEWHERE, *(ONLY_OBJECTS if setting.startswith("local") else ONLY_FILES))
    assert not every or POINTS.keys() - chains.keys() == {name for name in POINTS if name.startswith(other)}, (
        "never reached"
    )
    chance = random.Random(f"{SEED} {setting}")
    names = sorted(chains)
    chosen = names if ALL else chance.sample([name for name in names if chains[name] != EMPTY], SAMPLE)
    tally = Tally(f"killed at a point, then recovered ({setting})")
    for point in sorted(chosen, key=lambda name: chains[name] == EMPTY):
        again = chance.random() < 0.5
        wrong = killed(world, chains[point], [Place(point)], again, tmp_path / "report")
        assert wrong is not None, f"{chains[point]} never came to {point}"
        tally.add(point, wrong)
    tally.close()


@pytest.mark.timeout(3600)
def test_a_process_killed_again_during_recovery_is_recovered(tmp_path: Path) -> None:
    """There are pairs of places, the second one anywhere in the recovery; now and then there is a third."""
    (tmp_path / "w").mkdir()
    world = Worlds(tmp_path / "w")
    chance = random.Random(SEED)
    places = {name: world.trace(name) for name in ORDER if name != EMPTY}
    points = sorted({place.point for trace in places.values() for place in trace})
    tally = Tally("killed, and killed again while it recovers")
    number = rounds(4, 120)
    for _ in range(number):
        workload = chance.choice([*places])
        more = [Place(chance.choice(points), chance.choice([0, 0, 1, 4])) for _ in range(chance.choice([1, 1, 2]))]
        chain = [chance.choice(places[workload]), *more]
        run_name = f"{workload} {' then '.join(f'{p.point} ({p.nth})' for p in chain)}"
        wrong = killed(world, workload, chain, chance.random() < 0.5, tmp_path / "report")
        if wrong is not None:  # The number of directories that RocksDB makes is not the same each time.
            tally.add(run_name, wrong)
    assert tally.runs > 0.8 * number
    tally.close()


@pytest.mark.timeout(3600)
def test_a_seed_that_is_killed_anywhere_can_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    world = Worlds(tmp_path / "w")
    tally = Tally("a seed killed at a point, then repeated")
    for place in spread(world.trace("seed"), rounds(4, 200), SEED):
        wrong = killed(world, "seed", [place], False, tmp_path / "report")
        if wrong is not None:
            tally.add(f"seed {place.point} ({place.nth})", wrong)
    assert tally.runs
    tally.close()


def killed(made: Worlds, workload: str, chain: list[Place], from_the_task: bool, report: Path) -> Found | None:
    """Kill a run at the first place, and its recoveries at the others; return the problems after that. Return None if
    the run ended before it reached the first place."""
    deployment = made.of(workload).again()
    report.unlink(missing_ok=True)
    if (ended := run(work, deployment, made.environment, workload, chain[0])) == 0:
        return None
    assert ended == -signal.SIGKILL, f"{workload} ended with {ended}"
    for place in chain[1:]:
        ended = run(recovering, deployment, made.environment, workload, from_the_task, place)
        if ended not in {0, -signal.SIGKILL}:
            return [["G1", f"the recovery that {place.point} was to end ended with {ended}"]]
    ended = run(recovered, deployment, made.environment, workload, from_the_task, report)
    if ended != 0:
        return [["G1", f"the recovery ended with {ended}"]]
    answer: Found = json.loads(report.read_text())
    return answer
