"""A retry and the driver of the try before, with the provider's real operators in deploy mode cluster: which driver
a try waits for, and the effect of a driver whose try has ended. Submission and status are those of Spark's master
for the provider: a spark-submit that hands its arguments on, and the master's REST interface."""

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from statelib.errors import ConflictError
from statelib.flows.checkpoint.snapshot_plan import plan_snapshot
from statelib.flows.checkpoint.steps import register
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.savepoints.verification.snapshots import verify
from tests.integration.garbage import stored
from tests.integration.shop import environment, open_shop, sales
from tests.support.dag_runs import dag_run
from tests.support.worlds import publish_here, publish_planned

DAY_2 = datetime(2013, 1, 3, tzinfo=UTC)
SUBMIT = """\
#!{python}
import json, sys, urllib.request
url = "http://127.0.0.1:{port}/v1/submissions/create"
print(urllib.request.urlopen(url, json.dumps(sys.argv[1:]).encode()).read().decode())
"""


class WorkerDied(BaseException):
    """An error that ends a try without any cleanup."""


@dataclass
class Master:
    """The submitted drivers and their states. ``dies``: whether the worker dies once it has recorded the next
    driver's id."""

    arguments: dict[str, list[str]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    run: Any = None
    noted: dict[str, Any] = field(default_factory=dict)
    dies: bool = False

    def submit(self, arguments: list[str]) -> str:
        driver = f"driver-20130103000000-{len(self.arguments):04}"
        self.arguments[driver] = arguments
        self.states[driver] = "RUNNING"
        if self.run and not self.dies:
            self.run(arguments)
        if not self.dies:
            self.states[driver] = "FINISHED"
        return driver

    def status(self, driver: str) -> dict[str, Any]:
        """Return the state of a driver. A running driver has ended at the next request."""
        state = self.states[driver]
        if state == "RUNNING":
            self.states[driver] = "FINISHED"
        return {"submissionId": driver, "driverState": state, "success": True}

    # This takes the place of the state store that Airflow gives a task.
    def get(self, key: str) -> Any:
        return self.noted.get(key)

    def set(self, key: str, value: Any) -> None:
        self.noted[key] = value
        if self.dies:
            self.dies = False
            raise WorkerDied


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Master]:
    master = Master()

    class Rest(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(json.dumps(master.status(self.path.rsplit("/", 1)[1]), indent=2, separators=(",", " : ")))

        def do_POST(self) -> None:
            self._answer(master.submit(json.loads(self.rfile.read(int(self.headers["Content-Length"])))))

        def _answer(self, text: str) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Rest) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        submit = tmp_path / "bin" / "spark-submit"
        submit.parent.mkdir()
        submit.write_text(SUBMIT.format(python=sys.executable, port=server.server_port))
        submit.chmod(0o755)
        monkeypatch.setenv("PATH", f"{submit.parent}{os.pathsep}{os.environ['PATH']}")
        connect(monkeypatch, "spark://127.0.0.1", **{"rest-port": server.server_port})
        yield master
        server.shutdown()


