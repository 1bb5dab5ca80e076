"""Properties of the DAG run that a task belongs to."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import Context


def run_id(context: "Context") -> str:
    """Return the id of the run."""
    return context["dag_run"].run_id


def task_key(context: "Context") -> str:
    """Return a key of this task of the run, which all of its tries have, also after a person has cleared it. Runs of
    different DAGs may have the same id, and a run may have several tasks of one kind. A run that is triggered, deleted,
    and triggered again with the same id has another ``run_after``."""
    instance, run_after = context["ti"], context["dag_run"].run_after
    index = getattr(instance, "map_index", -1)
    mapped = f"/{index}" if index is not None and index >= 0 else ""
    return f"{instance.dag_id}/{instance.run_id}/{instance.task_id}{mapped}/{run_after.isoformat()}"


def wish_key(context: "Context") -> str:
    """Return a key of this task of the run that all tries have up to the next time that a person clears the task. Runs
    that were deleted and made again with the same id have other keys."""
    cleared_after = context["ti"].max_tries - (context["task"].retries or 0)
    start = context["dag_run"].start_date
    return f"{task_key(context)}/{cleared_after}/{start.isoformat() if start else ''}"


def owner(context: "Context") -> str:
    """Return the name of this try of the task, under which it holds the pipeline in the catalog."""
    instance = context["ti"]
    return f"{owner_prefix(context)}{instance.task_id}/{instance.try_number}"


def owner_prefix(context: "Context") -> str:
    """Return the text with which the names of all tries of all tasks of this run begin."""
    instance = context["ti"]
    return f"{instance.dag_id}/{instance.run_id}/"


def tasks_in_state(context: "Context", state: str) -> list[str]:
    """Return the ids of the run's tasks that are in a state of Airflow, such as ``failed``."""
    instance = context["ti"]
    states = instance.get_task_states(dag_id=instance.dag_id, run_ids=[instance.run_id]).get(instance.run_id, {})
    return sorted(name for name, present in states.items() if present == state)


def is_last_try(context: "Context") -> bool:
    """Return whether Airflow does not retry the task any more."""
    instance = context["ti"]
    return instance.try_number > instance.max_tries


def earlier_is_running(context: "Context") -> bool:
    """Return whether an earlier run of the DAG, by logical date, is running now.

    The run just before this one may have ended while an earlier one still runs, because manual runs lie between the
    scheduled ones."""
    return context["ti"].get_previous_dagrun("running") is not None
