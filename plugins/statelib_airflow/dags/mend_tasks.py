"""The tasks of the mend DAG before its checkpoint: plan, preview and begin. The others are those of a checkpoint."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import get_current_context, task

from statelib_airflow.dags.checkpoint_tasks import CHECKPOINT_ID
from statelib_airflow.hooks import hook_of_run
from statelib_airflow.operators import StatelibSparkOperator
from statelib_airflow.runtime import steps

if TYPE_CHECKING:
    from airflow.sdk import Context

PLAN = "{{ ti.xcom_pull(task_ids='plan', key='description') }}"
DIFFERENCES = "{{ ti.xcom_pull(task_ids='preview', key='return_value') }}"
QUESTION = f"{PLAN}\n\n{DIFFERENCES}"
"""The text that the person who approves reads."""


@task(task_id="plan", multiple_outputs=True)
def plan(pipeline_file: str) -> dict[str, Any]:
    """Plan the correction of the interval in the run's params. Nothing is changed."""
    planned = steps.plan_mend(hook_of_run(), pipeline_file, get_current_context()["params"]["interval"])
    return {"plan": planned.to_json(), "description": planned.describe()}


class PreviewMendOperator(StatelibSparkOperator):
    """The task that computes with Spark what the correction would change, and returns it as Markdown. Nothing is
    changed. The task, and with it the approval, is skipped unless the param ``approval`` is on."""

    template_fields: Sequence[str] = (*StatelibSparkOperator.template_fields, "plan_json")

    def __init__(self, *, pipeline_file: str, plan_json: str, **kwargs: Any) -> None:
        super().__init__(script="preview_mend.py", **kwargs)
        self.pipeline_file, self.plan_json = pipeline_file, plan_json

    def execute(self, context: "Context") -> Any:
        from statelib.storage.registry import new_attempt

        if not context["params"]["approval"]:
            raise AirflowSkipException("the param approval is off")
        attempt = new_attempt()
        self.application_args = ["--pipeline", self.pipeline_file, "--plan", self.plan_json, "--attempt", attempt]
        super().execute(context)
        return steps.take_preview(self.statelib, self.pipeline_file, attempt)


@task(task_id="begin", trigger_rule="none_failed")
def begin_mend(pipeline_file: str, plan_json: str) -> None:
    """Allocate the checkpoint of the plan. The task approve is skipped unless the run asks for it."""
    from statelib.flows.mending.plan import MendPlan

    context = get_current_context()
    begun = steps.begin_mend(hook_of_run(), pipeline_file, MendPlan.from_json(plan_json), context)
    context["ti"].xcom_push(CHECKPOINT_ID, int(begun.checkpoint_id))
