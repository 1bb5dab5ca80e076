"""Coordinators that are stopped anywhere, replaced by another, and continue later: real processes, SIGSTOP and
SIGCONT. A superseded coordinator commits nothing and deletes nothing of the others'."""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from statelib.catalog import engine
from statelib.errors import RetryableError
from statelib.flows.checkpoint.steps import abort
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState
from statelib.savepoints.verification.snapshots import verify_at
from tests.faults.coordinators import LOCKED_MS
from tests.faults.endured_flow import TOURS, FaultyDeployment, expected
from tests.support.extent import rounds
from tests.support.figures import record
from tests.support.postgresql_server import DATABASE_USER, NoServer, postgresql_server
from tests.support.worlds import CHECKOUT

NAME = PipelineName("tours")
ROUNDS = rounds(6, 115)
SEED = 20260611
WAYS = [("sqlite", "heap", "canonical"), ("postgresql", "rocksdb", "incremental")]


@dataclass
class Coordinators:
    """The process of :mod:`coordinators`, whose children are the coordinators."""

    process: subprocess.Popen[str]

    def ask(self, **what: Any) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(self, *acts: str, stop_at: int = 0) -> int:
        pid: int = self.ask(start=acts, stop_at=stop_at)
        return pid

    def wait(self, pid: int) -> dict[str, Any]:
        return dict(self.ask(wait=pid))

    def done(self, *acts: str) -> dict[str, Any]:
        return self.wait(self.start(*acts))


@pytest.fixture
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    database, backend, strategy = request.param
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "tours.yaml").write_text(TOURS.format(backend=backend, strategy=strategy, local="false"))
    made = FaultyDeployment.at(tmp_path)
    with ExitStack() as stack:
        if database == "postgresql":
            try:
                socket = stack.enter_context(postgresql_server())
            except NoServer as reason:
                pytest.skip(str(reason))
            made = replace(made, catalog_url=f"postgresql+psycopg://{DATABASE_USER}@/postgres?host={socket}")
        yield made


