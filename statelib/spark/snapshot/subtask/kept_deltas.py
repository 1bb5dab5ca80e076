"""The changes of a subtask's state that keep the delta of their interval, so that the interval can be mended."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial

import pyarrow as pa

from statelib.aggregates.grouping import group_rows
from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.operator.side_data import SideData
from statelib.backends.operator.state import OperatorStateBackend
from statelib.backends.wrappers.changed_entries import LIMIT_BYTES
from statelib.backends.wrappers.changelog import DeltaKeyedStateBackend
from statelib.backends.wrappers.written_keys import WrittenKeys
from statelib.definition.columns import key_array
from statelib.definition.pipeline import Pipeline
from statelib.definition.source.parts import range_text
from statelib.errors import InvalidRequestError
from statelib.flows.checkpoint.snapshot_plan import SnapshotPlan
from statelib.functions.interval import IntervalResult
from statelib.functions.mending.kept_delta import KeptDelta, decoded, delta_name, delta_of
from statelib.functions.mending.mended_state import MendedState, mend_state, put_delta
from statelib.functions.state_function import Progress
from statelib.model.checkpoint import DataInterval
from statelib.model.state import KeyedStateSchema, StateDescriptor
from statelib.spark.snapshot.subtask.interval_events import Change, apply_events

log = logging.getLogger(__name__)


def change_of(plan: SnapshotPlan) -> Change:
    """Return the function that changes the state of a subtask as the plan requires."""
    if plan.keeps is None:
        return apply_events
    if plan.record.mends is not None:
        return partial(_mend, interval=plan.keeps, later=plan.later)
    return partial(_apply_and_keep, interval=plan.keeps)


def _apply_and_keep(
    pipeline: Pipeline,
    backend: WrittenKeys,
    events: pa.Table,
    progress: Progress,
    operator: OperatorStateBackend,
    *,
    interval: DataInterval,
) -> IntervalResult:
    """Apply the events of this subtask as :func:`apply_events` does, and keep their delta as side data.

    The accumulators of the events alone are computed once, and merged into the state."""
    result, deltas = folded(pipeline, backend, events, progress, operator)
    backend.count_changes()
    for delta in deltas:
        _keep(operator, interval, put_delta(backend, delta))
    return result


def _mend(
    pipeline: Pipeline,
    backend: WrittenKeys,
    events: pa.Table,
    progress: Progress,
    operator: OperatorStateBackend,
    *,
    interval: DataInterval,
    later: Sequence[DataInterval],
) -> IntervalResult:
    """Correct the interval in all states of this subtask with :func:`mended_states`, and keep the deltas."""
    result, deltas = folded(pipeline, backend, events, progress, operator)
    for mended in mended_states(backend, deltas, operator, interval=interval, later=later):
        for each, delta in ((interval, mended.delta), *mended.rewritten.items()):
            if not _keep(operator, each, delta):
                raise InvalidRequestError(
                    f"the delta of interval {range_text(each)} to state {delta.descriptor.name!r} would have more than "
                    f"{LIMIT_BYTES} bytes per subtask",
                    kind="not-mendable",
                    hint="use more subtasks, or restore the checkpoint before the interval and run all intervals again",
                )
    return result


def mended_states(
    backend: WrittenKeys,
    deltas: Sequence[KeptDelta],
    operator: OperatorStateBackend,
    *,
    interval: DataInterval,
    later: Sequence[DataInterval],
) -> Iterator[MendedState]:
    """Replace the effect of an interval in each state by its delta in ``deltas``, and yield what has changed.
    ``later``: the intervals after it, the oldest first, whose deltas the base keeps.

    Raises InvalidRequestError (``not-mendable``) if a delta was kept for another definition of its state."""
    backend.count_changes()
    for new in deltas:
        stored = (operator.side_data(delta_name(each, new.descriptor.name)) for each in (interval, *later))
        old, *others = (_read(backend.schema, new.descriptor, each) for each in stored)
        yield mend_state(backend, old, new, dict(zip(later, others, strict=True)))


def touched_keys(pipeline: Pipeline, plan: SnapshotPlan, subtask: int, events: pa.Table) -> int:
    """Return the number of keys that one subtask looks up: those of its events and, in corrections, those of the delta
    that it replaces, in the state with the most."""
    of_events = group_rows([key_array(pipeline, events)]).size
    if plan.record.mends is None:
        return of_events
    schema, replaced = plan.layout.schema, 0
    for descriptor in schema.states:
        stored = plan.stored_side_data(subtask, delta_name(plan.record.mends, descriptor.name))
        replaced = max(replaced, len(_read(schema, descriptor, stored).keys))
    return of_events + replaced


def _read(schema: KeyedStateSchema, descriptor: StateDescriptor, stored: SideData) -> KeptDelta:
    """Return a stored delta to a state, of the key groups of the subtask."""
    return decoded(descriptor, stored.name, stored.read_parts(), schema.max_parallelism)


def folded(
    pipeline: Pipeline, backend: KeyedStateBackend, events: pa.Table, progress: Progress, operator: OperatorStateBackend
) -> tuple[IntervalResult, list[KeptDelta]]:
    """Return (result, delta of the events to each state) of an interval. The states of ``backend`` are not read."""
    schema = backend.schema
    with closing(DeltaKeyedStateBackend(HeapKeyedStateBackend(schema, backend.key_group_range))) as delta:
        result = apply_events(pipeline, WrittenKeys(delta), events, progress, operator, deleted=delta.delete)
        return result, [delta_of(*each) for each in zip(schema.states, delta.changes_since(0), strict=True)]


def _keep(operator: OperatorStateBackend, interval: DataInterval, delta: KeptDelta) -> bool:
    """Keep the delta as side data of the checkpoint, unless it is too large: then the interval cannot be mended. Return
    whether it is kept."""
    name, stream = delta_name(interval, delta.descriptor.name), delta.encoded()
    if len(stream) > LIMIT_BYTES:
        log.warning("%s has %d bytes and is not kept: this interval and those before it cannot be mended", name,
                    len(stream))  # fmt: skip
        operator.side_data(name).delete()
        return False
    operator.side_data(name).write(stream)
    return True
