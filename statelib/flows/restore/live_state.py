"""Restore the live state of one subtask, for a task that continues from it or for a rehearsal."""

from collections.abc import Iterator
from contextlib import contextmanager

from statelib.backends.keyed import KeyedStateBackend
from statelib.definition.pipeline import Pipeline
from statelib.flows.restore.layout import RestoreLayout
from statelib.flows.wiring import Deployment
from statelib.model.choices import Backend
from statelib.model.ids import AttemptId
from statelib.model.state import StateStatistics
from statelib.restore.check import check_content
from statelib.restore.live.deltas import Watch, unwatched
from statelib.restore.live.keyed import restore_heap, restore_rocksdb
from statelib.restore.operator import restore_operator
from statelib.storage.local.scratch import scratch_directory


@contextmanager
def live_backend(
    pipeline: Pipeline,
    deployment: Deployment,
    layout: RestoreLayout,
    subtask: int,
    attempt: AttemptId,
    *,
    watched: Watch = unwatched,
) -> Iterator[KeyedStateBackend]:
    """Yield the subtask's state, restored into a scratch directory that is deleted afterwards. Scratch directories that
    killed tasks left on this host are deleted too. ``watched``: what open deltas are merged through."""
    with scratch_directory(deployment.scratch(), f"{pipeline.name}-{attempt}") as directory:
        backend = _restore(pipeline, layout, subtask, f"{directory}/db", attempt, watched=watched)
        try:
            yield backend
        finally:
            backend.close()


def rehearse_subtask(
    pipeline: Pipeline, deployment: Deployment, layout: RestoreLayout, subtask: int, attempt: AttemptId
) -> tuple[StateStatistics, ...]:
    """Restore the state of one subtask, read all of it, and discard it. Return the statistics of what was read, per
    state.

    Raises CorruptStateError (``restore-mismatch`` and those of the formats), InvalidRequestError
    (``state-schema-changed``)."""
    with live_backend(pipeline, deployment, layout, subtask, attempt) as backend:
        check_content(backend)
        restore_operator(layout.operator_states, layout.operator_sources[subtask])
        return backend.statistics()


def _restore(
    pipeline: Pipeline, layout: RestoreLayout, subtask: int, directory: str, uid: AttemptId, *, watched: Watch
) -> KeyedStateBackend:
    sources = layout.sources[subtask]
    if pipeline.backend == Backend.HEAP:
        return restore_heap(layout.schema, layout.ranges[subtask], sources, watched=watched)
    return restore_rocksdb(layout.schema, layout.ranges[subtask], sources, directory, uid, watched=watched)
