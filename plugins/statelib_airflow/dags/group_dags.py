"""The DAG of a group of pipelines, whose snapshots one Spark job takes."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import DAG, get_current_context, task

from statelib.definition.parts.model import Notify
from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError
from statelib_airflow.dags import forms
from statelib_airflow.dags.alerts import deadlines, notifiers
from statelib_airflow.dags.dag_settings import DagSettings
from statelib_airflow.group_operator import GroupCheckpointOperator
from statelib_airflow.hooks import hook_of_run
from statelib_airflow.notifications import StatelibNotifier
from statelib_airflow.runtime import runs, steps
from statelib_airflow.runtime.steps import state_asset

TASK = "checkpoints"


def groups_of(pipelines: Iterable[Pipeline]) -> Mapping[str, Sequence[Pipeline]]:
    """Return the pipelines of each group by its name."""
    groups: dict[str, list[Pipeline]] = {}
    for pipeline in pipelines:
        if pipeline.group:
            groups.setdefault(pipeline.group, []).append(pipeline)
    return groups


def group_dag(
    group: str, pipelines: Sequence[Pipeline], schedule: Any, settings: DagSettings, *, broken: Sequence[str] = ()
) -> DAG:
    """Return the scheduled DAG of a group: each run applies one data interval to each of its pipelines. ``schedule``:
    what starts the runs. ``broken``: the paths of files of the group that do not load, for which the task fails after
    it has run the others.

    Raises InvalidRequestError (``group-schedule``) if the pipelines have different schedules."""
    first = pipelines[0]
    for other in pipelines:
        if other.schedule != first.schedule:
            raise InvalidRequestError(
                f"group {group}: {first.name} and {other.name} have different schedules",
                kind="group-schedule",
                hint="write the same 'schedule' into the file of each pipeline of a group",
            )
    names = ", ".join(f"`{pipeline.name}`" for pipeline in pipelines)
    with DAG(
        first.checkpoint_dag,
        schedule=schedule,
        start_date=first.schedule.start if first.schedule else None,
        end_date=first.schedule.end if first.schedule else None,
        catchup=first.schedule.catchup if first.schedule else False,
        max_active_runs=1,
        deadline=_deadlines(group, pipelines),
        params=forms.interval_form() if first.cron_schedule is None else {},
        doc_md=_DOCUMENT.format(group=group, names=names),
        **settings.arguments(["statelib", group], _defaults(group, pipelines)),
    ) as dag:
        run = GroupCheckpointOperator(
            task_id=TASK,
            group=group,
            pipelines=[*(str(Path(pipeline.path).resolve()) for pipeline in pipelines), *broken],
            conn_id=settings.spark_conn_id,
            outlets=[state_asset(pipeline.name) for pipeline in pipelines],
            execution_timeout=timedelta(seconds=sum(p.checkpoint.timeout_s for p in pipelines)),
        )
        aborted: Any = abort([pipeline.name for pipeline in pipelines])
        run >> aborted.as_teardown()
    return dag


def _defaults(group: str, pipelines: Sequence[Pipeline]) -> dict[str, Any]:
    """Return the default arguments: the most retries that a pipeline has, and the notifiers of all, each once."""
    most = max((pipeline.retries for pipeline in pipelines), key=lambda retries: retries.count)
    return {
        "retries": most.count,
        "retry_delay": timedelta(seconds=most.delay_s),
        "on_failure_callback": [StatelibNotifier(**arguments) for arguments in _notifiers(group, pipelines)],
    }


def _notifiers(group: str, pipelines: Sequence[Pipeline]) -> list[dict[str, Any]]:
    """Return the arguments of a StatelibNotifier per notifier of the pipelines, each once."""
    chosen: list[Notify] = []
    for entry in (entry for pipeline in pipelines for entry in pipeline.alerts.notify):
        if entry not in chosen:
            chosen.append(entry)
    return notifiers(f"group {group}", chosen)


def _deadlines(group: str, pipelines: Sequence[Pipeline]) -> list[Any] | None:
    """Return the deadlines of a run: those of the pipelines, each once per notifier of its pipelines."""
    chosen: list[tuple[str, dict[str, Any]]] = []
    for pipeline in pipelines:
        longest = pipeline.alerts.deadline
        for arguments in _notifiers(group, [pipeline]):
            if longest is not None and (longest, arguments) not in chosen:
                chosen.append((longest, arguments))
    return deadlines(chosen)


@task(task_id="abort", retries=2)
def abort(pipelines: list[str]) -> list[str]:
    """Abort the checkpoints of the run that are still pending, as after a run that somebody ended. The task is skipped
    if there are none. Return the names of their pipelines."""
    context, hook = get_current_context(), hook_of_run()
    pending = [(name, number) for name in pipelines if (number := steps.pending_of_run(hook, name, context))]
    if not pending:
        raise AirflowSkipException("no checkpoint is pending: nothing to abort")
    failed = runs.tasks_in_state(context, "failed")
    for name, number in pending:
        steps.abort(hook, name, number, failed, context)
    return [name for name, _ in pending]


_DOCUMENT = """\
### Group {group}
One Spark job takes the checkpoints of {names}.

`checkpoints` begins a checkpoint of each pipeline, runs the job, and then checks, registers and publishes each on its
own. A pipeline that fails does not stop the others: the task fails at the end and names it, and a retry runs only those
that failed. It fails, too, for a file of the group that does not load. Its log and its returned value have a line per
pipeline. `abort` aborts what a stopped run leaves pending.
Clearing a run is safe: an interval that a state has already is not applied again.
"""
