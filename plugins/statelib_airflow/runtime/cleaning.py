"""Keeping the storage: retention, gc, orphans and verification, one flow each, and what it did as plain values."""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from statelib.errors import RetryableError
from statelib_airflow.failures import failing_fast
from statelib_airflow.hooks import StatelibHook
from statelib_airflow.runtime import observing

if TYPE_CHECKING:
    from statelib.flows.cleanup.each_pipeline import Troubles

log = logging.getLogger(__name__)


def retention(hook: StatelibHook, pipeline: str | None = None) -> dict[str, list[int]]:
    """Let go of what the pipeline files do not keep; returns the ids of each pipeline. What is stored of a pipeline
    whose file is gone is logged, with how to delete it."""
    from statelib.flows.cleanup.each_pipeline import Troubles
    from statelib.flows.cleanup.retention import retire
    from statelib.flows.cleanup.without_file import without_file

    troubles = Troubles()
    with failing_fast():
        retired = retire(hook.deployment(), pipeline, troubles=troubles)
        offered = without_file(hook.deployment(), pipeline, troubles)
    for each in retired:
        what = "has no valid pipeline file: nothing done" if each.policy is None else f"let go of {each.checkpoints}"
        log.info("%s %s", each.pipeline, what)
        for kept in each.kept:
            log.info("%s/%s stays: %s", each.pipeline, kept.checkpoint_id, kept.because)
    for offer in offered:
        log.warning(
            "%s has no pipeline file: %d checkpoints, %d files, %d bytes stay; %s",
            *(offer.pipeline, len(offer.checkpoints), offer.files, offer.size_bytes),
            f"{offer.command} deletes them" if offer.command else offer.reason,
        )
    _end_in_trouble(troubles)
    return {each.pipeline: [int(number) for number in each.checkpoints] for each in retired}


def gc(hook: StatelibHook, pipeline: str | None = None) -> dict[str, dict[str, int]]:
    """Delete what nothing needs any more; returns files and bytes of each pipeline."""
    from statelib.flows.cleanup.each_pipeline import Troubles
    from statelib.flows.cleanup.garbage import collect_garbage

    troubles = Troubles()
    with failing_fast():
        collected = collect_garbage(hook.deployment(), pipeline, troubles=troubles)
    observing.collected(collected)
    for each in collected:
        log.info("%s: %d files, %d bytes deleted", each.pipeline, len(each.files), each.size_bytes)
        for uri in each.refused:
            log.warning("%s: left alone, it lies outside the checkpoint storage: %s", each.pipeline, uri)
    _end_in_trouble(troubles)
    return {each.pipeline: {"files": len(each.files), "bytes": each.size_bytes} for each in collected}


def orphans(
    hook: StatelibHook, pipeline: str | None = None, *, grace_hours: int, dry_run: bool
) -> dict[str, dict[str, Any]]:
    """Report orphans, and delete them unless ``dry_run``; returns how many and whether they are gone."""
    from statelib.flows.cleanup.each_pipeline import Troubles
    from statelib.flows.cleanup.orphans import HOUR_MS
    from statelib.flows.cleanup.orphans import orphans as sweep

    troubles = Troubles()
    grace_ms = grace_hours * HOUR_MS
    with failing_fast():
        found = sweep(hook.deployment(), pipeline, grace_ms=grace_ms, dry_run=dry_run, troubles=troubles)
    observing.orphans(found)
    for each in found:
        for uri in each.files:
            log.info("%s: orphan %s", each.pipeline, uri)
    _end_in_trouble(troubles)
    return {
        each.pipeline: {"files": len(each.files), "bytes": each.size_bytes, "deleted": each.deleted} for each in found
    }


def one_after_another(
    steps: Mapping[str, Callable[[StatelibHook, str | None], Any]], hook: StatelibHook, pipeline: str | None
) -> dict[str, Any]:
    """Take all steps, the later ones also where one before failed, and return what each did. Raises what failed then,
    first of all what a retry can help."""
    results: dict[str, Any] = {}
    failed: list[Exception] = []
    for name, step in steps.items():
        try:
            results[name] = step(hook, pipeline)
        except (RetryableError, AirflowFailException) as error:
            log.exception("%s failed", name)
            failed.append(error)
    if failed:
        raise next((error for error in failed if isinstance(error, RetryableError)), failed[0])
    return results


def _end_in_trouble(troubles: "Troubles") -> None:
    """Fail the task, once all other pipelines are done, with the name of every pipeline that was left out."""
    for trouble in troubles.found():
        log.error("%s (%s)", trouble.message, trouble.hint)
    with failing_fast():
        troubles.check()


def dispose(hook: StatelibHook, pipeline: str, savepoint: str, *, dry_run: bool) -> dict[str, Any]:
    """Delete a savepoint and all that only it needs, or tell what that would be."""
    from statelib.flows.cleanup.garbage import dispose as delete
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
    from statelib.flows.views.inspection import check_pipeline

    with failing_fast():
        here = hook.deployment()
        return [check_pipeline(here, pipeline)] if pipeline else list(here.catalog().pipelines())


def verify(hook: StatelibHook, pipeline: str, subset: str, seed: str) -> dict[str, Any]:
    """Verify the completed checkpoints of a pipeline; ``problems`` is empty where all is whole. ``seed``: what a
    percentage is chosen by; parts, such as ``3/20``, need none."""
    from statelib.flows.views.verification import verify_pipeline
    from statelib.savepoints.sampling import seed_of

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
