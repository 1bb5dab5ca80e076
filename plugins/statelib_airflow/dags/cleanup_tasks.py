"""Tasks of ``state_cleanup`` and ``state_verify``: what each did is its result."""

from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import TriggerRule, get_current_context, task

from statelib_airflow.hooks import hook_of_run
from statelib_airflow.runtime import cleaning


@task(task_id="retention")
def retention() -> dict[str, list[int]]:
    """Let go of what the pipeline files do not keep; returns the ids of each pipeline."""
    return cleaning.retention(hook_of_run())


@task(task_id="gc", trigger_rule=TriggerRule.ALL_DONE)
def gc() -> dict[str, dict[str, int]]:
    """Delete what nothing needs any more; returns files and bytes of each pipeline."""
    return cleaning.gc(hook_of_run())


@task(task_id="orphans", trigger_rule=TriggerRule.ALL_DONE)
def orphans() -> dict[str, dict[str, Any]]:
    """Report orphans, and delete them if the run's params say so; returns how many and whether they are gone."""
    params = get_current_context()["params"]
    return cleaning.orphans(hook_of_run(), grace_hours=params["grace_hours"], dry_run=params["dry_run"])


@task(task_id="troubles", trigger_rule=TriggerRule.ONE_FAILED)
def troubles() -> None:
    """Fail the run if a task before failed: those behind it run all the same, and the last one alone would decide."""
    raise AirflowFailException("a task before failed: its log names the pipelines that are in trouble, and what to do")


@task(task_id="pipelines")
def pipelines() -> list[str]:
    """Which pipelines to verify: all that the catalog knows, or the one of the params."""
    return cleaning.pipelines(hook_of_run(), get_current_context()["params"]["pipeline"])
