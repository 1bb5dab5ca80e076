"""Retention, garbage collection, the orphan sweep and verification as steps of tasks. Each returns plain values."""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from statelib.errors import RetryableError
from statelib.model.amounts import number_of
from statelib_airflow.failures import failing_fast
from statelib_airflow.hooks import StatelibHook
from statelib_airflow.runtime import observing

if TYPE_CHECKING:
    from statelib.flows.cleanup.each_pipeline import Troubles

log = logging.getLogger(__name__)


def retention(hook: StatelibHook, pipeline: str | None = None) -> dict[str, list[int]]:
    """Retire the checkpoints that the pipeline files do not keep. Return their ids per pipeline.

    If the file of a pipeline is gone, its checkpoints stay, and the log names the command that deletes them."""
    from statelib.flows.cleanup.each_pipeline import Troubles
    from statelib.flows.cleanup.retention import retire
    from statelib.flows.cleanup.without_file import without_file

    troubles = Troubles()
    with failing_fast():
        retired = retire(hook.deployment(), pipeline, troubles=troubles)
        offered = without_file(hook.deployment(), pipeline, troubles)
    for each in retired:
        what = "has no valid pipeline file: nothing done" if each.policy is None else f"retired {each.checkpoints}"
        log.info("%s %s", each.pipeline, what)
        for checkpoint in each.kept:
            log.info("%s/%s stays: %s", each.pipeline, checkpoint.checkpoint_id, checkpoint.because)
    for offer in offered:
        log.warning(
            "%s has no pipeline file: %s, %s, %s stay; %s",
            *(offer.pipeline, number_of(len(offer.checkpoints), "checkpoint"), number_of(offer.files, "file")),
            number_of(offer.size_bytes, "byte"),
            f"{offer.command} deletes them" if offer.command else offer.reason,
        )
    _end_in_trouble(troubles)
    return {each.pipeline: [int(number) for number in each.checkpoints] for each in retired}


def gc(hook: StatelibHook, pipeline: str | None = None) -> dict[str, dict[str, int]]:
    """Delete the files that nothing needs any more. Return the deleted files and bytes per pipeline."""
    from statelib.flows.cleanup.each_pipeline import Troubles
    from statelib.flows.cleanup.garbage import REFUSED, collect_garbage

    troubles = Troubles()
    with failing_fast():
        collected = collect_garbage(hook.deployment(), pipeline, troubles=troubles)
    observing.collected(collected)
    for each in collected:
        files, size = number_of(len(each.files), "file"), number_of(each.size_bytes, "byte")
        log.info("%s: %s, %s deleted", each.pipeline, files, size)
        for uri in each.refused:
            log.warning("%s: left alone, %s: %s", each.pipeline, REFUSED, uri)
    _end_in_trouble(troubles)
    return {each.pipeline: {"files": len(each.files), "bytes": each.size_bytes} for each in collected}


def orphans(
    hook: StatelibHook, pipeline: str | None = None, *, grace_hours: int, dry_run: bool
) -> dict[str, dict[str, Any]]:
    """Report orphans, and delete them unless ``dry_run``. Return their number and bytes per pipeline."""
    from statelib.flows.cleanup.each_pipeline import Troubles
    from statelib.flows.cleanup.orphans import orphans as sweep
    from statelib.model.moments import HOUR_MS

    troubles = Troubles()
    grace_ms = grace_hours * HOUR_MS
    with failing_fast():
        results = sweep(hook.deployment(), pipeline, grace_ms=grace_ms, dry_run=dry_run, troubles=troubles)
    observing.orphans(results)
    for each in results:
        for uri in each.files:
            log.info("%s: orphan %s", each.pipeline, uri)
    _end_in_trouble(troubles)
    return {
        each.pipeline: {"files": len(each.files), "bytes": each.size_bytes, "deleted": each.deleted} for each in results
    }


def one_after_another(
    steps: Mapping[str, Callable[[StatelibHook, str | None], Any]], hook: StatelibHook, pipeline: str | None
) -> dict[str, Any]:
    """Run all steps, also after one has failed, and return their results by name.

    At the end, raise the first error that a retry can help, else the first error."""
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
    """Fail the task if a pipeline was left out, with an error that names every such pipeline."""
    for trouble in troubles.in_order():
        log.error("%s (%s)", trouble.message, trouble.hint)
    with failing_fast():
        troubles.check()


def dispose(hook: StatelibHook, pipeline: str, savepoint: str, *, dry_run: bool) -> dict[str, Any]:
    """Delete a savepoint and the files that only it needs; with ``dry_run``, only return what would be deleted."""
    from statelib.flows.cleanup.garbage import dispose as delete
    from statelib.model.ids import CheckpointId, PipelineName

    with failing_fast():
        done = delete(hook.deployment(), PipelineName(pipeline), CheckpointId(int(savepoint)), dry_run=dry_run)
    what = "would be deleted" if dry_run else "deleted"
    files, size = number_of(len(done.files), "file"), number_of(done.size_bytes, "byte")
    log.info("savepoint %s/%s: %s, %s %s", pipeline, savepoint, files, size, what)
    for uri in done.files:
        log.info("%s: %s", what, uri)
    return {"files": len(done.files), "bytes": done.size_bytes, "refused": list(done.refused), "deleted": not dry_run}


def pipelines(hook: StatelibHook, pipeline: str | None = None) -> list[str]:
    """Return the pipelines that ever began a checkpoint, or the given one alone.

    Raise AirflowFailException (``no-pipeline``) if the given one never began a checkpoint."""
    from statelib.flows.views.inspection import check_pipeline

    with failing_fast():
        deployment = hook.deployment()
        return [check_pipeline(deployment, pipeline)] if pipeline else list(deployment.catalog().pipelines())


def verify(hook: StatelibHook, pipeline: str, subset: str, seed: str) -> dict[str, Any]:
    """Verify the completed checkpoints of a pipeline. ``problems`` of the result is empty if all are whole.

    ``seed`` chooses the files of a percentage; a part, such as ``3/20``, needs no seed."""
    from statelib.flows.views.verification import verify_pipeline
    from statelib.savepoints.verification.sampling import seed_of

    with failing_fast():
        result = verify_pipeline(hook.deployment(), pipeline, subset=subset, seed=seed_of(subset, seed))
    observing.verified(result)
    log.info(
        "%s: %s, %s, %d of them read (%s), %s",
        result.pipeline,
        number_of(result.checkpoints, "checkpoint"),
        number_of(result.files, "file"),
        result.files_read,
        number_of(result.bytes_read, "byte"),
        number_of(len(result.problems), "problem"),
    )
    for problem in result.problems:
        log.error("%s", problem)
    return {
        "checkpoints": result.checkpoints,
        "files": result.files,
        "files_read": result.files_read,
        "bytes_read": result.bytes_read,
        "problems": list(result.problems),
    }
