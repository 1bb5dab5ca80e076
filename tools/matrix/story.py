"""The story of every cell of the matrix: an Airflow that has folders of its own named plugins, jobs and dags gets the
wheel, lists its page and connection type, and runs a checkpoint with a retry, a savepoint and a restore.
"""

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from demo.places import Places, Ports, environment
from demo.spark_start import CONF

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
retries: {count: 1, delay_s: 0}
"""
OTHER_PIPELINE = PIPELINE.replace("orders", "returns") + "alerts: {deadline: 2h}\n"
"""Its DAGs are loaded and serialized only: in Airflow 3.1 a DAG with a deadline cannot be run without a scheduler."""
DAG_FILE = """\
import os
from pathlib import Path

from statelib_airflow import pipeline_dags


def mend(context):
    for damaged in Path(os.environ["STATELIB_DATA"]).glob("*/*.damaged"):
        damaged.replace(damaged.with_suffix(".parquet"))


globals().update(
    pipeline_dags("our_pipelines", owner="finance", statelib_conn_id="ours", default_args={"on_retry_callback": mend})
)
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
USER, PASSWORD = "vera", "of this story only"
IN_AIRFLOW = str(Path(__file__).with_name("in_airflow.py"))
IN_PAGE = str(Path(__file__).with_name("in_page.py"))
CUSTOMERS = 7
EXPECTED = {
    "errors of DAG files": {},
    "errors of plugins": {},
    "the page is listed": True,
    "connection type": ["statelib", "statelib_airflow.hooks.StatelibHook", "statelib"],
    "runs": dict.fromkeys(("orders.checkpoint", "orders.savepoint", "orders.restore"), "success"),
    "tries of the snapshot": 2,
    "checkpoints": {1: ("CHECKPOINT", "COMPLETED"), 2: ("SAVEPOINT", "COMPLETED")},
    "keys": CUSTOMERS,
    "the page": {"status for a stranger": 401, "checkpoints in it": 2, "its HTML": True},
}
"""What a cell has to show; :func:`outcome` returns it."""


class StoryError(Exception):
    """A program of the cell failed: the message has the end of its output."""


class Home:
    """An Airflow of somebody else's: a home with folders of its own, over the environment whose programs are given."""

    def __init__(self, root: Path, programs: Path, catalog: str | None = None) -> None:
        self.programs = programs
        self.places = Places(
            work=root / "work",
            pipelines=root / "work" / "airflow" / "dags" / "our_pipelines",
            settings={"SPARK_CONF_DIR": str(CONF)},
        )
        self.places.make_directories()
        self.places.pipelines.mkdir(parents=True)
        self.catalog = catalog or f"sqlite:///{self.places.catalog}"
        self.dags = self.places.airflow / "dags"
        self._write_files()
        python = str(programs / "python")
        self.environment = {
            **environment(self.places, Ports()),
            "STATELIB_CATALOG": self.catalog,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(self.places.airflow),
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
            "AIRFLOW__API_AUTH__JWT_SECRET": "signs tokens that never leave the process of this story",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:viewer",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.places.airflow / "passwords.json"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW_CONN_OURS": json.dumps({"conn_type": "statelib", "extra": {"catalog": self.catalog}}),
        }

    def _write_files(self) -> None:
        (self.places.airflow / "passwords.json").write_text(json.dumps({USER: PASSWORD}))
        for folder in ("plugins", "jobs"):
            (self.places.airflow / folder).mkdir()
            (self.places.airflow / folder / "__init__.py").write_text(f"OURS = {folder!r}\n")
        (self.places.pipelines / "orders.yaml").write_text(PIPELINE)
        (self.places.pipelines / "returns.yaml").write_text(OTHER_PIPELINE)
        (self.dags / "ours.py").write_text(DAG_FILE)
        (self.dags / "own.py").write_text(OWN_DAG)
        for day in (1, 2):
            start = datetime(2026, 1, day, tzinfo=UTC)
            hours = [start + timedelta(hours=hour) for hour in range(20)]
            orders = [{"customer": f"customer-{n % CUSTOMERS}", "amount": n, "at": at} for n, at in enumerate(hours)]
            (self.places.data / f"{start:%Y-%m-%d}").mkdir()
            pq.write_table(pa.Table.from_pylist(orders), self.places.data / f"{start:%Y-%m-%d}" / "part-0.parquet")

    def damage(self) -> None:
        """Put a file that is no Parquet in the place of each file of events; the DAG file mends that before a retry."""
        for file in self.places.data.glob("*/*.parquet"):
            file.rename(file.with_suffix(".damaged"))
            file.write_text("not Parquet, and long enough to hold a footer of Parquet\n")

    def run(self, *command: str, without: str = "") -> str:
        """Run a program of the environment and return what it prints. ``without``: a variable that it does not get."""
        program, *arguments = command
        done = subprocess.run(  # noqa: S603
            [str(self.programs / program), *arguments],
            env={name: value for name, value in self.environment.items() if name != without},
            cwd=self.places.airflow, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise StoryError(f"{' '.join(command)}: {(done.stdout + done.stderr)[-6000:]}")
        return done.stdout

    def live(self) -> dict[str, Any]:
        """Live through the story, and return what Airflow and the command line then show."""
        self.run("airflow", "db", "migrate")
        self.run("statelib", "catalog", "migrate")
        self.run("airflow", "dags", "reserialize")
        self.damage()
        results = self.places.work / "results.json"
        # The tasks have the catalog from the connection.
        self.run("python", IN_AIRFLOW, str(self.dags), str(results), without="STATELIB_CATALOG")
        shown: dict[str, Any] = json.loads(results.read_text())
        self.run("python", IN_PAGE, str(results), USER, PASSWORD)
        shown["page"] = json.loads(results.read_text())
        shown["checkpoints"] = json.loads(self.run("statelib", "checkpoints", "list", "-p", "orders", "--json"))
        shown["exported"] = self.run("statelib", "export", "orders/1", "--state", "total").splitlines()
        return shown


def outcome(shown: dict[str, Any]) -> dict[str, Any]:
    """Return what :data:`EXPECTED` speaks of, as a cell has shown it."""
    return {
        "errors of DAG files": shown["errors"],
        "errors of plugins": shown["plugin_errors"],
        "the page is listed": "statelib" in shown["plugins"],
        "connection type": shown["hook"],
        "runs": {dag_id: state["run"] for dag_id, state in shown["states"].items()},
        "tries of the snapshot": shown["tries"]["orders.checkpoint"]["snapshot"],
        "checkpoints": {row["checkpoint_id"]: (row["kind"], row["state"]) for row in shown["checkpoints"]},
        "keys": len(shown["exported"]),
        "the page": shown["page"],
    }
