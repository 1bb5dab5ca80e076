"""Begin a seed: the first checkpoint of a pipeline, with state that was computed elsewhere from all earlier events."""

from dataclasses import replace

from statelib.definition.pipeline import Pipeline
from statelib.definition.source.intervals import intervals
from statelib.errors import ConflictError, InvalidRequestError
from statelib.flows.catalog_behind import check_catalog_complete
from statelib.flows.checkpoint.allocation import allocate_checkpoint
from statelib.flows.checkpoint.steps import Begun
from statelib.flows.lifecycle.renaming import head_after_renaming
from statelib.flows.restore.continuation import Continuation, as_own, continuation
from statelib.flows.wiring import Deployment, now_ms
from statelib.model.checkpoint import DataInterval
from statelib.model.ids import CheckpointId
from statelib.model.moments import moment_of
from statelib.model.record import interval_key


def seed_interval(pipeline: Pipeline, until_ms: int) -> DataInterval:
    """Return the data interval of a seed that has all events before ``until_ms``: it begins in 1970.

    Raises InvalidRequestError (``bad-interval``, ``bad-cron``) if no interval of the schedule begins at
    ``until_ms``, or if it is in the future: the events that are still to come would never be applied."""
    if until_ms <= 0:
        raise InvalidRequestError("the time until which the state has events: expected after 1970", kind="bad-interval")
    if until_ms > now_ms():
        raise InvalidRequestError(
            f"the time until which the state has events: expected no time in the future, found {moment_of(until_ms)}",
            kind="bad-interval",
            hint="name the end of the events in the table; the next run applies those that come after it",
        )
    if pipeline.cron_schedule is not None:
        next(iter(intervals(pipeline.cron_schedule, until_ms)))
    return DataInterval(0, until_ms)


def completed_seed(deployment: Deployment, pipeline: Pipeline, until_ms: int, source: str) -> CheckpointId | None:
    """Return the seed of the pipeline if it has the same ``source`` and end; None if the pipeline has no state yet.

    Raises ConflictError (``has-state``) if the pipeline has other state: a seed is neither merged into it nor put in
    its place."""
    catalog, name = deployment.catalog(), pipeline.name
    head = catalog.head(name).head
    if head is None:
        return None
    first = catalog.lineage(name, head)[-1]
    if first.note == _note(source) and first.interval is not None and first.interval.end_ms == until_ms:
        return first.checkpoint_id
    raise ConflictError(
        f"pipeline {name} has state already, its newest checkpoint is {name}/{head}: expected a pipeline without state",
        kind="has-state",
        hint="only a pipeline without state can be seeded: write a pipeline file with another name",
    )


def snapshot_for_seed(
    deployment: Deployment, pipeline: Pipeline, place: str, operator: str, until_ms: int
) -> Continuation:
    """Return the continuation of the pipeline from one operator of a snapshot that statelib or Flink wrote.
    ``operator``: its uid or the id in hex. The other operators of the snapshot are left out.

    Raises InvalidRequestError (``bad-interval``) if the snapshot has its own time and it is not ``until_ms``;
    NotFoundError (``no-operator``), and as :func:`~statelib.savepoints.opened.open_checkpoint`,
    :func:`~statelib.flows.restore.continuation.continuation` and :meth:`Continuation.check`."""
    opened = as_own(pipeline, deployment.open_at(place).select(operator))
    own = replace(opened.metadata, operators=(opened.keyed_operator(),))
    position = opened.position()
    if position is not None and position.interval is not None and position.interval.end_ms != until_ms:
        raise InvalidRequestError(
            f"{opened.directory} has all events before {moment_of(position.interval.end_ms)}: expected that time, "
            f"found {moment_of(until_ms)}",
            kind="bad-interval",
        )
    return continuation(pipeline, replace(opened, metadata=own)).check()


def begin_seed(deployment: Deployment, pipeline: Pipeline, until_ms: int, source: str, owner: str) -> Begun:
    """Allocate the checkpoint of a seed, or return the completed one of the same seed. ``source``: text that says where
    the state comes from, with all that decides what it is.

    Raises as :func:`seed_interval` and :func:`completed_seed`, ConflictError (``catalog-behind-storage``), and as
    :func:`statelib.catalog.commit.admission.admit`."""
    check_catalog_complete(deployment, pipeline.name)
    head = head_after_renaming(deployment, pipeline, owner)
    interval = seed_interval(pipeline, until_ms)
    done = completed_seed(deployment, pipeline, until_ms, source)
    if done is not None:
        return Begun(done, already_completed=True)
    key = interval_key(interval, head.generation)
    record = allocate_checkpoint(deployment, pipeline, head, owner, key=key, interval=interval, note=_note(source))
    return Begun(record.checkpoint_id, already_completed=False)


def _note(source: str) -> str:
    return f"seed from {source}"
