"""Processes to be killed: forks of a server that has imported everything and done nothing, so that starting one
takes milliseconds. Their orders and their results are files."""

import json
import multiprocessing
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from statelib.flows.wiring import Deployment
from statelib.testing.crash_points import Place, ends_at, kill
from tests.faults.crash_workloads import LAST, WORKLOADS, recover
from tests.faults.crash_world import problems

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.faults.crash_child", "statelib.quality.validation", "psycopg", "obstore"])
PATIENCE_S = 300
Environment = Mapping[str, str]


def run(target: Callable[..., None], *arguments: Any) -> int:
    """Run an order in a child process and return its exit code."""
    process = FORKS.Process(target=target, args=arguments)
    process.start()
    process.join(PATIENCE_S)
    if process.is_alive():
        process.kill()
        raise AssertionError(f"{target.__name__} has not ended after {PATIENCE_S} s")
    assert process.exitcode is not None
    return process.exitcode


def work(deployment: Deployment, environment: Environment, workload: str, place: Place) -> None:
    os.environ |= environment
    with ends_at(place, kill):
        WORKLOADS[workload](deployment)


def recovering(
    deployment: Deployment, environment: Environment, workload: str, from_the_task: bool, place: Place
) -> None:
    os.environ |= environment
    with ends_at(place, kill):
        recover(deployment, workload, from_the_task=from_the_task)


def recovered(
    deployment: Deployment, environment: Environment, workload: str, from_the_task: bool, report: Path
) -> None:
    """Recover the world, and write the remaining problems to ``report``."""
    os.environ |= environment
    recover(deployment, workload, from_the_task=from_the_task)
    report.write_text(json.dumps(problems(deployment, LAST)))
