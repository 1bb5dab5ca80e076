"""The tasks register and publish of a run that was cleared after its checkpoint was registered."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from statelib.flows.checkpoint.steps import begin, register
from statelib.flows.wiring import Deployment
from tests.integration.shop import SALES, environment, sales
from tests.support.published import table_rows
from tests.support.worlds import day, new_deployment, publish_here

PUBLISH = "publish: {now: {target: '{data}/now', mode: table, state: total}}\n"


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """Return a deployment with a checkpoint of the pipeline sales, which the run r1 has registered."""
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "sales.yaml").write_text(SALES + PUBLISH)
    deployment = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "home"))
    for name, value in environment(deployment).items():
        monkeypatch.setenv(name, value)
    pipeline = deployment.pipeline("sales")
    begun = begin(deployment, pipeline, day(1), "sales.checkpoint/r1/begin/1")
    publish_here(deployment, pipeline, begun.checkpoint_id, sales(0))
    register(deployment, pipeline, begun.checkpoint_id)
    return deployment


def event_of(task_id: str, run_id: str, pipeline_file: str) -> dict[str, Any]:
    """Return the extra of the event of a task of the run, whose tasks before register were skipped."""
    from airflow.sdk.execution_time.context import set_current_context
    from statelib_airflow.dags import checkpoint_tasks
    from statelib_airflow.runtime.steps import state_asset

    asset, event = state_asset("sales"), SimpleNamespace(extra={})
    instance = SimpleNamespace(dag_id="sales.checkpoint", run_id=run_id, task_id=task_id)
    instance.get_task_states = lambda **_: {run_id: {"begin": "skipped", "check_completeness": "skipped"}}
    context: Any = {"ti": instance, "dag": SimpleNamespace(default_args={}), "outlet_events": {asset: event}}
    context["task"] = SimpleNamespace(outlets=[asset])
    with set_current_context(context):
        getattr(checkpoint_tasks, task_id).function(pipeline_file)
    return dict(event.extra)


@pytest.mark.parametrize("task_id", ["register", "publish"])
def test_the_run_that_committed_sends_its_event(deployment: Deployment, task_id: str) -> None:
    event = event_of(task_id, "r1", deployment.pipeline("sales").path)
    assert (event["id"], event["start"][:10], event["end"][:10]) == (1, "2013-01-01", "2013-01-02")
    assert (Path(deployment.data) / "now").exists() is (task_id == "publish")


@pytest.mark.parametrize("task_id", ["register", "publish"])
def test_another_run_of_the_interval_sends_none(deployment: Deployment, task_id: str) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    with pytest.raises(AirflowSkipException, match="this run has"):
        event_of(task_id, "r2", deployment.pipeline("sales").path)
    if task_id == "publish":
        assert len(table_rows(Path(deployment.data) / "now", ["shop"])) == 3
