"""Bodies of the tasks of ``state_cleanup``: one flow each, and what it did as the task's result."""

import logging
from typing import Any

from airflow.sdk import get_current_context, task

from plugins.statelib_airflow.failures import failing_fast

log = logging.getLogger(__name__)


@task(task_id="retention")
def retention() -> dict[str, list[int]]:
    """Let go of what the pipeline files do not keep; returns the ids of each pipeline."""
    from statelib.flows.cleanup import retire
    from statelib.flows.wiring import deployment

    with failing_fast():
        retired = retire(deployment())
    for each in retired:
        what = "has no valid pipeline file: nothing done" if each.policy is None else f"let go of {each.checkpoints}"
        log.info("%s %s", each.pipeline, what)
    return {each.pipeline: [int(number) for number in each.checkpoints] for each in retired}


@task(task_id="gc")
def gc() -> dict[str, dict[str, int]]:
    """Delete what nothing needs any more; returns files and bytes of each pipeline."""
    from statelib.flows.cleanup import collect_garbage
    from statelib.flows.wiring import deployment

    with failing_fast():
        collected = collect_garbage(deployment())
    for each in collected:
        log.info("%s: %d files, %d bytes deleted", each.pipeline, len(each.files), each.size_bytes)
        for uri in each.refused:
            log.warning("%s: left alone, it lies outside the checkpoint storage: %s", each.pipeline, uri)
    return {each.pipeline: {"files": len(each.files), "bytes": each.size_bytes} for each in collected}


@task(task_id="orphans")
def orphans() -> dict[str, dict[str, Any]]:
    """Report orphans, and delete them if the run's params say so; returns how many and whether they are gone."""
    from statelib.flows.orphans import HOUR_MS
    from statelib.flows.orphans import orphans as sweep
    from statelib.flows.wiring import deployment

    params = get_current_context()["params"]
    with failing_fast():
        found = sweep(deployment(), grace_ms=params["grace_hours"] * HOUR_MS, dry_run=params["dry_run"])
    for each in found:
        for uri in each.files:
            log.info("%s: orphan %s", each.pipeline, uri)
    return {
        each.pipeline: {"files": len(each.files), "bytes": each.size_bytes, "deleted": each.deleted} for each in found
    }
