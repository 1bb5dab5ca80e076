"""The task of the restore DAG that moves the head, in this process, with real checkpoints and without a scheduler."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from statelib.flows.restore.steps import plan_restore
from statelib.model.record import ClaimMode
from tests.integration.shop import environment, open_shop, sales
from tests.support.worlds import checkpoint_of


def test_a_plan_that_was_approved_is_refused_after_the_head_moved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "home"))
    from airflow.sdk.exceptions import AirflowFailException
    from statelib_airflow.dags import restore_tasks
    from statelib_airflow.hooks import StatelibHook

    own = open_shop(tmp_path / "own")
    for name, value in environment(own).items():
        monkeypatch.setenv(name, value)
    plan = plan_restore(own, own.pipeline("sales"), "2", None, ClaimMode.NO_CLAIM).to_json()
    checkpoint_of(own, "sales", 3, sales(6))
    instance = SimpleNamespace(dag_id="own", run_id="r1", task_id="switch", try_number=1, max_tries=0)
    context = {"dag_run": SimpleNamespace(dag_id="own", run_id="r1"), "ti": instance, "params": {"approval": True}}
    monkeypatch.setattr(restore_tasks, "get_current_context", lambda: context)
    monkeypatch.setattr(restore_tasks, "hook_of_run", StatelibHook)
    with pytest.raises(AirflowFailException, match=r"plan-changed.*was checkpoint 5 .* is 7 now"):
        restore_tasks.switch.function("sales", plan)
    context["params"]["approval"] = False
    assert restore_tasks.switch.function("sales", plan)["head"] == 2, "nobody has seen a plan"
