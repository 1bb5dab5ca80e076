"""The tasks ``abort`` after a task that was killed before it could say what it had begun: real checkpoints, no
scheduler."""

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState
from tests.integration.shop import shop_of_this_process
from tests.support.dag_runs import dag_run

RUN = "r1"


class KilledError(BaseException):
    """The end of a task by a signal."""


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployment:
    own = shop_of_this_process(monkeypatch, tmp_path)
    from statelib_airflow.dags import checkpoint_tasks, group_dags
    from statelib_airflow.hooks import StatelibHook

    for tasks in (checkpoint_tasks, group_dags):
        monkeypatch.setattr(tasks, "hook_of_run", StatelibHook)
        monkeypatch.setattr(tasks, "get_current_context", lambda: context_of("abort"))
    return own


def context_of(task_id: str, run_id: str = RUN) -> Any:
    """Return the context of a task in a run of the third of January. Whatever it pushes is lost, and it dies."""
    days = {
        "data_interval_start": datetime(2013, 1, 3, tzinfo=UTC),
        "data_interval_end": datetime(2013, 1, 4, tzinfo=UTC),
    }
    instance = SimpleNamespace(
        dag_id="own", run_id=run_id, task_id=task_id, try_number=1, max_tries=0, stats_tags={},
        get_previous_dagrun=lambda _state: None, xcom_push=die, xcom_pull=lambda **_: None,
        get_task_states=lambda **_: {run_id: {}},
    )  # fmt: skip
    return {"dag_run": dag_run(run_id, **days), "ti": instance, "params": {}}


def die(*_: Any) -> None:
    raise KilledError


def newest(own: Deployment, name: str) -> tuple[CheckpointId, CheckpointState]:
    records = own.catalog().list(PipelineName(name), tuple(CheckpointState))
    return max((record.checkpoint_id, record.state) for record in records)


def test_a_checkpoint_whose_id_was_not_pushed_is_aborted(own: Deployment) -> None:
    from airflow.sdk.exceptions import AirflowSkipException
    from statelib_airflow.dags import checkpoint_tasks

    with pytest.raises(AirflowSkipException, match="no checkpoint was begun"):
        checkpoint_tasks.abort.function("sales")
    assert newest(own, "sales") == (6, CheckpointState.PENDING), "another run's"
    with pytest.raises(KilledError):
        checkpoint_tasks.BeginOperator(task_id="begin", pipeline_file="sales").poke(context_of("begin"))
    assert newest(own, "sales") == (7, CheckpointState.PENDING)
    assert "checkpoint 7 is ABORTED" in checkpoint_tasks.abort.function("sales")
    assert newest(own, "sales") == (7, CheckpointState.ABORTED)


def test_the_checkpoints_of_a_group_are_aborted_whose_task_was_killed_while_it_began_them(
    own: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowSkipException
    from statelib_airflow.dags import group_dags
    from statelib_airflow.group_operator import GroupCheckpointOperator
    from statelib_airflow.runtime import steps

    begin = steps.begin_checkpoint
    monkeypatch.setattr(
        steps, "begin_checkpoint", lambda hook, name, *a, **k: die() if name == "tours" else begin(hook, name, *a, **k)
    )
    task = GroupCheckpointOperator(task_id="checkpoints", group="daily", pipelines=["sales", "tours"])
    with pytest.raises(KilledError):
        task.execute(context_of("checkpoints"))
    assert newest(own, "sales") == (7, CheckpointState.PENDING)
    assert group_dags.abort.function(["sales", "tours"]) == ["sales"]
    assert newest(own, "sales") == (7, CheckpointState.ABORTED)
    assert newest(own, "tours") == (1, CheckpointState.COMPLETED)
    with pytest.raises(AirflowSkipException, match="no checkpoint is pending"):
        group_dags.abort.function(["sales", "tours"])
