"""The tasks of the dispose DAG: list what would be deleted, and delete it if the run confirms it."""

from typing import Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import get_current_context, task

from statelib_airflow.hooks import hook_of_run
from statelib_airflow.runtime import cleaning


@task(task_id="preview")
def preview(pipeline: str) -> dict[str, Any]:
    """Return the files that would be deleted. Fail if the checkpoint is no savepoint, or if it is needed."""
    return cleaning.dispose(hook_of_run(), pipeline, get_current_context()["params"]["savepoint"], dry_run=True)


@task(task_id="dispose")
def dispose(pipeline: str) -> dict[str, Any]:
    """Delete the savepoint of the run's params. The task is skipped unless the param ``confirm`` is on."""
    params = get_current_context()["params"]
    if not params["confirm"]:
        raise AirflowSkipException("not confirmed: nothing was deleted")
    return cleaning.dispose(hook_of_run(), pipeline, params["savepoint"], dry_run=False)
