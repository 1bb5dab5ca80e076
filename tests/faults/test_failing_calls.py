"""An error at the k-th call, for every k: a typed error or success; nothing lost, nothing left, nothing twice."""

import gc
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_kit import Tally, Worlds, worlds
from crash_workloads import LAST, WORKLOADS, recover
from crash_world import leaks, problems, unfinished
from extent import rounds
from failing_calls import KINDS, failing

from statelib.errors import StatelibError
from statelib.flows import wiring
from statelib.flows.cleanup import collect_garbage
from statelib.storage.retries import wait_never
from statelib.testing.s3_endpoint import S3Endpoint

SEED = 20130103
CHOSEN = ("interval", "savepoint", "claim", "gc")


@pytest.fixture
def no_waiting() -> Iterator[None]:
    """The pauses between retries take no time."""
    before = wiring.RETRIES.sleep
    object.__setattr__(wiring.RETRIES, "sleep", wait_never)
    yield
    object.__setattr__(wiring.RETRIES, "sleep", before)


@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("storage", ["local", "s3"])
def test_an_error_at_every_call(
    tmp_path: Path, storage: str, running_s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "w").mkdir()
    with worlds(tmp_path / "w", storage, "sqlite", running_s3, monkeypatch) as world:
        tally = Tally(f"an error at the k-th call, then recovered ({storage})")
        for workload in CHOSEN:
            for at, kind in numbers(world, workload):
                tally.add(f"{workload} call {at}, {kind}", failed(world, workload, at, kind))
        tally.close()


@pytest.mark.usefixtures("no_waiting")
def test_a_query_that_fails_leaves_the_catalog_free(tmp_path: Path) -> None:
    """A query that nobody reads to the end holds SQLite's lock until it is collected, which may be long."""
    (tmp_path / "w").mkdir()
    world = Worlds(tmp_path / "w")
    with failing(None, "") as calls:
        collect_garbage(world.of("gc").again())
    queries = [at for at, call in enumerate(calls) if call == "database.do_execute"]
    gc.disable()
    try:
        for at in queries[:25]:
            here = world.of("gc").again()
            with pytest.raises(StatelibError), failing(at, "EIO"):
                collect_garbage(here)
            assert leaks(world.root) == [], at
    finally:
        gc.enable()


def numbers(world: Worlds, workload: str) -> list[tuple[int, str]]:
    """Every call with one kind of error each, so that neighbours have different ones; usually a few of them."""
    here = world.of(workload).again()
    with failing(None, "") as calls:
        WORKLOADS[workload](here)
    every = [(at, KINDS[(at + SEED) % len(KINDS)]) for at in range(len(calls))]
    most = rounds(2, 65)
    return sorted(random.Random(SEED).sample(every, min(most, len(every))))


def failed(world: Worlds, workload: str, at: int, kind: str) -> list[tuple[str, str]]:
    here = world.of(workload).again()
    found = []
    try:
        with failing(at, kind) as calls:
            WORKLOADS[workload](here)
    except StatelibError:
        pass  # typed, as promised
    except OSError as error:
        found.append(("T6", f"{calls[at]} raises {error!r}, which has no type"))
    found += [("G2", f"{left} outlives the error") for left in map(str, [*leaks(world.root), *unfinished(here)])]
    try:
        recover(here, workload)
    except (StatelibError, OSError, AssertionError) as error:
        return [*found, ("G1", f"the recovery ended with {error!r}")]
    return found + problems(here, LAST)
