"""The steps of a checkpoint, a savepoint and a restore under Airflow: each calls one flow for the run it is part of.

The generated DAGs have a task for each step, the operators go through the same steps in one task. statelib is
imported inside the steps, so that parsing a DAG file stays cheap.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset

from statelib_airflow.failures import failing_fast
from statelib_airflow.hooks import StatelibHook
from statelib_airflow.runtime import observing, runs

if TYPE_CHECKING:
    from airflow.sdk import Context

    from statelib.flows.checkpoint.steps import Begun
    from statelib.flows.restore.plan import RestorePlan
    from statelib.model.failure import CheckpointFailureReason
    from statelib.model.ids import CheckpointId
    from statelib.model.record import CheckpointRecord

log = logging.getLogger(__name__)


SCHEME = "statelib://"


def state_asset(pipeline: str) -> Asset:
    """What every completed checkpoint updates: ``schedule=[state_asset("aircraft_activity")]`` runs a DAG after each.
    The event's extra has ``id``, ``bytes``, ``keys`` (None where they are not known),
    ``entries`` and ``duration_ms``."""
    return Asset(name=f"{pipeline}.state", uri=f"{SCHEME}{pipeline}/state")


def begin_checkpoint(
    hook: StatelibHook, pipeline: str, context: "Context", *, assume_ready: bool = False
) -> "Begun | None":
    """Allocate the checkpoint of the run's data interval, or find the one that holds it already. ``assume_ready``: a
    task before this one has waited for the interval's events.

    None: not yet, a run before this one is under way. Two that begin at once would supersede each other, or the
    later one would find the events of the earlier one missing."""
    from statelib.flows.checkpoint.steps import begin

    loaded, interval = hook.pipeline(pipeline), runs.data_interval(context)
    if runs.earlier_is_running(context):
        log.info("waiting for the runs before this one")
        return None
    with failing_fast(), observing.aborted(hook, loaded.name):
        begun = begin(hook.deployment(), loaded, interval, runs.owner(context), assume_ready=assume_ready)
    observing.in_log(loaded.name, begun.checkpoint_id)
    log.info("checkpoint %d %s", begun.checkpoint_id, "holds this interval" if begun.already_completed else "begun")
    return begun


def begin_savepoint(hook: StatelibHook, pipeline: str, request: Mapping[str, Any], context: "Context") -> "Begun":
    """Allocate a savepoint: ``request`` has ``format``, ``target`` (None or '': the storage's own), ``note`` and
    ``stop`` ('' or ``no``, ``suspend``, ``drain``)."""
    from statelib.flows.savepoint.steps import begin_savepoint as begin
    from statelib.flows.savepoint.steps import stop_mode

    loaded = hook.pipeline(pipeline)
    wanted = {"format": request["format"], "target": request["target"] or None, "note": request["note"] or ""}
    with failing_fast(), observing.aborted(hook, loaded.name):
        wanted["stop"] = stop_mode(request.get("stop"))
        begun = begin(hook.deployment(), loaded, **wanted, owner=runs.owner(context), key=runs.run_id(context))
    observing.in_log(loaded.name, begun.checkpoint_id)
    log.info("savepoint %d %s", begun.checkpoint_id, "is written already" if begun.already_completed else "begun")
    return begun


def check(hook: StatelibHook, pipeline: str, checkpoint_id: "CheckpointId") -> str:
    """Prove the checkpoint complete from storage; returns the URI of the report."""
    from statelib.flows.checkpoint.steps import check as prove

    loaded = hook.pipeline(pipeline)
    observing.in_log(loaded.name, checkpoint_id)
    with failing_fast():
        report = prove(hook.deployment(), loaded, checkpoint_id, partial(observing.judged, loaded.name))
    for warning in report.warnings:
        log.warning("checkpoint %d: %s", checkpoint_id, warning)
    log.info("checkpoint %d is complete: %s", checkpoint_id, report.report_uri)
    return str(report.report_uri)


def register(
    hook: StatelibHook, pipeline: str, checkpoint_id: "CheckpointId", report_uri: str, context: "Context"
) -> dict[str, int | None]:
    """The commit point; returns what :func:`_announce` does."""
    from statelib.flows.checkpoint.steps import register as commit

    loaded = hook.pipeline(pipeline)
    observing.in_log(loaded.name, checkpoint_id)
    with failing_fast():
        record = commit(hook.deployment(), loaded, checkpoint_id, report_uri)
    observing.registered(record, hook, loaded)
    return _announce(record, context)


def announce_again(
    hook: StatelibHook, name: str, checkpoint_id: "CheckpointId", context: "Context"
) -> dict[str, int | None]:
    """As :func:`_announce`, of a checkpoint that an earlier run completed."""
    from statelib.model.ids import PipelineName

    with failing_fast():
        return _announce(hook.deployment().catalog().get(PipelineName(name), checkpoint_id), context)


def _announce(record: "CheckpointRecord", context: "Context") -> dict[str, int | None]:
    """Id, bytes, keys, entries and duration of a completed checkpoint; sent along with the task's asset events."""
    from statelib.model.amounts import keys_and_entries

    duration_ms = (record.completed_at_ms or record.created_at_ms) - record.created_at_ms
    facts = {**contents_of(record), "duration_ms": duration_ms}
    for outlet in context["task"].outlets:
        if isinstance(outlet, Asset) and outlet.uri.startswith(SCHEME):
            context["outlet_events"][outlet].extra = {**facts}
    contents = keys_and_entries(record.keys, record.entries or 0)
    log.info(
        "checkpoint %(id)d is registered: %(bytes)d bytes, %(duration_ms)d ms, %(contents)s",
        {**facts, "contents": contents},
    )
    return facts


def contents_of(record: "CheckpointRecord") -> dict[str, int | None]:
    """Id, bytes, distinct keys (None where they are not known) and entries of a completed checkpoint."""
    return {
        "id": int(record.checkpoint_id),
        "bytes": record.size_bytes or 0,
        "keys": record.keys,
        "entries": record.entries or 0,
    }


def abort(
    hook: StatelibHook, name: str, checkpoint_id: "CheckpointId", failed: list[str], context: "Context"
) -> "CheckpointRecord":
    """Give a pending checkpoint up because the tasks ``failed``; a completed one stays completed."""
    from statelib.flows.checkpoint.steps import abort as give_up

    text = f"{', '.join(failed)} failed" if failed else "ended before it was registered"
    reason = f"run {runs.run_id(context)}: {text}"
    observing.in_log(name, checkpoint_id)
    with failing_fast(), observing.aborted(hook, name):
        return give_up(hook.deployment(), name, checkpoint_id, reason, failure_of(failed))


def failure_of(failed: list[str]) -> "CheckpointFailureReason":
    """The reason code of a run whose tasks ``failed``; none did: somebody ended the run."""
    from statelib.model.failure import CheckpointFailureReason

    if not failed:
        return CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN
    if {"begin", "snapshot"} & set(failed):
        return CheckpointFailureReason.TASK_FAILURE
    return CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE


@dataclass(frozen=True)
class RestoreRequest:
    """What to restore: ``checkpoint`` is an id or an absolute path; ``parallelism`` None leaves it as it is."""

    checkpoint: str
    claim_mode: str = "NO_CLAIM"
    parallelism: int | None = None
    allow_non_restored_state: bool = False

    def rehearsal(self, pipeline_file: str, parallelism: int) -> list[str]:
        """Arguments of ``statelib_jobs/rehearse_restore.py``."""
        allowed = ["--allow-non-restored-state"] if self.allow_non_restored_state else []
        wanted = ["--checkpoint", self.checkpoint, "--parallelism", str(parallelism)]
        return ["--pipeline", pipeline_file, *wanted, *allowed]


def plan_restore(hook: StatelibHook, pipeline: str, request: RestoreRequest, context: "Context") -> "RestorePlan":
    """Dry run of the restore. The run holds the checkpoint from here on, so that retention leaves it alone."""
    from statelib.flows.restore.holding import hold_source
    from statelib.flows.restore.steps import plan_restore as plan
    from statelib.model.record import ClaimMode

    loaded = hook.pipeline(pipeline)
    if request.allow_non_restored_state:
        loaded = loaded.allowing_non_restored_state()
    with failing_fast():
        here = hook.deployment()
        planned = plan(here, loaded, request.checkpoint, request.parallelism, ClaimMode(request.claim_mode))
        hold_source(here, planned, runs.run_id(context))
    log.info("%s", planned.describe())
    return planned


def release(hook: StatelibHook, plan: "RestorePlan", context: "Context") -> None:
    """The restore is over, or will not happen: retention may have its checkpoint."""
    from statelib.flows.restore.holding import release_source

    with failing_fast():
        release_source(hook.deployment(), plan, runs.run_id(context))


def switch(hook: StatelibHook, pipeline: str, plan: "RestorePlan", context: "Context") -> dict[str, int | None]:
    """Make the planned checkpoint the pipeline's head; returns the head."""
    from statelib.flows.restore.steps import apply_restore

    loaded = hook.pipeline(pipeline)
    with failing_fast(), observing.aborted(hook, loaded.name):
        head = apply_restore(hook.deployment(), loaded, plan, runs.owner(context))
    observing.restored(head.pipeline)
    release(hook, plan, context)
    log.info("%s continues from checkpoint %s", head.pipeline, head.head)
    return {"head": head.head, "generation": head.generation, "parallelism": head.parallelism}
