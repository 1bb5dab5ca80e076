"""Keeping the storage: retention, gc, orphans and verification, one flow each, and what it did as plain values."""

import logging
from typing import Any

from plugins.statelib_airflow import observing
from plugins.statelib_airflow.failures import failing_fast
from plugins.statelib_airflow.hooks import StatelibHook

log = logging.getLogger(__name__)


def retention(hook: StatelibHook, pipeline: str | None = None) -> dict[str, list[int]]:
    """Let go of what the pipeline files do not keep; returns the ids of each pipeline."""
    from statelib.flows.cleanup import retire

    with failing_fast():
        retired = retire(hook.deployment(), pipeline)
    for each in retired:
        what = "has no valid pipeline file: nothing done" if each.policy is None else f"let go of {each.checkpoints}"
        log.info("%s %s", each.pipeline, what)
    return {each.pipeline: [int(number) for number in each.checkpoints] for each in retired}


def gc(hook: StatelibHook, pipeline: str | None = None) -> dict[str, dict[str, int]]:
    """Delete what nothing needs any more; returns files and bytes of each pipeline."""
    from statelib.flows.cleanup import collect_garbage

    with failing_fast():
        collected = collect_garbage(hook.deployment(), pipeline)
    observing.collected(collected)
    for each in collected:
        log.info("%s: %d files, %d bytes deleted", each.pipeline, len(each.files), each.size_bytes)
        for uri in each.refused:
            log.warning("%s: left alone, it lies outside the checkpoint storage: %s", each.pipeline, uri)
    return {each.pipeline: {"files": len(each.files), "bytes": each.size_bytes} for each in collected}


def orphans(
    hook: StatelibHook, pipeline: str | None = None, *, grace_hours: int, dry_run: bool
) -> dict[str, dict[str, Any]]:
    """Report orphans, and delete them unless ``dry_run``; returns how many and whether they are gone."""
    from statelib.flows.orphans import HOUR_MS
    from statelib.flows.orphans import orphans as sweep

    with failing_fast():
        found = sweep(hook.deployment(), pipeline, grace_ms=grace_hours * HOUR_MS, dry_run=dry_run)
    observing.orphans(found)
    for each in found:
        for uri in each.files:
            log.info("%s: orphan %s", each.pipeline, uri)
    return {
        each.pipeline: {"files": len(each.files), "bytes": each.size_bytes, "deleted": each.deleted} for each in found
    }


def dispose(hook: StatelibHook, pipeline: str, savepoint: str, *, dry_run: bool) -> dict[str, Any]:
    """Delete a savepoint and all that only it needs, or tell what that would be."""
    from statelib.flows.cleanup import dispose as delete
    from statelib.model.ids import CheckpointId, PipelineName

    with failing_fast():
        done = delete(hook.deployment(), PipelineName(pipeline), CheckpointId(int(savepoint)), dry_run=dry_run)
    what = "would be deleted" if dry_run else "deleted"
    log.info("savepoint %s/%s: %d files, %d bytes %s", pipeline, savepoint, len(done.files), done.size_bytes, what)
    for uri in done.files:
        log.info("%s: %s", what, uri)
    return {"files": len(done.files), "bytes": done.size_bytes, "refused": list(done.refused), "deleted": not dry_run}


def pipelines(hook: StatelibHook, pipeline: str | None = None) -> list[str]:
    """The pipelines that ever began a checkpoint; or that one, AirflowFailException (``no-pipeline``) if unknown."""
    from statelib.flows.inspection import check_pipeline

    with failing_fast():
        here = hook.deployment()
        return [check_pipeline(here, pipeline)] if pipeline else list(here.catalog().pipelines())


def verify(hook: StatelibHook, pipeline: str, subset: str, seed: str) -> dict[str, Any]:
    """Verify the completed checkpoints of a pipeline; ``problems`` is empty where all is whole. ``seed``: what a
    percentage is chosen by; parts, such as ``3/20``, need none."""
    from statelib.flows.sampling import seed_of
    from statelib.flows.verification import verify_pipeline

    with failing_fast():
        found = verify_pipeline(hook.deployment(), pipeline, subset=subset, seed=seed_of(subset, seed))
    observing.verified(found)
    log.info(
        "%s: %d checkpoints, %d files, %d of them read (%d bytes), %d problems",
        *(found.pipeline, found.checkpoints, found.files, found.files_read, found.bytes_read, len(found.problems)),
    )
    for problem in found.problems:
        log.error("%s", problem)
    return {
        "checkpoints": found.checkpoints,
        "files": found.files,
        "files_read": found.files_read,
        "bytes_read": found.bytes_read,
        "problems": list(found.problems),
    }
