"""Tasks of the dispose DAG: say what would be deleted, and delete it if that was confirmed."""

from typing import Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import get_current_context, task

from statelib_airflow.hooks import hook_of_run
from statelib_airflow.runtime import cleaning


@task(task_id="preview")
def preview(pipeline: str) -> dict[str, Any]:
    """What deleting the savepoint would delete; refuses what is no savepoint, or is needed."""
    return cleaning.dispose(hook_of_run(), pipeline, get_current_context()["params"]["savepoint"], dry_run=True)


@task(task_id="dispose")
def dispose(pipeline: str) -> dict[str, Any]:
    """Delete it."""
    params = get_current_context()["params"]
    if not params["confirm"]:
        raise AirflowSkipException("not confirmed: nothing was deleted")
    return cleaning.dispose(hook_of_run(), pipeline, params["savepoint"], dry_run=False)
