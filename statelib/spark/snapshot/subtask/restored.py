"""The live state with which a subtask begins: empty, restored as a whole, or read entry by entry when it is needed."""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.wrappers.partial import PartialKeyedStateBackend
from statelib.backends.wrappers.written_keys import WrittenKeys
from statelib.definition.pipeline import Pipeline
from statelib.flows.checkpoint.snapshot_plan import SnapshotPlan
from statelib.flows.restore.layout import RestoreLayout
from statelib.flows.restore.live_state import live_backend
from statelib.flows.wiring import Deployment
from statelib.model.amounts import number_of
from statelib.model.checkpoint import RestoreMeasure
from statelib.model.ids import AttemptId
from statelib.model.state import KeyCounts
from statelib.restore.costs import reading_costs
from statelib.restore.live.logged import logged_database
from statelib.restore.live.partial import restore_partial
from statelib.restore.volume import bytes_to_read

log = logging.getLogger(__name__)

TOUCHED = "touched"
"""The value of ``restored_from`` for a subtask that has read only the entries that its events touch."""


@dataclass(frozen=True)
class RestoredState:
    """The state with which a subtask begins. ``keys``: the number of its keys, None if it is unknown. ``size_bytes``:
    the bytes that the restore has read, None if nothing was restored. ``took_ms``: its duration."""

    backend: KeyedStateBackend
    keys: KeyCounts | None
    size_bytes: int | None = None
    took_ms: int = 0

    @property
    def is_partial(self) -> bool:
        """Whether entries are read only when they are needed."""
        return isinstance(self.backend, PartialKeyedStateBackend)

    def measure(self) -> RestoreMeasure | None:
        """Return what has been read so far, None if nothing was restored."""
        if isinstance(self.backend, PartialKeyedStateBackend):
            return RestoreMeasure(self.backend.bytes_read(), self.took_ms)
        return None if self.size_bytes is None else RestoreMeasure(self.size_bytes, self.took_ms)


@contextmanager
def restored_state(
    deployment: Deployment,
    pipeline: Pipeline,
    plan: SnapshotPlan,
    layout: RestoreLayout,
    subtask: int,
    *,
    attempt: AttemptId,
    keys: Callable[[], int],
    clock: Callable[[], int],
) -> Iterator[RestoredState]:
    """Yield the live state of a subtask. It is empty if the subtask leaves the state unread.

    ``layout``: the state to restore. ``keys``: returns the number of keys that its events touch. ``clock``: returns
    milliseconds since the epoch."""
    if plan.is_blind(subtask):
        with closing(HeapKeyedStateBackend(layout.schema, layout.ranges[subtask])) as empty:
            yield RestoredState(empty, None)
        return
    began_ms = clock()
    partial = _partial(pipeline, plan, layout, subtask, keys)
    if partial is not None:
        with closing(partial):
            yield RestoredState(partial, layout.keys[subtask], 0, max(clock() - began_ms, 0))
        return
    sources = layout.sources[subtask]
    size_bytes = bytes_to_read(layout.schema, layout.ranges[subtask], sources, pipeline.backend)
    merged: list[WrittenKeys] = []

    def counting(backend: KeyedStateBackend) -> KeyedStateBackend:
        merged.append(WrittenKeys(backend, layout.keys_below_deltas[subtask]))
        return merged[0]

    with live_backend(pipeline, deployment, layout, subtask, attempt, watched=counting) as restored:
        counted = layout.keys[subtask]
        if counted is None and merged:
            counted = merged[0].keys_after()
        yield RestoredState(restored, counted, size_bytes if sources else None, max(clock() - began_ms, 0))


def _partial(
    pipeline: Pipeline, plan: SnapshotPlan, layout: RestoreLayout, subtask: int, keys: Callable[[], int]
) -> PartialKeyedStateBackend | None:
    """Return the state that is read entry by entry, None if it is read as a whole. The log says why."""
    reason = plan.reason_to_read_all(subtask) or _dearer(pipeline, layout, subtask, keys)
    if not reason:
        backend = restore_partial(layout.schema, layout.ranges[subtask], layout.sources[subtask])
        if backend is not None:
            log.info("only the entries that events touch are read")
            return backend
        reason = "only RocksDB itself can read its tables"
    if layout.sources[subtask]:
        log.info("the state is read as a whole: %s", reason)
    return None


def _dearer(pipeline: Pipeline, layout: RestoreLayout, subtask: int, keys: Callable[[], int]) -> str:
    """Return why reading single entries would not cost clearly less than reading the whole state, '' if it would."""
    logged = logged_database(layout.schema, layout.ranges[subtask], layout.sources[subtask])
    if logged is None or pipeline.checkpoint.reads == TOUCHED:
        return ""
    touched = keys()
    costs = reading_costs(logged.handle, touched, len(layout.schema.states))
    if costs.favours_touched:
        return ""
    return (
        f"reading {number_of(touched, 'touched key')} one by one would cost as much as reading {costs.touched} bytes, "
        f"more than half of everything, which costs as much as {costs.whole}"
    )
