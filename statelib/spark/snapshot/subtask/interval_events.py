"""The change of a subtask's state by the events of an interval."""

from collections.abc import Callable

import pyarrow as pa

from statelib.backends.operator.state import OperatorStateBackend
from statelib.backends.wrappers.expiring import expiring_name
from statelib.backends.wrappers.written_keys import WrittenKeys
from statelib.definition.columns import key_array
from statelib.definition.pipeline import Pipeline
from statelib.functions.change_logs.deletes import without_deleted
from statelib.functions.interval import IntervalResult, apply_interval
from statelib.functions.interval import expired as without_expired
from statelib.functions.state_function import Progress
from statelib.serializers.entries.keys import key_groups
from statelib.wire.ragged import Ragged

Change = Callable[[Pipeline, WrittenKeys, pa.Table, Progress, OperatorStateBackend], IntervalResult]
"""A function that changes the state of a subtask by its rows, such as :func:`apply_events`."""


def apply_events(
    pipeline: Pipeline,
    backend: WrittenKeys,
    events: pa.Table,
    progress: Progress,
    operator: OperatorStateBackend,
    *,
    deleted: Callable[[Ragged], None] | None = None,
) -> IntervalResult:
    """Apply the events of this subtask with :func:`apply_interval`. Expired entries are removed before; they do not
    count as changed by an event. ``deleted``: as for :func:`without_deleted`."""
    keys = key_array(pipeline, events)
    groups = key_groups(backend.schema, keys)
    ttl = pipeline.ttl()
    lists = {state: part for state in ttl if (part := operator.own_side_data(expiring_name(state))) is not None}
    states = without_expired(backend, ttl, progress, lists)
    backend.count_changes()
    if pipeline.has_deletes:
        retracts, order_by = pipeline.has_retractions, pipeline.order_by
        events, keys, groups = without_deleted(
            backend, events, keys, groups, order_by, retracts=retracts, deleted=deleted
        )
    return apply_interval(pipeline.functions(), states, events, keys, groups, progress=progress, operator=operator)
