"""Coordinators of the pipeline tours as processes that stop in the middle: ``python -m coordinators CATALOG ROOT``.

Reads a JSON line, does it, and answers with one:

- ``{"start": [ACT, ...], "stop_at": N}``: the pid of a new process that does the acts and stops itself (SIGSTOP) at
  its N-th call of a function of statelib, in whichever thread; 0 is never.
- ``{"wait": PID}``: what became of it, once it has stopped or ended; the outcome of each act, and how many calls.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from statelib.catalog import engine
from statelib.errors import StatelibError
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.cleanup.retention import retire
from statelib.flows.wiring import Deployment
from tests.faults.endured_flow import FaultyDeployment, attempt

LOCKED_MS, IDLE_MS = 200, 400
"""The times for which others wait for a stopped process's transaction, and after which PostgreSQL ends it; both are
scaled down."""


class Calls:
    """A counter of calls of statelib's functions, which stops the process at one of them."""

    def __init__(self, stop_at: int) -> None:
        self.seen = 0
        self._stop_at = stop_at

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and "/statelib/" in frame.f_code.co_filename:
            self.seen += 1
            if self.seen == self._stop_at:
                os.kill(os.getpid(), signal.SIGSTOP)


def act(deployment: Deployment, what: str) -> str:
    """Carry out ``clean`` or the run of a day, given by its number, and return the id of its checkpoint, or the
    error."""
    try:
        if what != "clean":
            return f"checkpoint {attempt(deployment, int(what))}"
        retire(deployment)
        collect_garbage(deployment)
        orphans(deployment, dry_run=False, force=True, grace_ms=0)
    except StatelibError as error:
        return f"{type(error).__name__} {error.kind}: {error.message}"
    return "cleaned"


def start(deployment: Deployment, outcomes: Path, acts: list[str], stop_at: int) -> int:
    if pid := os.fork():
        return pid
    status = 1
    try:
        calls = Calls(stop_at)
        threading.setprofile(calls)
        sys.setprofile(calls)
        answers = [act(deployment, what) for what in acts]
        sys.setprofile(None)
        (outcomes / str(os.getpid())).write_text(json.dumps({"acts": answers, "calls": calls.seen}))
        status = 0
    finally:
        sys.stderr.flush()
        os._exit(status)


def wait(outcomes: Path, pid: int) -> dict[str, Any]:
    _, status = os.waitpid(pid, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        return {"stopped": True}
    if status != 0:
        return {"failed": status}
    return json.loads((outcomes / str(pid)).read_text())


def main(catalog_url: str, root: str) -> None:
    engine.BUSY_TIMEOUT_MS, engine.IDLE_TIMEOUT_MS = LOCKED_MS, IDLE_MS
    plain = vars(FaultyDeployment.at(Path(root)))
    deployment = FaultyDeployment(**{**plain, "catalog_url": catalog_url})
    outcomes = Path(root, "outcomes")
    outcomes.mkdir(exist_ok=True)
    deployment.catalog()
    for line in sys.stdin:
        asked = json.loads(line)
        if "wait" in asked:
            print(json.dumps(wait(outcomes, asked["wait"])), flush=True)
        else:
            print(json.dumps(start(deployment, outcomes, asked["start"], asked["stop_at"])), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
