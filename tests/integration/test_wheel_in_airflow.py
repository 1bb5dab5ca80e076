"""The wheel in an Airflow that has folders of its own named plugins, jobs and dags: page, connection type, three DAGs.

The environment is new and links to the pinned packages of the tests' one, so that it takes seconds and no network.
"""

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demo.places import Places, Ports, environment
from tests.integration.installed_wheel import build, install

PIPELINE = """\
name: orders
schedule: {cron: "@daily", start: 2026-01-01}
source:
  format: parquet
  path: "{data}/{start:%Y-%m-%d}"
  columns: {customer: string, amount: long}
key: [customer]
states:
  total: {kind: value, fields: {orders: {agg: count}, amount: {agg: sum, of: amount}}}
backend: rocksdb
parallelism: 2
"""
DAG_FILE = """\
from statelib_airflow import pipeline_dags

globals().update(pipeline_dags("our_pipelines", owner="finance", statelib_conn_id="ours"))
"""
OWN_DAG = """\
import jobs
import plugins
from airflow.sdk import dag
from statelib_airflow.operators import CheckpointOperator


@dag(schedule=None)
def own_checkpoint():
    CheckpointOperator(task_id="checkpoint", pipeline="orders", doc=f"{plugins.OURS} {jobs.OURS}")


own_checkpoint()
"""
SCRIPT = """
import json, sys
from datetime import UTC, datetime
from airflow import plugins_manager
from airflow.dag_processing.dagbag import DagBag
from airflow.providers_manager import ProvidersManager
import statelib, statelib_airflow, statelib_jobs
plugins, errors = plugins_manager._get_plugins()
hook = ProvidersManager().hooks["statelib"]
bag = DagBag(sys.argv[1])
states = {}
RUNS = [("orders.checkpoint", {}), ("orders.savepoint", {"note": "before the release"}),
        ("orders.restore", {"checkpoint": "1"})]
for dag_id, conf in RUNS:
    run = bag.dags[dag_id].test(logical_date=datetime(2026, 1, 2, tzinfo=UTC), run_conf=conf)
    states[dag_id] = {"run": str(run.state), "tasks": {t.task_id: str(t.state) for t in run.get_task_instances()}}
json.dump({
    "files": [module.__file__ for module in (statelib, statelib_airflow, statelib_jobs)],
    "job": bag.dags["orders.checkpoint"].get_task("snapshot").application,
    "own": [t.doc for t in bag.dags["own_checkpoint"].tasks],
    "owner": bag.dags["orders.checkpoint"].owner,
    "plugins": [plugin.name for plugin in plugins], "plugin_errors": errors, "errors": bag.import_errors,
    "hook": [hook.connection_type, hook.hook_class_name, hook.package_name],
    "states": states,
}, open(sys.argv[2], "w"), default=str)
"""


class Home:
    """An Airflow of somebody else's: a home with folders of its own, and an environment with the wheel."""

    def __init__(self, root: Path) -> None:
        self.programs = install(build("wheel", root / "wheel"), root / "environment", ["all"])
        self.places = Places(work=root / "work", pipelines=root / "work" / "airflow" / "dags" / "our_pipelines")
        self.places.make_directories()
        self.places.pipelines.mkdir(parents=True)
        home = self.places.airflow
        for folder in ("plugins", "jobs"):
            (home / folder).mkdir()
            (home / folder / "__init__.py").write_text(f"OURS = {folder!r}\n")
        (self.places.pipelines / "orders.yaml").write_text(PIPELINE)
        self.dags = home / "dags"
        (self.dags / "ours.py").write_text(DAG_FILE)
        (self.dags / "own.py").write_text(OWN_DAG)
        python = str(self.programs / "python")
        self.environment = {
            **environment(self.places, Ports()),
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(home),
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW_CONN_OURS": json.dumps(
                {"conn_type": "statelib", "extra": {"catalog": f"sqlite:///{self.places.catalog}"}}
            ),
        }

    def run(self, *command: str) -> str:
        """What a program of the environment prints."""
        program, *arguments = command
        done = subprocess.run(
            [str(self.programs / program), *arguments],
            env=self.environment, cwd=self.places.airflow, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
        return done.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    home = Home(tmp_path_factory.mktemp("theirs"))
    for day in (1, 2):
        start = datetime(2026, 1, day, tzinfo=UTC)
        orders = [{"customer": f"customer-{n % 7}", "amount": n, "at": start + timedelta(hours=n)} for n in range(20)]
        (home.places.data / f"{start:%Y-%m-%d}").mkdir()
        pq.write_table(pa.Table.from_pylist(orders), home.places.data / f"{start:%Y-%m-%d}" / "part-0.parquet")
    home.run("airflow", "db", "migrate")
    home.run("statelib", "catalog", "migrate")
    return home


@pytest.fixture(scope="module")
def answer(home: Home, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What that Airflow lists, and how the three runs ended."""
    written = tmp_path_factory.mktemp("answer") / "answer.json"
    catalog = home.environment.pop("STATELIB_CATALOG")  # the tasks have it from the connection
    try:
        home.run("python", "-c", SCRIPT, str(home.dags), str(written))
    finally:
        home.environment["STATELIB_CATALOG"] = catalog
    return dict(json.loads(written.read_text()))


def test_nothing_but_the_wheel_is_imported_and_the_teams_folders_stay_their_own(
    home: Home, answer: dict[str, Any]
) -> None:
    site = str(home.programs.parent / "lib")
    assert [file for file in (*answer["files"], answer["job"]) if not file.startswith(site)] == []
    assert answer["own"] == ["plugins jobs"]
    assert (answer["errors"], answer["plugin_errors"]) == ({}, {})


def test_the_page_and_the_connection_type_are_listed(answer: dict[str, Any]) -> None:
    assert "statelib" in answer["plugins"]
    assert answer["hook"] == ["statelib", "statelib_airflow.hooks.StatelibHook", "statelib"]


def test_a_dag_file_of_three_lines_checkpoints_saves_and_restores(home: Home, answer: dict[str, Any]) -> None:
    assert {dag_id: state["run"] for dag_id, state in answer["states"].items()} == dict.fromkeys(
        ("orders.checkpoint", "orders.savepoint", "orders.restore"), "success"
    ), answer["states"]
    assert answer["states"]["orders.restore"]["tasks"]["switch"] == "success"
    assert answer["owner"] == "finance"
    listed = json.loads(home.run("statelib", "checkpoints", "list", "-p", "orders", "--json"))
    kinds = {row["checkpoint_id"]: (row["kind"], row["state"]) for row in listed}
    assert kinds == {1: ("CHECKPOINT", "COMPLETED"), 2: ("SAVEPOINT", "COMPLETED")}
    exported = home.run("statelib", "export", "orders/1", "--state", "total")
    assert len(exported.splitlines()) == 7
