"""The directories of the demonstration, all below ``.work``, and the environment of its processes."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from demo import spark_start

CHECKOUT = Path(__file__).resolve().parent.parent
FOREIGN = ("AIRFLOW", "AWS_", "SPARK_", "PYSPARK_", "STATELIB_", "PYTHON")
"""Prefixes of variables that are not passed on, so that no other installation leaks into this one."""


@dataclass(frozen=True)
class Places:
    """Directories of one deployment on this machine. Tests set ``pipelines`` to another directory. ``settings`` are the
    variables, and the only thing, in which a cluster differs from a laptop."""

    work: Path = CHECKOUT / ".work"
    checkout: Path = CHECKOUT
    pipelines: Path = CHECKOUT / "dags" / "pipelines"
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def airflow(self) -> Path:
        return self.work / "airflow"

    @property
    def data(self) -> Path:
        return self.work / "data"

    @property
    def state(self) -> Path:
        return self.work / "state"

    @property
    def catalog(self) -> Path:
        return self.work / "catalog.db"

    @property
    def docs(self) -> Path:
        return self.work / "docs"

    @property
    def scratch(self) -> Path:
        return self.work / "scratch"

    def make_directories(self) -> None:
        for directory in (self.airflow, self.data, self.state, self.docs, self.scratch):
            directory.mkdir(parents=True, exist_ok=True)


@dataclass(frozen=True)
class Ports:
    """TCP ports on 127.0.0.1 of the API server and of Airflow's two log servers."""

    api: int = 8080
    worker_logs: int = 8793
    trigger_logs: int = 8794


def environment(places: Places, ports: Ports, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of Airflow, Spark and statelib: ``base`` without the variables of other installations, and
    the variables of this one."""
    inherited = {name: value for name, value in base.items() if not name.startswith(FOREIGN)}
    binaries = str(Path(sys.executable).parent)
    return {
        **inherited,
        "PATH": f"{binaries}{os.pathsep}{inherited.get('PATH', os.defpath)}",
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(places.scratch),
        **statelib_settings(places),
        **_spark(places),
        **_airflow(places, ports),
        **places.settings,
    }


def statelib_settings(places: Places) -> dict[str, str]:
    """Return the variables from which ``statelib.flows.wiring.deployment`` makes the deployment of a work folder."""
    return {
        "STATELIB_CATALOG": f"sqlite:///{places.catalog}",
        "STATELIB_STORAGE": str(places.state),
        "STATELIB_PIPELINES": str(places.pipelines),
        "STATELIB_DATA": str(places.data),
        "STATELIB_DOCS": str(places.docs),
        "STATELIB_WORK": str(places.scratch),
        "GX_ANALYTICS_ENABLED": "false",
    }


def _spark(places: Places) -> dict[str, str]:
    """Return the variables that Spark reads."""
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(places.scratch),
        **spark_start.variables(places.scratch, places.settings),
    }


def _airflow(places: Places, ports: Ports) -> dict[str, str]:
    """Return the variables that Airflow reads."""
    url = f"http://127.0.0.1:{ports.api}"
    settings = {
        "CORE__DAGS_FOLDER": str(places.checkout / "dags"),
        "CORE__LOAD_EXAMPLES": "False",
        "CORE__EXECUTOR": "LocalExecutor",
        "CORE__PARALLELISM": "2",
        "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        # SQLite's default timeout for a lock: the API server sometimes waits for a lock of its own, and answers nothing
        # while it waits, so that a longer timeout only prolongs that.
        "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{places.airflow / 'airflow.db'}",
        "API__HOST": "127.0.0.1",
        "API__PORT": str(ports.api),
        "API__BASE_URL": url,
        "API__WORKERS": "1",
        "LOGGING__BASE_LOG_FOLDER": str(places.airflow / "logs"),
        "LOGGING__WORKER_LOG_SERVER_PORT": str(ports.worker_logs),
        "LOGGING__TRIGGER_LOG_SERVER_PORT": str(ports.trigger_logs),
        "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.3",
        "DAG_PROCESSOR__PARSING_PROCESSES": "1",
        "DAG_PROCESSOR__REFRESH_INTERVAL": "60",
        "LOGGING__NAMESPACE_LEVELS": "great_expectations=WARNING alembic=WARNING",
        "USAGE_DATA_COLLECTION__ENABLED": "False",
    }
    spark = {"conn_type": "spark", "host": "local[2]", "extra": {"deploy-mode": "client"}}
    return {
        "AIRFLOW_HOME": str(places.airflow),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(spark),
        **{f"AIRFLOW__{name}": value for name, value in settings.items()},
    }
