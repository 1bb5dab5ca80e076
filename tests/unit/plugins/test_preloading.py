"""The modules that Airflow's scheduler imports once for all tasks that it forks."""

import json
import subprocess
import sys

import pytest
from statelib_airflow import preloading

pytestmark = pytest.mark.slow

IMPORTED_LATER = """
import json, sys
sys.argv = ["airflow", sys.argv[1]]
from statelib_airflow.preloading import preload
preload()
before = set(sys.modules)
from statelib_airflow import cleanup_dags, pipeline_dags
assert pipeline_dags(sys.stdin.read()) and cleanup_dags()
from statelib_airflow.operators import CheckpointOperator
from statelib.flows.checkpoint.steps import begin
print(json.dumps(sorted(name for name in set(sys.modules) - before if name.startswith(("statelib", "pyarrow")))))
"""


def imported_later(command: str) -> list[str]:
    """Return the modules that a task must import although its parent process preloaded as ``airflow <command>``."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED_LATER, command],
        input="dags/pipelines", capture_output=True, text=True, check=True,
    )  # fmt: skip
    return list(json.loads(done.stdout.splitlines()[-1]))


def test_a_forked_task_finds_all_modules_of_its_dag_and_its_step() -> None:
    assert imported_later("scheduler") == []


def test_airflow_starts_although_a_module_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "argv", ["airflow", "scheduler"])
    monkeypatch.setattr(preloading, "_MODULES", ("no_such_module", "statelib.errors"))
    preloading.preload()
    assert caplog.messages == ["no_such_module is not preloaded: No module named 'no_such_module'"]


def test_processes_that_do_not_fork_import_nothing() -> None:
    later = imported_later("api-server")
    assert {"statelib_airflow.dags.dag_factory", "statelib.flows.checkpoint.steps", "pyarrow"} <= set(later)