@pytest.fixture
def coordinators(deployment: Deployment, tmp_path: Path) -> Iterator[Coordinators]:
    command = [sys.executable, "-m", "tests.faults.coordinators", deployment.catalog_url, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield Coordinators(process)
        assert process.stdin
        process.stdin.close()
        assert process.wait(60) == 0


@pytest.mark.parametrize("deployment", WAYS, indirect=True, ids=[way[0] for way in WAYS])
def test_a_stopped_coordinator_that_was_replaced_changes_nothing_later(
    deployment: Deployment, coordinators: Coordinators
) -> None:
    """In every round it stops at another call of another act, which the seed selects."""
    chance = random.Random(SEED)
    seen: Counter[str] = Counter()
    calls = {"clean": 0, "run": 0}
    days = 0
    for number in range(ROUNDS):
        role = "clean" if number % 3 == 2 else "run"
        own = "clean" if role == "clean" else str(days + 1)
        if not calls[role]:
            ended = coordinators.done(own)
            calls[role] = ended["calls"]
            days += role == "run"
            continue
        at = chance.randrange(1, calls[role])
        print(f"seed {SEED}, round {number}: {own} stops at call {at} of about {calls[role]}")
        pid = coordinators.start(own, stop_at=at)
        if not coordinators.wait(pid).get("stopped"):
            seen["ended before"] += 1
            days = _days(deployment)
            continue
        others = taken_over(coordinators, days)
        before, files = _records(deployment), _files(deployment)
        os.kill(pid, signal.SIGCONT)
        ended = coordinators.wait(pid)
        assert "acts" in ended, ended
        seen["taken over" if others else "locked"] += 1
        print(f"then {ended['acts'][0]}")
        if others:
            _changed_nothing(deployment, before, files, role)
        days = _days(deployment)
        _whole(deployment)
    print(dict(seen))
    assert seen["taken over"] > 0, seen
    opened = resolve(deployment, f"tours/{deployment.catalog().head(NAME).head}")
    rows = opened.to_arrow("best", scratch=deployment.work_directory).to_pylist()
    assert {row["key"]: row["value"] for row in rows} == expected(days)
    record("G5", "real coordinators stopped, taken over from and resumed", seen["taken over"])


@pytest.mark.parametrize("deployment", WAYS[:1], indirect=True, ids=["sqlite"])
def test_a_run_that_is_aborted_while_it_is_alive_commits_nothing(
    deployment: Deployment, coordinators: Coordinators, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person marks the run failed in Airflow, whose ``abort`` runs, while the process of the run continues."""
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_MS", LOCKED_MS)
    chance, seen = random.Random(SEED), Counter[str]()
    calls = coordinators.done("1")["calls"]
    for day in range(2, 2 + ROUNDS):
        at = chance.randrange(calls // 4, calls)
        print(f"seed {SEED}: day {day} stops at call {at} of about {calls}")
        pid = coordinators.start(str(day), stop_at=at)
        given_up = []
        if coordinators.wait(pid).get("stopped"):
            given_up = _give_up(deployment)
            os.kill(pid, signal.SIGCONT)
            ended = coordinators.wait(pid)
            assert not given_up or ended["acts"][0].startswith(("ConflictError", "NotFoundError")), ended
        seen["given up" if given_up else "too late"] += 1
        states = {number: _records(deployment)[number].state for number in given_up}
        assert set(states.values()) <= {CheckpointState.ABORTED}
        assert coordinators.done(str(day), "clean")["acts"][1] == "cleaned"
        assert _days(deployment) == day
        _whole(deployment)
    print(dict(seen))
    assert seen["given up"] > 0, seen
    record("G6", "runs given up while they lived", seen["given up"])


def _give_up(deployment: Deployment) -> list[int]:
    """Abort the pending checkpoints and return their ids. Return none if the stopped process has locked the catalog."""
    pending = [r.checkpoint_id for r in deployment.catalog().list(NAME, {CheckpointState.PENDING})]
    try:
        for number in pending:
            abort(deployment, NAME, number, "marked failed")
    except RetryableError:
        return []
    return [int(number) for number in pending]


def taken_over(coordinators: Coordinators, days: int) -> bool:
    """Return whether another coordinator took the next day, the day after and cleaned up meanwhile. It repeats what
    may be repeated, as Airflow does. On SQLite it cannot while the stopped one is in a transaction; PostgreSQL ends
    that after a while."""
    for _ in range(20):
        ended = coordinators.done(str(days + 1), str(days + 2), "clean")
        assert "acts" in ended, ended
        if "RetryableError" not in str(ended["acts"]):
            assert [what.split(" ")[0] for what in ended["acts"]] == ["checkpoint", "checkpoint", "cleaned"], ended
            return True
        if "sqlite" in str(coordinators.process.args):
            return False
    raise AssertionError("nobody could take over")


def _records(deployment: Deployment) -> dict[int, CheckpointRecord]:
    return {r.checkpoint_id: r for r in deployment.catalog().list(NAME)}


def _days(deployment: Deployment) -> int:
    """Assert that every day has exactly one completed checkpoint."""
    done = [r.interval for r in _records(deployment).values() if r.completed_at_ms is not None]
    assert len(set(done)) == len(done)
    return len(done)


def _files(deployment: Deployment) -> set[str]:
    return {str(path) for path in Path(deployment.storage_root).rglob("*") if path.is_file()}


def _changed_nothing(deployment: Deployment, before: dict[int, CheckpointRecord], files: set[str], role: str) -> None:
    """Assert what holds since the others were done: no checkpoint has another state, except that a gc that had begun
    may have ended; and no file was removed except a superseded attempt's own."""
    after = _records(deployment)
    changed = {n for n in before if after[n] != before[n]}
    if role == "clean":
        changed -= {n for n in changed if before[n].state is CheckpointState.DELETING}
    assert changed == set()
    assert [r for n, r in after.items() if n not in before and r.state is CheckpointState.COMPLETED] == []
    won = {str(r.attempt)[:24] for r in before.values() if r.state is CheckpointState.COMPLETED}
    gone = files - _files(deployment)
    assert [file for file in gone if any(attempt in file for attempt in won)] == []
    assert role == "clean" or [file for file in gone if file.endswith("/_metadata")] == []


def _whole(deployment: Deployment) -> None:
    for each in _records(deployment).values():
        if each.state is CheckpointState.COMPLETED:
            assert verify_at(each.directory, own=True, storage_root=deployment.storage_root).problems == ()