def connect(monkeypatch: pytest.MonkeyPatch, host: str, **extra: object) -> None:
    connection = {"conn_type": "spark", "host": host, "extra": {"deploy-mode": "cluster", **extra}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """Return a deployment. Airflow is imported only below a home of its own."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "home"))
    shop = open_shop(tmp_path / "shop")
    for name, value in environment(shop).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("STATELIB_CONN_ID", raising=False)
    return shop


def context_of(operator: Any, number: int, store: Any = None) -> Any:
    """Return the context that Airflow passes to the try ``number`` of an operator."""
    run = dag_run(data_interval_start=DAY_2 - timedelta(days=1), data_interval_end=DAY_2)
    instance = SimpleNamespace(
        dag_id="own", run_id="r1", task_id="checkpoint", try_number=number, max_tries=2, stats_tags={}
    )
    instance.get_previous_dagrun = lambda _state: None
    events = defaultdict[Any, Any](SimpleNamespace)
    return {"dag_run": run, "ti": instance, "task": operator, "task_state_store": store, "outlet_events": events}


def checkpoint_id(arguments: list[str]) -> int:
    return int(arguments[arguments.index("--checkpoint-id") + 1])


def test_a_retry_checks_the_files_of_its_own_driver_and_the_earlier_driver_changes_nothing(
    deployment: Deployment, master: Master
) -> None:
    """The driver of the first try continues in the cluster, and ends when the second try's checkpoint is
    registered."""
    from statelib_airflow.operators import CheckpointOperator

    pipeline = deployment.pipeline("tours")
    master.run = lambda arguments: publish_here(deployment, pipeline, checkpoint_id(arguments), sales(7))
    master.dies = True
    first = CheckpointOperator(task_id="checkpoint", pipeline="tours", name="tours", assume_ready=True)
    with pytest.raises(WorkerDied):
        first.execute(context_of(first, 1, master))
    planned = plan_snapshot(deployment, pipeline, 2)
    assert planned is not None
    second = CheckpointOperator(task_id="checkpoint", pipeline="tours", name="tours", assume_ready=True)
    assert second.execute(context_of(second, 2, master))["id"] == 3
    assert [checkpoint_id(arguments) for arguments in master.arguments.values()] == [2, 3]
    with pytest.raises(ConflictError, match="superseded by checkpoint 3"):
        plan_snapshot(deployment, pipeline, 2)
    publish_planned(deployment, pipeline, planned, sales(7))
    with pytest.raises(ConflictError, match="superseded by checkpoint 3"):
        register(deployment, pipeline, 2)
    assert {r.checkpoint_id: str(r.state) for r in deployment.catalog().list("tours")} == {
        1: "COMPLETED", 2: "ABORTED", 3: "COMPLETED",
    }  # fmt: skip
    assert {uri for uri in stored(deployment) if "/tours/chk-2/" in uri}
    orphans(deployment, "tours", dry_run=False)
    assert not {uri for uri in stored(deployment) if "/tours/chk-2/" in uri}
    assert verify(resolve(deployment, "tours/3"), scratch=deployment.work_directory).problems == ()


@pytest.mark.parametrize("state", ["RUNNING", "FINISHED"])
@pytest.mark.parametrize("wanted", [7, 8], ids=["same checkpoint", "another one, after begin was cleared"])
def test_a_try_waits_only_for_an_earlier_driver_of_its_own_checkpoint(
    deployment: Deployment, master: Master, wanted: int, state: str
) -> None:
    from statelib_airflow.operators import StatelibSparkOperator

    def job(number: int) -> Any:
        arguments = ["--pipeline", "p", "--checkpoint-id", str(number)]
        return StatelibSparkOperator(task_id="job", script="snapshot.py", application_args=arguments, name="job")

    master.dies = True
    with pytest.raises(WorkerDied):
        job(7).execute(context_of(job(7), 1, master))
    master.states = dict.fromkeys(master.states, state)
    job(wanted).execute(context_of(job(wanted), 2, master))
    assert [checkpoint_id(arguments) for arguments in master.arguments.values()] == ([7] if wanted == 7 else [7, 8])


def test_each_try_submits_a_new_rehearsal(deployment: Deployment, master: Master) -> None:
    from statelib_airflow.operators import StatelibSparkOperator

    for number in (1, 2):
        job = StatelibSparkOperator(task_id="job", script="rehearse_restore.py", application_args=["x"], name="job")
        job.execute(context_of(job, number, master))
    assert len(master.arguments) == 2


def test_yarn_in_cluster_mode_needs_no_setting_in_the_dag(
    deployment: Deployment, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On YARN the provider cannot find a driver again, and refuses durable operators. statelib's operator runs there
    without a setting in the DAG."""
    from statelib_airflow.operators import StatelibSparkOperator

    connect(monkeypatch, "yarn")
    operator = StatelibSparkOperator(task_id="job", script="snapshot.py", application_args=["x"], name="job")
    operator.execute(context_of(operator, 1, master))
    assert len(master.arguments) == 1
