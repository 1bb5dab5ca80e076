"""The steps of a checkpoint, a savepoint and a restore under Airflow: each calls one flow for the run it is part of.

The generated DAGs have a task for each step, the operators go through the same steps in one task. statelib is
imported inside the steps, so that parsing a DAG file stays cheap.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowSkipException
from airflow.sdk import Asset

from statelib_airflow.airflow_internals import asset_was_updated
from statelib_airflow.failures import failing_fast
from statelib_airflow.hooks import StatelibHook
from statelib_airflow.runtime import intervals, observing, runs

if TYPE_CHECKING:
    from airflow.sdk import Context

    from statelib.flows.checkpoint.steps import Begun
    from statelib.flows.mending.plan import MendPlan
    from statelib.flows.restore.plan import RestorePlan
    from statelib.flows.wiring import Deployment
    from statelib.model.checkpoint import DataInterval
    from statelib.model.failure import CheckpointFailureReason
    from statelib.model.ids import AttemptId, CheckpointId
    from statelib.model.record import CheckpointRecord, CheckpointState

log = logging.getLogger(__name__)


SCHEME = "statelib://"


def state_asset(pipeline: str) -> Asset:
    """Return the asset that every completed checkpoint of a pipeline updates.

    ``schedule=[state_asset("aircraft_activity")]`` runs a DAG after each checkpoint. The event's extra has ``id``,
    ``bytes``, ``keys`` (None if unknown), ``entries``, ``duration_ms``, and ``start`` and ``end`` of the interval."""
    return Asset(name=f"{pipeline}.state", uri=f"{SCHEME}{pipeline}/state")


def asset_of(uri: str) -> Asset:
    """Return the asset of a URI: the state of a pipeline, or one whose name is its URI."""
    pipeline = uri.removeprefix(SCHEME).removesuffix("/state")
    return state_asset(pipeline) if uri == f"{SCHEME}{pipeline}/state" else Asset(uri=uri)


def was_updated(uri: str, since_ms: int) -> bool:
    """Return whether the asset of a URI was updated at a moment or later. Works inside a task."""
    from statelib.model.moments import moment_of

    # Airflow stores a URI in its normalized form, such as one without a slash at the end.
    return asset_was_updated(asset_of(uri).uri, moment_of(since_ms).isoformat())


class NotYetError(AirflowException):
    """The run cannot begin its checkpoint yet. A later try can."""


def begin_checkpoint(hook: StatelibHook, pipeline: str, context: "Context", *, assume_ready: bool = False) -> "Begun":
    """Allocate the checkpoint of the run's data interval, or find the completed one of this interval. ``assume_ready``:
    an earlier task has waited for the interval's events.

    Raise NotYetError while an earlier run is under way: two runs that begin at once would supersede each other, or the
    later one would find the events of the earlier one missing. So too while the interval is not over."""
    from statelib.flows.checkpoint.steps import begin

    loaded = hook.pipeline(pipeline)
    if runs.earlier_is_running(context):
        raise NotYetError("a run before this one is under way: max_active_runs=1 lets no run start before it ends")
    interval = intervals.interval_of_run(hook, loaded, context)
    if interval is None:
        return _head_of(hook, loaded.name)
    if not intervals.is_over(loaded, interval, context):
        raise NotYetError(intervals.not_over(interval))
    with failing_fast(), observing.aborted(hook, loaded.name):
        owner = runs.owner(context)
        begun = begin(hook.deployment(), loaded, interval, owner, assume_ready=assume_ready, was_updated=was_updated)
    observing.in_log(loaded.name, begun.checkpoint_id)
    log.info("checkpoint %d %s", begun.checkpoint_id, "holds this interval" if begun.already_completed else "begun")
    return begun


def _head_of(hook: StatelibHook, name: str) -> "Begun":
    """Return the head of the pipeline as the checkpoint that a run has nothing to add to."""
    from statelib.flows.checkpoint.steps import Begun
    from statelib.model.ids import PipelineName

    head = hook.deployment().catalog().head(PipelineName(name)).head
    if head is None:
        raise AirflowSkipException("the asset was updated before schedule.start: nothing to do")
    return Begun(head, already_completed=True)


def begin_savepoint(hook: StatelibHook, pipeline: str, request: Mapping[str, Any], context: "Context") -> "Begun":
    """Allocate a savepoint: ``request`` has ``format``, ``target`` (None or '': the storage's own), ``note`` and
    ``stop`` ('' or ``no``, ``suspend``, ``drain``)."""
    from statelib.flows.savepoint.steps import begin_savepoint as begin
    from statelib.flows.savepoint.steps import stop_mode

    loaded = hook.pipeline(pipeline)
    wanted = {"format": request["format"], "target": request["target"] or None, "note": request["note"] or ""}
    with failing_fast(), observing.aborted(hook, loaded.name):
        wanted["stop"] = stop_mode(request.get("stop"))
        begun = begin(hook.deployment(), loaded, **wanted, owner=runs.owner(context), key=runs.task_key(context))
    observing.in_log(loaded.name, begun.checkpoint_id)
    log.info("savepoint %d %s", begun.checkpoint_id, "is written already" if begun.already_completed else "begun")
    return begun


def plan_mend(hook: StatelibHook, pipeline: str, start: str) -> "MendPlan":
    """Return the plan of the correction of the interval that begins at ``start``."""
    from statelib.definition.source.intervals import moment
    from statelib.flows.mending.steps import interval_to_mend
    from statelib.flows.mending.steps import plan_mend as plan

    loaded = hook.pipeline(pipeline)
    with failing_fast():
        deployment = hook.deployment()
        planned = plan(deployment, loaded, interval_to_mend(deployment, loaded, moment(start, loaded.zone)))
    log.info("%s", planned.describe())
    return planned


def take_preview(hook: StatelibHook, pipeline: str, attempt: "AttemptId") -> str:
    """Return the differences, as Markdown, that the Spark job ``preview_mend.py`` has computed."""
    from statelib.flows.mending.preview_file import take_preview as take

    with failing_fast():
        return take(hook.deployment(), hook.pipeline(pipeline), attempt)


def begin_mend(hook: StatelibHook, pipeline: str, plan: "MendPlan", context: "Context") -> "Begun":
    """Allocate the checkpoint that corrects the interval of a plan."""
    from statelib.flows.mending.steps import begin_mend as begin

    loaded = hook.pipeline(pipeline)
    with failing_fast(), observing.aborted(hook, loaded.name):
        begun = begin(hook.deployment(), loaded, plan, runs.owner(context))
    observing.in_log(loaded.name, begun.checkpoint_id)
    log.info("checkpoint %d begun", begun.checkpoint_id)
    return begun


def check(hook: StatelibHook, pipeline: str, checkpoint_id: "CheckpointId") -> str:
    """Prove from the storage that the checkpoint is complete. Return the URI of the report."""
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
    """Commit the checkpoint. Return its id, bytes, keys, entries and duration."""
    from statelib.flows.checkpoint.steps import register as commit

    loaded = hook.pipeline(pipeline)
    observing.in_log(loaded.name, checkpoint_id)
    with failing_fast():
        deployment = hook.deployment()
        record = commit(deployment, loaded, checkpoint_id, report_uri)
        interval = _last_interval(deployment, record)
    observing.registered(record, hook, loaded)
    return _announce(record, interval, context)


def publish(hook: StatelibHook, pipeline: str) -> None:
    """Publish the registered checkpoints that the tables of the pipeline file do not have yet. Does nothing if the file
    has no tables."""
    loaded = hook.pipeline(pipeline)
    if not loaded.publish:
        return
    from statelib.flows.publication.steps import publish_tables

    with failing_fast():
        commits = publish_tables(hook.deployment(), loaded)
    for commit in commits:
        log.info("table %s: checkpoint %d is commit %d", commit.table, commit.checkpoint_id, commit.commit)


def announce_again(
    hook: StatelibHook, name: str, checkpoint_id: "CheckpointId", context: "Context"
) -> dict[str, int | None]:
    """Send the asset events of a checkpoint that an earlier run completed. Return the same as :func:`register`."""
    from statelib.model.ids import PipelineName

    observing.in_log(name, checkpoint_id)
    with failing_fast():
        deployment = hook.deployment()
        record = deployment.catalog().get(PipelineName(name), checkpoint_id)
        return _announce(record, _last_interval(deployment, record), context)


def completed_by_run(hook: StatelibHook, name: str, context: "Context") -> "CheckpointId | None":
    """Return the newest checkpoint that a task of this run began, if it is complete; None if there is none."""
    from statelib.model.record import CheckpointState

    return _newest_of_run(hook, name, context, CheckpointState.COMPLETED)


def pending_of_run(hook: StatelibHook, name: str, context: "Context") -> "CheckpointId | None":
    """Return the newest checkpoint that a task of this run began, if it is pending; None if there is none. The task may
    have been killed before it could push the id."""
    from statelib.model.record import CheckpointState

    return _newest_of_run(hook, name, context, CheckpointState.PENDING)


def _newest_of_run(
    hook: StatelibHook, name: str, context: "Context", state: "CheckpointState"
) -> "CheckpointId | None":
    from statelib.model.ids import PipelineName

    with failing_fast():
        catalog, pipeline = hook.deployment().catalog(), PipelineName(name)
        newest = catalog.browsing.begun_by(pipeline, runs.owner_prefix(context))
        return newest if newest is not None and catalog.get(pipeline, newest).state is state else None


def _last_interval(deployment: "Deployment", record: "CheckpointRecord") -> "DataInterval | None":
    """Return the last interval that the state of a checkpoint has, which is that of its base if it corrects an earlier
    one; None if it has none."""
    if record.interval is not None:
        return record.interval
    lineage = deployment.catalog().lineage(record.pipeline, record.checkpoint_id)
    return next((each.interval for each in lineage if each.interval is not None), None)


def _announce(record: "CheckpointRecord", interval: "DataInterval | None", context: "Context") -> dict[str, int | None]:
    """Add the id, bytes, keys, entries and duration of a checkpoint, and the bounds of the last interval that it has,
    to the event of its pipeline's asset. Return them without the bounds."""
    from statelib.model.amounts import keys_and_entries

    duration_ms = (record.completed_at_ms or record.created_at_ms) - record.created_at_ms
    facts = {**contents_of(record), "duration_ms": duration_ms}
    for outlet in context["task"].outlets:
        if isinstance(outlet, Asset) and outlet.uri == state_asset(record.pipeline).uri:
            context["outlet_events"][outlet].extra = {**facts, **_bounds_of(interval)}
    contents = keys_and_entries(record.keys, record.entries)
    log.info(
        "checkpoint %(id)d is registered: %(bytes)d bytes, %(duration_ms)d ms, %(contents)s",
        {**facts, "contents": contents},
    )
    return facts


def _bounds_of(interval: "DataInterval | None") -> dict[str, str]:
    """Return the bounds of an interval as texts, which a pipeline reads whose runs the asset starts."""
    from statelib.model.moments import moment_of

    bounds = {} if interval is None else {"start": interval.start_ms, "end": interval.end_ms}
    return {name: moment_of(at_ms).isoformat() for name, at_ms in bounds.items()}


def contents_of(record: "CheckpointRecord") -> dict[str, int | None]:
    """Return the id, bytes, distinct keys and entries (None if unknown) of a completed checkpoint."""
    return {
        "id": int(record.checkpoint_id),
        "bytes": record.size_bytes or 0,
        "keys": record.keys,
        "entries": record.entries,
    }


def is_published(hook: StatelibHook, name: str, checkpoint_id: "CheckpointId") -> bool:
    """Return whether the Spark job has published the metadata of a checkpoint."""
    from statelib.errors import NotFoundError
    from statelib.model.ids import PipelineName

    with failing_fast():
        deployment = hook.deployment()
        try:
            deployment.open(deployment.catalog().get(PipelineName(name), checkpoint_id))
        except NotFoundError:
            return False
    return True


def abort(
    hook: StatelibHook, name: str, checkpoint_id: "CheckpointId", failed: list[str], context: "Context"
) -> "CheckpointRecord":
    """Abort a pending checkpoint because the tasks ``failed``. A completed checkpoint stays completed."""
    from statelib.flows.checkpoint.steps import abort as give_up

    text = f"{', '.join(failed)} failed" if failed else "ended before it was registered"
    reason = f"run {runs.run_id(context)}: {text}"
    observing.in_log(name, checkpoint_id)
    with failing_fast(), observing.aborted(hook, name):
        return give_up(hook.deployment(), name, checkpoint_id, reason, failure_of(failed))


def failure_of(failed: list[str]) -> "CheckpointFailureReason":
    """Return the failure reason for a run whose tasks ``failed``. If no task failed, somebody ended the run."""
    from statelib.model.failure import CheckpointFailureReason

    if not failed:
        return CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN
    if {"begin", "snapshot"} & set(failed):
        return CheckpointFailureReason.TASK_FAILURE
    return CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE


@dataclass(frozen=True)
class RestoreRequest:
    """A wish to restore a checkpoint. ``checkpoint``: an id or an absolute path; ``key``: the idempotency key, with
    which it is restored once; ``parallelism``: None keeps the present one."""

    checkpoint: str
    key: str
    claim_mode: str = "NO_CLAIM"
    parallelism: int | None = None
    allow_non_restored_state: bool = False

    def rehearsal(self, pipeline_file: str, parallelism: int) -> list[str]:
        """Return the arguments of the Spark job ``rehearse_restore.py``."""
        allowed = ["--allow-non-restored-state"] if self.allow_non_restored_state else []
        wanted = ["--checkpoint", self.checkpoint, "--parallelism", str(parallelism)]
        return ["--pipeline", pipeline_file, *wanted, *allowed]


def plan_restore(hook: StatelibHook, pipeline: str, request: RestoreRequest, context: "Context") -> "RestorePlan":
    """Return the plan of a restore, and hold its checkpoint in the name of the run, so that retention keeps it."""
    from statelib.flows.restore.holding import hold_source
    from statelib.flows.restore.steps import plan_restore as plan
    from statelib.model.record import ClaimMode

    loaded = hook.pipeline(pipeline)
    if request.allow_non_restored_state:
        loaded = loaded.allowing_non_restored_state()
    with failing_fast():
        deployment = hook.deployment()
        planned = plan(deployment, loaded, request.checkpoint, request.parallelism, ClaimMode(request.claim_mode))
        planned = replace(planned, key=request.key)
        hold_source(deployment, planned, runs.run_id(context))
    log.info("%s", planned.describe())
    return planned


def release(hook: StatelibHook, plan: "RestorePlan", context: "Context") -> None:
    """End the hold on the checkpoint of a plan, so that retention may delete it."""
    from statelib.flows.restore.holding import release_source

    with failing_fast():
        release_source(hook.deployment(), plan, runs.run_id(context))


def switch(
    hook: StatelibHook, pipeline: str, plan: "RestorePlan", context: "Context", *, approved: bool = False
) -> dict[str, int | None]:
    """Make the planned checkpoint the head of the pipeline, unless a try before has done so. Return the head.
    ``approved``: a person has agreed to the plan, so that it is refused if the pipeline has moved on since."""
    from statelib.flows.restore.steps import apply_restore

    loaded = hook.pipeline(pipeline)
    with failing_fast(), observing.aborted(hook, loaded.name):
        head = apply_restore(hook.deployment(), loaded, plan, runs.owner(context), approved=approved)
    observing.restored(head.pipeline)
    release(hook, plan, context)
    log.info("%s continues from checkpoint %s", head.pipeline, head.head)
    return {"head": head.head, "generation": head.generation, "parallelism": plan.parallelism}
