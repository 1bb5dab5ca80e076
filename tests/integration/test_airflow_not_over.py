"""A run whose interval an asset or a form names waits for the end of the interval: real checkpoints, no scheduler."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from statelib.flows.wiring import Deployment
from statelib.model.record import CheckpointState
from tests.integration.shop import SALES, shop_of_this_process
from tests.support.dag_runs import dag_run

PENDING = 6
"""The checkpoint that the shop has under way."""


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployment:
    own = shop_of_this_process(monkeypatch, tmp_path)
    from statelib_airflow.dags import checkpoint_tasks
    from statelib_airflow.hooks import StatelibHook

    monkeypatch.setattr(checkpoint_tasks, "hook_of_run", StatelibHook)
    return own


def context_of(params: dict[str, str] | None = None, **run: Any) -> Any:
    """Return the context of a task in a run of the shop's pipeline."""
    dag_id = "sales.checkpoint"
    instance = SimpleNamespace(
        dag_id=dag_id, run_id="r1", task_id="begin", try_number=1, max_tries=0, stats_tags={},
        get_previous_dagrun=lambda _state: None, xcom_push=lambda *_: None,
    )  # fmt: skip
    return {"dag_run": dag_run(dag_id=dag_id, **run), "ti": instance, "params": params or {}}


def begin(own: Deployment, **run: Any) -> tuple[bool, int]:
    """Poke the task ``begin`` of a run. Return its result and the newest checkpoint of the pipeline."""
    from statelib_airflow.dags.checkpoint_tasks import BeginOperator

    began = BeginOperator(task_id="begin", pipeline_file="sales").poke(context_of(**run))
    return began, max(int(record.checkpoint_id) for record in own.catalog().list("sales", tuple(CheckpointState)))


def update(end: datetime) -> Any:
    """Return an update of an asset that names an interval."""
    extra = {"start": "2013-01-03", "end": end.isoformat()}
    return SimpleNamespace(timestamp=datetime.now(UTC), extra=extra, partition_key=None)


def test_an_interval_of_the_form_that_ends_in_the_future(own: Deployment) -> None:
    end = datetime.now(UTC) + timedelta(hours=1)
    assert begin(own, params={"start": "2013-01-03", "end": end.isoformat()}) == (False, PENDING)
    assert begin(own, params={"start": "2013-01-03", "end": "2013-01-04"}) == (True, PENDING + 1)


def test_a_partition_that_is_updated_while_it_fills(own: Deployment) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    assert begin(own, consumed_asset_events=[update(later)]) == (False, PENDING)
    assert begin(own, consumed_asset_events=[update(datetime(2013, 1, 4, tzinfo=UTC))]) == (True, PENDING + 1)


def test_an_interval_of_the_timetable_is_over_by_the_clock_of_airflow(own: Deployment) -> None:
    """The scheduler's clock is ahead of the worker's."""
    ahead = datetime.now(UTC) + timedelta(hours=1)
    start = datetime(2013, 1, 3, tzinfo=UTC)
    assert begin(own, data_interval_start=start, data_interval_end=ahead) == (True, PENDING + 1)


def test_an_operator_waits_in_the_triggerer(own: Deployment) -> None:
    from airflow.sdk.exceptions import TaskDeferred
    from statelib_airflow.group_operator import GroupCheckpointOperator
    from statelib_airflow.operators import CheckpointOperator

    end = datetime.now(UTC) + timedelta(hours=1)
    alone = CheckpointOperator(task_id="checkpoint", pipeline="sales")
    group = GroupCheckpointOperator(task_id="checkpoints", group="daily", pipelines=["/no/such/file.yaml", "sales"])
    for operator in (alone, group):
        with pytest.raises(TaskDeferred) as deferred:
            operator.execute(context_of(consumed_asset_events=[update(end)]))
        assert abs(deferred.value.trigger.moment - end) < timedelta(milliseconds=1)
        assert callable(getattr(operator, deferred.value.method_name))
    assert len(own.catalog().list("sales", tuple(CheckpointState))) == PENDING, "nothing was begun"


def test_a_source_is_looked_at_when_the_interval_is_over(own: Deployment, tmp_path: Path) -> None:
    """Before, its youngest file may be old enough, although more will come."""
    from airflow.providers.standard.triggers.temporal import DateTimeTrigger
    from airflow.sdk.exceptions import TaskDeferred
    from statelib_airflow.source_ready import SourceReadyOperator, SourceReadyTrigger

    (tmp_path / "own" / "pipelines" / "sales.yaml").write_text(
        SALES.replace("columns", "ready: {min_age: 1s}, columns", 1)
    )
    operator = SourceReadyOperator(task_id="wait_for_source", pipeline="sales")
    end = datetime.now(UTC) + timedelta(hours=1)
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(context_of(consumed_asset_events=[update(end)]))
    trigger, then = deferred.value.trigger, deferred.value.method_name
    assert isinstance(trigger, DateTimeTrigger)
    assert abs(trigger.moment - end) < timedelta(milliseconds=1)
    over = context_of(consumed_asset_events=[update(datetime(2013, 1, 4, tzinfo=UTC))])
    with pytest.raises(TaskDeferred) as deferred:
        getattr(operator, then)(over, None)
    assert isinstance(deferred.value.trigger, SourceReadyTrigger), "the directory itself does not exist"
