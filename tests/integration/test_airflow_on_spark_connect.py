"""Operators of Airflow with a connection of type Spark Connect: the job runs through a server that stays up."""

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from tests.integration import test_spark_connect
from tests.integration.shop import environment
from tests.integration.test_spark_connect import FIRST, states, write_rules
from tests.support.connect_server import ConnectServer, connect_server
from tests.support.dag_runs import dag_run
from tests.support.extent import large
from tests.support.worlds import CHECKOUT

pytestmark = pytest.mark.timeout(1200)
deployment_files = test_spark_connect.deployment


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with connect_server(tmp_path_factory.mktemp("code")) as running:
        yield running


@pytest.fixture
def deployment(
    deployment_files: Deployment, server: ConnectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Deployment:
    """Return a deployment. Airflow is imported only below a home of its own."""
    host, port = server.url.removeprefix("sc://").split(":")
    connection = {"conn_type": "spark_connect", "host": host, "port": int(port)}
    variables = {"AIRFLOW_HOME": str(tmp_path / "home"), "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(connection)}
    variables["PYTHONPATH"] = f"{CHECKOUT}:{server.code}"
    for name, value in (environment(deployment_files) | variables).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("STATELIB_CONN_ID", raising=False)
    monkeypatch.syspath_prepend(str(server.code))
    return deployment_files


def context_of(operator: Any, number: int, attempt: int = 1) -> Any:
    """Return the context that Airflow passes to a try of an operator in the run of the day ``number``."""
    start = FIRST + timedelta(days=number - 1)
    bounds = {"data_interval_start": start, "data_interval_end": start + timedelta(days=1)}
    run = dag_run(f"r{number}", start_date=start, **bounds)
    instance = SimpleNamespace(
        dag_id="own", run_id=run.run_id, task_id="checkpoint", try_number=attempt, max_tries=0, stats_tags={}
    )
    instance.get_previous_dagrun = lambda _state: None
    return {"dag_run": run, "ti": instance, "task": operator, "outlet_events": defaultdict[Any, Any](SimpleNamespace)}


def checkpoint(number: int, **arguments: Any) -> Any:
    from statelib_airflow.operators import CheckpointOperator

    operator = CheckpointOperator(task_id="checkpoint", pipeline="sold", name="sold", **arguments)
    return operator.execute(context_of(operator, number))


def test_checkpoints_and_a_restore_run_through_the_server(server: ConnectServer, deployment: Deployment) -> None:
    from statelib_airflow.operators import RestoreOperator

    write_rules(server)
    assert [checkpoint(number)["id"] for number in (1, 2)] == [1, 2]
    assert states(deployment, "sold/head") == {"a": {"sold": 3}, "b": {"sold": 6}}
    back = RestoreOperator(task_id="back", pipeline="sold", checkpoint="1", name="sold")
    assert back.execute(context_of(back, 2))["head"] == 1


def test_an_error_in_a_function_fails_the_task_by_its_name_and_aborts(
    server: ConnectServer, deployment: Deployment
) -> None:
    from airflow.sdk.exceptions import AirflowException

    write_rules(server, "raise ValueError('these events are wrong')")
    with pytest.raises(AirflowException, match="ValueError: these events are wrong"):
        checkpoint(1)
    (record,) = deployment.catalog().list(PipelineName("sold"))
    assert str(record.state) == "ABORTED"


def test_a_group_is_one_job_whose_failed_pipelines_alone_are_tried_again(
    server: ConnectServer, deployment: Deployment
) -> None:
    from airflow.sdk.exceptions import AirflowException
    from statelib_airflow.group_operator import GroupCheckpointOperator
    from statelib_airflow.runtime.steps import state_asset

    def run(number: int, attempt: int, max_tries: int) -> tuple[Any, Any]:
        operator = GroupCheckpointOperator(
            task_id="checkpoints", group="daily", pipelines=["moved", "sold"], name="daily",
            outlets=[state_asset("moved"), state_asset("sold")],
        )  # fmt: skip
        context = context_of(operator, number, attempt)
        context["ti"].max_tries = max_tries
        return operator.execute(context), context

    write_rules(server, "raise ValueError('these events are wrong')")
    with pytest.raises(AirflowException, match=r"1 of 2 pipelines of group daily failed: sold: .*events are wrong"):
        run(1, 1, 1)
    assert states_of(deployment) == {"moved": ["COMPLETED"], "sold": ["PENDING"]}
    write_rules(server)
    facts, context = run(1, 2, 1)
    assert {name: each["id"] for name, each in facts.items()} == {"moved": 1, "sold": 2}
    extras = {asset.name: event.extra["id"] for asset, event in context["outlet_events"].items()}
    assert extras == {"moved.state": 1, "sold.state": 2}
    write_rules(server, "raise ValueError('these events are wrong')")
    with pytest.raises(AirflowException, match="1 of 2"):
        run(2, 1, 0)
    assert states_of(deployment) == {
        "moved": ["COMPLETED", "COMPLETED"], "sold": ["ABORTED", "COMPLETED", "ABORTED"],
    }  # fmt: skip


def states_of(deployment: Deployment) -> dict[str, list[str]]:
    """Return the states of the checkpoints of each pipeline, the newest first."""
    names = ("moved", "sold")
    return {name: [str(r.state) for r in deployment.catalog().list(PipelineName(name))] for name in names}


@pytest.mark.usefixtures("deployment")
def test_arguments_of_spark_submit_are_refused() -> None:
    from airflow.sdk.exceptions import AirflowFailException
    from statelib_airflow.operators import StatelibSparkOperator

    job = StatelibSparkOperator(task_id="job", script="snapshot.py", conf={"spark.a": "b"}, executor_memory="1g")
    with pytest.raises(AirflowFailException, match=r"connect-argument: conf, executor_memory: "):
        job.execute(context_of(job, 1))


@large("make test stops a client in test_spark_connect, and the one of an operator in test_connect_client")
def test_a_killed_task_ends_its_client_and_the_tasks_of_the_server(
    server: ConnectServer, deployment: Deployment, tmp_path: Path
) -> None:
    from airflow.sdk.exceptions import AirflowException
    from statelib_airflow.operators import CheckpointOperator

    arrived = tmp_path / "arrived"
    write_rules(server, f"open({str(arrived)!r}, 'w').close(); time.sleep(3600)")
    operator = CheckpointOperator(task_id="checkpoint", pipeline="sold", name="sold")
    errors: list[BaseException] = []

    def run() -> None:
        try:
            operator.execute(context_of(operator, 1))
        except AirflowException as error:
            errors.append(error)

    running = threading.Thread(target=run)
    running.start()
    while not arrived.exists():
        assert running.is_alive(), errors
        time.sleep(0.05)
    operator.on_kill()
    running.join()
    assert len(errors) == 1
    write_rules(server)
    assert checkpoint(1)["id"] == 2, "both cores of the server are free again"
    assert states(deployment, "sold/head") == {"a": {"sold": 1}, "b": {"sold": 2}}
