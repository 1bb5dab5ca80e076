"""The runs of another DAG, as a task may see them and run them again: through Airflow's task execution API."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk.api.datamodels._generated import DagRun

ENDED = ("success", "failed")


def is_paused(dag_id: str) -> bool:
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    return bool(RuntimeTaskInstance.get_dag(dag_id).is_paused)


def newest_first(dag_id: str) -> Iterator["DagRun"]:
    """All runs that have a logical date."""
    from airflow.sdk.execution_time.comms import GetPreviousDagRun, PreviousDagRunResult
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    before = datetime.max.replace(tzinfo=UTC)
    while True:
        answer = SUPERVISOR_COMMS.send(GetPreviousDagRun(dag_id=dag_id, logical_date=before))
        run = answer.dag_run if isinstance(answer, PreviousDagRunResult) else None
        if run is None or run.logical_date is None:
            return
        yield run
        before = run.logical_date


def clear(run: "DagRun") -> None:
    """Run all its tasks again. Asking to trigger a run that exists, with reset, is how a task says that."""
    from airflow.sdk.execution_time.comms import ErrorResponse, TriggerDagRun
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    wanted = TriggerDagRun(
        dag_id=run.dag_id, run_id=run.run_id, logical_date=run.logical_date, conf=run.conf, reset_dag_run=True
    )
    answer = SUPERVISOR_COMMS.send(wanted)
    if isinstance(answer, ErrorResponse):
        raise AirflowFailException(f"{run.dag_id} {run.run_id} could not be run again: {answer.error}")
