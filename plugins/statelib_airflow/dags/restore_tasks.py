"""The tasks of the restore DAG: plan, approve, switch and replay. The task rehearse is a Spark job."""

import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import BaseSensorOperator, get_current_context, task

from statelib.model.moments import epoch_ms
from statelib_airflow import airflow_internals
from statelib_airflow.airflow_internals import PastRun
from statelib_airflow.hooks import hook_of_run
from statelib_airflow.runtime import runs, steps

if TYPE_CHECKING:
    from airflow.sdk import Context

    from statelib.definition.pipeline import Pipeline
    from statelib.flows.restore.plan import RestorePlan

PLAN = "{{ ti.xcom_pull(task_ids='plan', key='description') }}"
log = logging.getLogger(__name__)


@task(task_id="plan", multiple_outputs=True)
def plan(pipeline_file: str) -> dict[str, Any]:
    """Plan the restore of the run's params. Return the plan and the arguments of the rehearsal. The task switch carries
    the plan out once, however often it is repeated; if a person clears this task, there is another plan."""
    context = get_current_context()
    params = context["params"]
    if params["replay"]:
        _check_replay(hook_of_run().pipeline(pipeline_file))
    wanted = (params["claim_mode"], params["parallelism"], params["allow_non_restored_state"])
    request = steps.RestoreRequest(params["checkpoint"], runs.wish_key(context), *wanted)
    planned = steps.plan_restore(hook_of_run(), pipeline_file, request, context)
    if params["replay"] and planned.replay_from_ms is None:
        raise AirflowFailException(f"{planned.directory} does not say where its events end: replay by a backfill")
    arguments = request.rehearsal(pipeline_file, planned.parallelism)
    return {"plan": planned.to_json(), "description": planned.describe(), "arguments": arguments}


def _check_replay(pipeline: "Pipeline") -> None:
    """Raise AirflowFailException if no run of the pipeline could be replayed."""
    dag_id = pipeline.checkpoint_dag
    if pipeline.cron_schedule is None:
        raise AirflowFailException(
            f"{dag_id} has no schedule by time, so nothing would be replayed: switch replay off, and clear the runs "
            "after the restored checkpoint from the oldest on"
        )
    paused = airflow_internals.is_paused(dag_id)
    if paused is None:
        raise AirflowFailException(
            f"Airflow has no DAG {dag_id}, so nothing would be replayed: switch replay off, or let pipeline_dags make "
            "the DAG checkpoint, too"
        )
    if paused:
        raise AirflowFailException(f"{dag_id} is paused, so nothing would be replayed: unpause it, or replay off")


class ApprovePlanOperator(ApprovalOperator):
    """The task that shows the plan and waits for a person. It is skipped unless the param ``approval`` is on.

    A plan that is rejected, or not answered in time, changes nothing."""

    def execute(self, context: "Context") -> Any:
        if not context["params"]["approval"]:
            raise AirflowSkipException("the param approval is off")
        return super().execute(context)

    def execute_complete(self, context: "Context", event: dict[str, Any]) -> Any:
        answer = super().execute_complete(context, event)
        if self.APPROVE not in answer["chosen_options"]:
            steps.release(hook_of_run(), _plan(context), context)
        return answer


@task(task_id="switch")
def switch(pipeline_file: str, plan_json: str) -> dict[str, int | None]:
    """Make the planned checkpoint the head of the pipeline. Return the head."""
    from statelib.flows.restore.plan import RestorePlan

    context = get_current_context()
    approved = context["params"]["approval"]
    return steps.switch(hook_of_run(), pipeline_file, RestorePlan.from_json(plan_json), context, approved=approved)


class ReplayOperator(BaseSensorOperator):
    """The task that runs the DAG runs of the intervals after the restored one again, oldest first. Each begins after
    the one before it is registered. The task is skipped unless the param ``replay`` is on.

    It keeps no state of its own: the catalog has the applied intervals, and Airflow the runs under way. If it fails, it
    can be cleared, and continues with the first interval that the state does not have. It needs no worker while it
    waits."""

    template_fields: Sequence[str] = ("checkpoint_dag",)

    def __init__(self, *, pipeline: str, checkpoint_dag: str, **kwargs: Any) -> None:
        super().__init__(mode="reschedule", **kwargs)
        self.pipeline, self.checkpoint_dag = pipeline, checkpoint_dag

    def poke(self, context: "Context") -> bool:
        if not context["params"]["replay"]:
            raise AirflowSkipException("nobody asked for a replay: clear the runs after the restored one, or backfill")
        since = context["ti"].get_first_reschedule_date(context) or datetime.now(UTC)
        start_ms = _plan(context).replay_from_ms
        for run in sorted(self._runs(start_ms or 0), key=_by_interval):
            if not self._is_applied(run):
                self._run_again(run, since)
                return False
        return True

    def _runs(self, start_ms: int) -> Iterator[PastRun]:
        """Yield the runs of intervals that start at ``start_ms`` or later.

        Runs come by logical date. That of a run that was triggered by hand is later than its interval, so that runs
        of later intervals may come after it."""
        for run in airflow_internals.runs_newest_first(self.checkpoint_dag):
            if run.data_interval_start is None or run.data_interval_end is None:
                continue
            if epoch_ms(run.data_interval_start) >= start_ms:
                yield run
            elif run.logical_date is not None and epoch_ms(run.logical_date) < start_ms:
                return

    def _is_applied(self, run: PastRun) -> bool:
        from statelib.model.checkpoint import DataInterval
        from statelib.model.ids import PipelineName

        assert run.data_interval_start is not None
        assert run.data_interval_end is not None
        interval = DataInterval(epoch_ms(run.data_interval_start), epoch_ms(run.data_interval_end))
        return hook_of_run().deployment().catalog().applied(PipelineName(self.pipeline), interval) is not None

    def _run_again(self, run: PastRun, since: datetime) -> None:
        """Run the oldest run that is not applied again, unless it is under way. Fail if it ended without being
        applied."""
        if run.state not in airflow_internals.ENDED:
            log.info("waiting for %s, which is %s (of a cancelled backfill it never runs)", run.run_id, run.state)
        elif run.start_date is not None and run.start_date >= since:
            raise AirflowFailException(
                f"the replay stops at {run.run_id}: {self.checkpoint_dag} ended as {run.state} and did not apply its"
                " interval; mend what its log says, then clear this task"
            )
        else:
            log.info("running %s again", run.run_id)
            airflow_internals.run_again(run)


def _by_interval(run: PastRun) -> tuple[Any, ...]:
    return run.data_interval_start, run.data_interval_end, run.logical_date


def _plan(context: "Context") -> "RestorePlan":
    from statelib.flows.restore.plan import RestorePlan

    return RestorePlan.from_json(context["ti"].xcom_pull(task_ids="plan", key="plan"))
