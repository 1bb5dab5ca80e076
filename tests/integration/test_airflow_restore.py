"""The tasks that move the head, in this process, with real checkpoints and without a scheduler."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from statelib.flows.restore.steps import plan_restore
from statelib.flows.wiring import Deployment
from statelib.model.record import ClaimMode
from tests.integration.shop import sales, shop_of_this_process
from tests.support.dag_runs import dag_run
from tests.support.worlds import checkpoint_of

STARTED = datetime(2013, 2, 1, tzinfo=UTC)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployment:
    return shop_of_this_process(monkeypatch, tmp_path)


def test_a_plan_that_was_approved_is_refused_after_the_head_moved(
    own: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowFailException
    from statelib_airflow.dags import restore_tasks
    from statelib_airflow.hooks import StatelibHook

    plan = plan_restore(own, own.pipeline("sales"), "2", None, ClaimMode.NO_CLAIM).to_json()
    checkpoint_of(own, "sales", 3, sales(6))
    instance = SimpleNamespace(dag_id="own", run_id="r1", task_id="switch", try_number=1, max_tries=0)
    context = {"dag_run": dag_run(), "ti": instance, "params": {"approval": True}}
    monkeypatch.setattr(restore_tasks, "get_current_context", lambda: context)
    monkeypatch.setattr(restore_tasks, "hook_of_run", StatelibHook)
    with pytest.raises(AirflowFailException, match=r"plan-changed.*was checkpoint 5 .* is 7 now"):
        restore_tasks.switch.function("sales", plan)
    context["params"]["approval"] = False
    assert restore_tasks.switch.function("sales", plan)["head"] == 2, "nobody has seen a plan"


def test_a_retry_after_a_lost_answer_keeps_the_runs_since_the_restore(
    own: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try of the task moves the head and dies. A run goes on from there before the next try."""
    from statelib_airflow.dags import restore_tasks
    from statelib_airflow.hooks import StatelibHook

    params = {"approval": False, "replay": False, "checkpoint": "2", "claim_mode": "NO_CLAIM", "parallelism": None}
    params["allow_non_restored_state"] = False
    instance = SimpleNamespace(dag_id="own", run_id="r1", task_id="plan", try_number=1, max_tries=1)
    task = SimpleNamespace(retries=1)
    context = {"dag_run": dag_run(start_date=STARTED), "ti": instance, "params": params, "task": task}
    monkeypatch.setattr(restore_tasks, "get_current_context", lambda: context)
    monkeypatch.setattr(restore_tasks, "hook_of_run", StatelibHook)
    plan = restore_tasks.plan.function("sales")["plan"]
    instance.task_id = "switch"
    assert restore_tasks.switch.function("sales", plan)["head"] == 2
    replayed = checkpoint_of(own, "sales", 3, sales(6))
    instance.try_number = 2
    assert restore_tasks.switch.function("sales", plan)["head"] == replayed
    instance.task_id, instance.max_tries = "plan", 2
    cleared = restore_tasks.plan.function("sales")["plan"]
    assert restore_tasks.switch.function("sales", cleared)["head"] == 2, "another plan is another restore"


def test_a_retry_of_the_operator_keeps_the_runs_since_its_restore(own: Deployment) -> None:
    from statelib_airflow.operators import RestoreOperator

    def restored(try_number: int, max_tries: int, started: datetime = STARTED) -> Any:
        operator = RestoreOperator(task_id="back", pipeline="sales", checkpoint="2", rehearse=False, retries=1)
        tries = {"try_number": try_number, "max_tries": max_tries}
        instance = SimpleNamespace(dag_id="own", run_id="r1", task_id="back", **tries)
        context: Any = {"dag_run": dag_run(start_date=started), "ti": instance, "task": operator}
        return operator.execute(context)["head"]

    assert restored(1, 1) == 2
    replayed = checkpoint_of(own, "sales", 3, sales(6))
    assert restored(2, 1) == replayed
    assert restored(3, 3) == 2, "Airflow raises max_tries when a person clears the task"
    replayed = checkpoint_of(own, "sales", 3, sales(6))
    assert restored(4, 3) == replayed
    assert restored(1, 1, STARTED + timedelta(days=1)) == 2, "the run was deleted and made again"
