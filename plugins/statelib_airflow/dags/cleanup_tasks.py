"""The tasks of the DAGs ``state_cleanup`` and ``state_verify``. Each returns what it did."""

from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import TriggerRule, get_current_context, task

from statelib_airflow.hooks import hook_of_run
from statelib_airflow.runtime import cleaning


@task(task_id="retention")
def retention() -> dict[str, list[int]]:
    """Retire the checkpoints that the pipeline files do not keep. Return their ids per pipeline."""
    return cleaning.retention(hook_of_run())


@task(task_id="gc", trigger_rule=TriggerRule.ALL_DONE)
def gc() -> dict[str, dict[str, int]]:
    """Delete the files that nothing needs any more. Return the deleted files and bytes per pipeline."""
    return cleaning.gc(hook_of_run())


@task(task_id="orphans", trigger_rule=TriggerRule.ALL_DONE)
def orphans() -> dict[str, dict[str, Any]]:
    """Report orphans, and delete them if the param ``dry_run`` is off. Return their number and bytes per pipeline."""
    params = get_current_context()["params"]
    return cleaning.orphans(hook_of_run(), grace_hours=params["grace_hours"], dry_run=params["dry_run"])


@task(task_id="troubles", trigger_rule=TriggerRule.ONE_FAILED)
def troubles() -> None:
    """Fail the run if an earlier task failed. The later tasks run anyway, and without this one the last of them would
    decide whether the run succeeded."""
    raise AirflowFailException("a task before failed: its log names the pipelines that are in trouble, and what to do")


@task(task_id="pipelines")
def pipelines() -> list[str]:
    """Return the pipelines to verify: all in the catalog, or the one of the run's params."""
    return cleaning.pipelines(hook_of_run(), get_current_context()["params"]["pipeline"])
