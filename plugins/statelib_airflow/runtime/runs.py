"""What a task reads of the run it is part of."""

from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowFailException

from statelib.model.moments import epoch_ms

if TYPE_CHECKING:
    from airflow.sdk import Context

    from statelib.model.checkpoint import DataInterval


def data_interval(context: "Context") -> "DataInterval":
    """The run's data interval; AirflowFailException where the run has none."""
    from statelib.model.checkpoint import DataInterval

    run = context["dag_run"]
    start, end = run.data_interval_start, run.data_interval_end
    if start is None or end is None:
        raise AirflowFailException(
            f"run {run.run_id} has no data interval, hence no events to apply: trigger it with a logical date, "
            f"or use `airflow backfill create --dag-id {run.dag_id} --from-date ... --to-date ...`"
        )
    return DataInterval(epoch_ms(start), epoch_ms(end))


def run_id(context: "Context") -> str:
    return context["dag_run"].run_id


def owner(context: "Context") -> str:
    """Who holds the pipeline, as the catalog writes it down."""
    instance = context["ti"]
    return f"{instance.dag_id}/{instance.run_id}/{instance.task_id}/{instance.try_number}"


def failed_tasks(context: "Context") -> list[str]:
    instance = context["ti"]
    states = instance.get_task_states(dag_id=instance.dag_id, run_ids=[instance.run_id]).get(instance.run_id, {})
    return sorted(name for name, state in states.items() if state == "failed")


def is_last_try(context: "Context") -> bool:
    instance = context["ti"]
    return instance.try_number > instance.max_tries


def earlier_is_running(context: "Context") -> bool:
    """Whether any run of the same DAG before this one, by logical date, is under way right now. The one just before it
    may be over, and an earlier one not: runs by hand lie between those of the schedule."""
    return context["ti"].get_previous_dagrun("running") is not None
