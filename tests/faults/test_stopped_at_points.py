"""Every backend's strategies stopped at crash points by an exception that no code catches, in this process: its
files are recovered, and the process itself keeps nothing open."""

from pathlib import Path

import pytest

from statelib.errors import StatelibError
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import CheckpointManifest
from statelib.testing.crash_points import Crash, Place, crash, ends_at
from tests.faults.crash_kit import CENTRAL_ORDER, Tally, Worlds, spread
from tests.faults.crash_workloads import LAST, WORKLOADS, recover
from tests.faults.crash_world import NAME, STRATEGIES, leaks, problems, unfinished
from tests.support.extent import TEST_FAULTS, name_of, rounds, sample

SEED = 20130102
SAMPLED = {(strategy, workload) for strategy, workload in sample([(s, w) for s in STRATEGIES for w in CENTRAL_ORDER])}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=name_of)
def test_an_exception_at_any_crash_point_is_recovered_from(tmp_path: Path, strategy: tuple[str, str]) -> None:
    (tmp_path / "w").mkdir()
    world = Worlds(tmp_path / "w", *strategy)
    tally = Tally(f"stopped by an exception, then recovered ({name_of(strategy)})")
    for workload in CENTRAL_ORDER:
        if TEST_FAULTS or (strategy, workload) in SAMPLED:
            for place in spread(world.trace(workload), rounds(2, 16), SEED):
                run = f"{workload} {place.point} ({place.nth})"
                tally.add(run, stopped(world, workload, place, from_the_task=tally.runs % 2 == 1))
    tally.close()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_a_run_that_adds_or_merges_deltas_is_recovered_from_an_exception(tmp_path: Path, backend: str) -> None:
    (tmp_path / "w").mkdir()
    world = Worlds(tmp_path / "w", backend, "changelog")
    tally = Tally(f"a run with deltas stopped by an exception, then recovered ({backend})")
    for workload, deltas in (("blind", 2), ("merged deltas", 0)):
        places = spread(world.trace(workload), rounds(3, 32), SEED)
        assert len(manifest_of(world.of(workload).deployment).deltas) == deltas
        for place in places:
            run = f"{workload} {place.point} ({place.nth})"
            tally.add(run, stopped(world, workload, place, from_the_task=tally.runs % 2 == 1))
    tally.close()


def manifest_of(deployment: Deployment) -> CheckpointManifest:
    """Return the manifest of the head."""
    catalog = deployment.catalog()
    head = catalog.head(NAME).head
    assert head is not None
    manifest = deployment.open(catalog.get(NAME, head)).manifest
    assert manifest is not None
    return manifest


def stopped(world: Worlds, workload: str, place: Place, *, from_the_task: bool) -> list[tuple[str, str]]:
    deployment = world.of(workload).again()
    with pytest.raises(Crash), ends_at(place, crash):
        WORKLOADS[workload](deployment)
    open_still = [*leaks(world.root), *unfinished(deployment)]
    violations = [("G2", f"{left} outlives the exception") for left in map(str, open_still)]
    try:
        recover(deployment, workload, from_the_task=from_the_task)
    except (StatelibError, AssertionError) as error:
        return [*violations, ("G1", f"the recovery ended with {error}")]
    return violations + problems(deployment, LAST)
