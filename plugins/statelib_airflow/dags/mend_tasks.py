"""The tasks of the mend DAG before its checkpoint: plan, approve and begin. The others are those of a checkpoint."""

from typing import Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import get_current_context, task

from statelib_airflow.dags.checkpoint_tasks import CHECKPOINT_ID
from statelib_airflow.hooks import hook_of_run
from statelib_airflow.runtime import steps

PLAN = "{{ ti.xcom_pull(task_ids='plan', key='description') }}"


@task(task_id="plan", multiple_outputs=True)
def plan(pipeline_file: str) -> dict[str, Any]:
    """Plan the correction of the interval in the run's params. Nothing is changed."""
    planned = steps.plan_mend(hook_of_run(), pipeline_file, get_current_context()["params"]["interval"])
    return {"plan": planned.to_json(), "description": planned.describe()}


class ApproveMendOperator(ApprovalOperator):
    """The task that shows the plan and waits for a person. It is skipped unless the param ``approval`` is on."""

    def execute(self, context: Any) -> Any:
        if not context["params"]["approval"]:
            raise AirflowSkipException("the param approval is off")
        return super().execute(context)


@task(task_id="begin", trigger_rule="none_failed")
def begin_mend(pipeline_file: str, plan_json: str) -> None:
    """Allocate the checkpoint of the plan. The task approve is skipped unless the run asks for it."""
    from statelib.flows.mending.plan import MendPlan

    context = get_current_context()
    begun = steps.begin_mend(hook_of_run(), pipeline_file, MendPlan.from_json(plan_json), context)
    context["ti"].xcom_push(CHECKPOINT_ID, int(begun.checkpoint_id))
