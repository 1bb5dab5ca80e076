"""The servers of a cluster on loopback, and the settings with which the same pipelines run on it: PostgreSQL for the
catalog and Airflow, S3 for checkpoints, and a standalone Spark. All start empty and are gone when the block ends."""

import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import psutil

from demo.places import CHECKOUT, Places, Ports, environment
from demo.processes import unused_ports
from demo.spark_cluster import SparkCluster, spark_cluster
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from tests.support.fault_proxy import Fault
from tests.support.postgresql_server import Listen, postgresql_server
from tests.support.s3_endpoint import S3Endpoint, s3_endpoint

ENDPOINT = CHECKOUT / ".work" / "endpoint" / "bin" / "python"
"""A Python with an S3 server, which ``make setup`` installs."""
BUCKET = "statelib"
AIRFLOW_DATABASE, CATALOG_DATABASE = "airflow", "statelib"
PATIENCE_S = 600.0
T = TypeVar("T")


class TopologyError(RuntimeError):
    """An event did not happen in time. The message names it."""


def cluster_settings(database: Listen, s3: S3Endpoint, spark_port: int) -> dict[str, str]:
    """Return the variables in which a cluster differs from a laptop. ``docker/compose.yaml`` sets the same
    variables."""
    metadata = database.url(AIRFLOW_DATABASE)
    spark = {
        "conn_type": "spark",
        "host": "spark://127.0.0.1",
        "port": spark_port,
        "extra": {"deploy-mode": "client"},
    }
    return {
        "STATELIB_CATALOG": database.url(CATALOG_DATABASE),
        "STATELIB_STORAGE": f"s3://{BUCKET}/state",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": metadata,
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": metadata,
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(spark),
        **s3.environment,
    }


@dataclass(frozen=True)
class Topology:
    """The running servers, the places with the settings for them, and the secrets that must not leak."""

    places: Places
    spark: SparkCluster
    s3: S3Endpoint
    secrets: tuple[str, ...]

    @contextmanager
    def uploading(
        self, deployment: Deployment, pipeline: str, number: int, check: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[str, ...]]:
        """Hold the uploads of a checkpoint while the block runs, and yield the names of the files. The block begins
        once every subtask is uploading state, each on an executor of its own. Afterwards the uploads continue, also
        those of writers that have died meanwhile, which can happen in a real network. ``check`` raises when the
        checkpoint can no longer begin or go on. Raises TopologyError."""
        name, checkpoint = PipelineName(pipeline), CheckpointId(number)
        catalog = deployment.catalog()
        record = _first(
            lambda: next((r for r in catalog.list(name) if r.checkpoint_id == checkpoint), None),
            f"{pipeline} has begun checkpoint {number}",
            check,
        )
        self.s3.break_next(Fault("hold", "PUT", f"/{pipeline}/chk-{number}/", 1 << 20))
        try:
            what = f"{pipeline}/{number}: all subtasks are uploading"
            yield _first(lambda: self._uploads(record.parallelism), what, check)
        finally:
            self.s3.break_next()

    def _uploads(self, subtasks: int) -> tuple[str, ...] | None:
        """Return the names of the held files once every subtask has one; None until then."""
        names = tuple(path.partition("?")[0].rpartition("/")[2] for path in self.s3.held())
        return names if {int(name.split("-")[1]) for name in names} == set(range(subtasks)) else None

    def leaks(self) -> list[str]:
        """Return the files in the work folder, and the command lines of running processes, that contain a secret."""
        files = [path for path in self.places.work.rglob("*") if path.is_file() and _holds(path, self.secrets)]
        lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
        return [str(path) for path in files] + [line[:200] for line in lines if any(s in line for s in self.secrets)]


@contextmanager
def topology(places: Places) -> Iterator[Topology]:
    """Start all servers, and stop them when the block ends. The yielded places have the settings. Raises NoServer,
    SparkClusterError."""
    (port,) = unused_ports(1)
    database = Listen(port, secrets.token_urlsafe(24), (AIRFLOW_DATABASE, CATALOG_DATABASE))
    places.make_directories()
    with postgresql_server(database), s3_endpoint(ENDPOINT) as s3:
        s3.make_bucket(BUCKET)
        workers = environment(replace(places, settings=s3.environment), Ports())
        with spark_cluster(places.work / "spark", workers) as spark:
            settings = cluster_settings(database, s3, spark.port)
            hidden = (database.password, s3.environment["AWS_SECRET_ACCESS_KEY"])
            yield Topology(replace(places, settings=settings), spark, s3, hidden)


def _first(find: Callable[[], T | None], what: str, check: Callable[[], None]) -> T:
    """Return the first result of ``find`` that is not None. ``check`` is called between two tries. Raises
    TopologyError, which names ``what``, when that takes too long."""
    deadline = time.monotonic() + PATIENCE_S
    while (result := find()) is None:
        check()
        if time.monotonic() > deadline:
            raise TopologyError(f"not within {PATIENCE_S:.0f} s: {what}")
        time.sleep(0.05)
    return result


def _holds(path: Path, hidden: tuple[str, ...]) -> bool:
    """Return whether the file contains a secret; False if it is gone."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:  # a scratch file that was deleted meanwhile
        return False
    return any(secret.encode() in data for secret in hidden)
