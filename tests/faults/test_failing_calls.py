"""An error at the k-th call, for every k: a typed error or success; nothing lost, nothing left, nothing twice."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from statelib.catalog.catalog import Catalog
from statelib.errors import RetryableError, StatelibError
from statelib.storage import registry
from statelib.storage.retries import wait_never
from tests.faults.crash_kit import Tally, Worlds, worlds
from tests.faults.crash_workloads import LAST, WORKLOADS, recover
from tests.faults.crash_world import NAME, leaks, problems, unfinished
from tests.faults.failing_calls import KINDS, failing
from tests.support.extent import large, rounds
from tests.support.s3_endpoint import S3Endpoint

SEED = 20130103
CHOSEN = ("interval", "savepoint", "claim", "gc")
LARGE = large("make test has the local storage, and test_s3_fault_scripts")


@pytest.fixture
def no_waiting() -> Iterator[None]:
    """Make the pauses between retries take no time."""
    before = registry.RETRIES.sleep
    object.__setattr__(registry.RETRIES, "sleep", wait_never)
    yield
    object.__setattr__(registry.RETRIES, "sleep", before)


@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("storage", ["local", pytest.param("s3", marks=LARGE)])
def test_an_error_at_any_call_loses_nothing_and_leaves_nothing(
    tmp_path: Path, storage: str, running_s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "w").mkdir()
    with worlds(tmp_path / "w", storage, "sqlite", running_s3, monkeypatch) as world:
        tally = Tally(f"an error at the k-th call, then recovered ({storage})")
        for workload in CHOSEN:
            for at, kind in numbers(world, workload):
                tally.add(f"{workload} call {at}, {kind}", failed(world, workload, at, kind))
        tally.close()


READS: dict[str, Callable[[Catalog], object]] = {
    "doomed": lambda catalog: catalog.cleanup.doomed(NAME),
    "records": lambda catalog: catalog.cleanup.records(NAME),
    "referenced": lambda catalog: catalog.cleanup.referenced(NAME),
    "list": lambda catalog: catalog.list(NAME),
    "pipelines": lambda catalog: catalog.pipelines(),
}


@pytest.mark.parametrize("read", READS)
def test_a_failed_query_does_not_keep_the_catalog_locked(tmp_path: Path, read: str) -> None:
    """A query that was not read to the end would hold SQLite's lock as long as the error object exists."""
    (tmp_path / "w").mkdir()
    world = Worlds(tmp_path / "w")
    catalog = world.of("gc").again().catalog()
    with failing(None, "") as calls:
        READS[read](catalog)
    for at in [at for at, call in enumerate(calls) if call == "database.do_execute"]:
        with pytest.raises(RetryableError) as value, failing(at, "EIO"):
            READS[read](catalog)
        assert leaks(world.root) == [], (at, value.value)


def numbers(world: Worlds, workload: str) -> list[tuple[int, str]]:
    """Return every call with one kind of error each, so that successive calls have different ones; usually only some
    calls."""
    deployment = world.of(workload).again()
    with failing(None, "") as calls:
        WORKLOADS[workload](deployment)
    every = [(at, KINDS[(at + SEED) % len(KINDS)]) for at in range(len(calls))]
    most = rounds(2, 25)
    return sorted(random.Random(SEED).sample(every, min(most, len(every))))


def failed(world: Worlds, workload: str, at: int, kind: str) -> list[tuple[str, str]]:
    deployment = world.of(workload).again()
    wrong = []
    try:
        with failing(at, kind) as calls:
            WORKLOADS[workload](deployment)
    except StatelibError:
        pass  # The error is typed, as promised.
    except OSError as error:
        wrong.append(("T6", f"{calls[at]} raises {error!r}, which has no type"))
    wrong += [("G2", f"{left} outlives the error") for left in map(str, [*leaks(world.root), *unfinished(deployment)])]
    try:
        recover(deployment, workload)
    except (StatelibError, OSError, AssertionError) as error:
        return [*wrong, ("G1", f"the recovery ended with {error!r}")]
    return wrong + problems(deployment, LAST)
