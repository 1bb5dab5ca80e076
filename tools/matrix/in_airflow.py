"""Run by the Python of an environment with Airflow and the wheel, nothing else: load the DAGs, run three of them.

Arguments: the DAG folder, and the file to write the results to as JSON.
"""

import importlib
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import statelib_airflow
import statelib_jobs
from airflow import plugins_manager
from airflow.providers_manager import ProvidersManager

import statelib

RUNS: tuple[tuple[str, dict[str, str]], ...] = (
    ("orders.checkpoint", {}),
    ("orders.savepoint", {"note": "before the release"}),
    ("orders.restore", {"checkpoint": "1"}),
)


def dag_bag(folder: str) -> Any:
    """Return the DAGs of a folder. Airflow 3.1 has the class elsewhere."""
    try:
        module = importlib.import_module("airflow.dag_processing.dagbag")
    except ModuleNotFoundError:
        module = importlib.import_module("airflow.models.dagbag")
    return module.DagBag(folder)


def plugins() -> tuple[list[Any], dict[str, str]]:
    """Return Airflow's plugins, and the errors of those that do not load. Airflow 3.1 keeps them in variables."""
    manager: Any = plugins_manager
    if hasattr(manager, "_get_plugins"):
        result, errors = manager._get_plugins()
        return list(result), dict(errors)
    manager.ensure_plugins_loaded()
    return list(manager.plugins), dict(manager.import_errors)


def main(folder: str, results: str) -> None:
    """Write what this Airflow lists, and how the runs ended."""
    bag = dag_bag(folder)
    result, plugin_errors = plugins()
    manager: Any = ProvidersManager
    hook = manager().hooks["statelib"]
    seen: dict[str, Any] = {
        "files": [module.__file__ for module in (statelib, statelib_airflow, statelib_jobs)],
        "errors": bag.import_errors,
        "plugins": [plugin.name for plugin in result],
        "plugin_errors": plugin_errors,
        "hook": [hook.connection_type, hook.hook_class_name, hook.package_name],
        "states": {},
        "tries": {},
    }
    Path(results).write_text(json.dumps(seen, default=str))
    seen["job"] = bag.dags["orders.checkpoint"].get_task("snapshot").application
    seen["own"] = [task.doc for task in bag.dags["own_checkpoint"].tasks]
    seen["owner"] = bag.dags["orders.checkpoint"].owner
    for dag_id, conf in RUNS:
        run = bag.dags[dag_id].test(logical_date=datetime(2026, 1, 2, tzinfo=UTC), run_conf=conf)
        tasks = run.get_task_instances()
        seen["states"][dag_id] = {"run": str(run.state), "tasks": {task.task_id: str(task.state) for task in tasks}}
        seen["tries"][dag_id] = {task.task_id: task.try_number for task in tasks}
    Path(results).write_text(json.dumps(seen, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
