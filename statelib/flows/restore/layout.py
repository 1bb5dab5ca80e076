"""The layout of a restore: the key groups of each subtask, and the handles that it restores them from."""

from dataclasses import dataclass

from statelib.coordinator.operator_assignment import redistribute
from statelib.coordinator.state_assignment import assign
from statelib.definition.pipeline import Pipeline
from statelib.flows.restore.continuation import Continuation, continuation
from statelib.model.key_groups import KeyGroupRange, subtask_ranges
from statelib.model.operator_state import OperatorStateDescriptor
from statelib.model.state import KeyCounts, KeyedStateSchema, no_keys
from statelib.restore.operator import OperatorRestoreSource
from statelib.restore.plan import RestoreSource
from statelib.savepoints.opened import Checkpoint


@dataclass(frozen=True)
class RestoreLayout:
    """The layout of a restore, per subtask. Picklable.

    ``ranges``: the key groups of each subtask. ``sources``: what it restores its keyed state from, empty without a
    base. ``operator_sources``: what it restores its operator state from."""

    schema: KeyedStateSchema
    ranges: tuple[KeyGroupRange, ...]
    sources: tuple[tuple[RestoreSource, ...], ...]
    operator_states: tuple[OperatorStateDescriptor, ...]
    operator_sources: tuple[tuple[OperatorRestoreSource, ...], ...]
    keys: tuple[KeyCounts | None, ...]
    """The number of keys that each subtask restores; None if it is not known without counting them."""
    keys_below_deltas: tuple[KeyCounts | None, ...]
    """The number of keys that each subtask restores before it merges open deltas; None if it is not known."""


def lay_out(
    base: Checkpoint | None, parallelism: int, pipeline: Pipeline, *, counted: KeyCounts | None = None
) -> RestoreLayout:
    """Return the layout for ``parallelism`` subtasks: each gets the base's handles that hold its key groups.
    ``counted``: the number of keys of a base whose manifest does not contain it.

    Raises InvalidRequestError as :func:`continuation` and :meth:`Continuation.check`.
    """
    schema, ranges = pipeline.schema(), subtask_ranges(parallelism, pipeline.max_parallelism)
    states, nothing = pipeline.operator_descriptors(), ((),) * parallelism
    if base is None:
        no_counts = tuple(map(no_keys, ranges))
        return RestoreLayout(schema, ranges, nothing, states, nothing, no_counts, no_counts)
    source = continuation(pipeline, base).check()
    handles = [(part.handle.key_group_range, part) for part in source.sources()]
    sources = assign(handles, parallelism, pipeline.max_parallelism)
    operator_sources = _operator_sources(source, parallelism)
    total, below = (
        tuple(None if counts is None else counts.cut(key_groups) for key_groups in ranges)
        for counts in (source.keys(counted), source.keys_below_deltas(counted))
    )
    # One subtask may have open deltas while another has none.
    has_deltas = [any(part.deltas for part in parts) for parts in sources]
    keys = tuple(one or (None if open_ else low) for one, low, open_ in zip(total, below, has_deltas, strict=True))
    return RestoreLayout(schema, ranges, sources, states, operator_sources, keys, below)


def _operator_sources(source: Continuation, parallelism: int) -> tuple[tuple[OperatorRestoreSource, ...], ...]:
    base = source.opened
    reader, operator, dropped = base.reader(), base.keyed_operator(), source.operator_evolution.dropped
    old = dict(operator.subtasks)
    handles = [old[i].operator if i in old else None for i in range(operator.parallelism)]
    shared = redistribute(handles, parallelism)
    return tuple(tuple(OperatorRestoreSource(handle, reader, dropped) for handle in part) for part in shared)
