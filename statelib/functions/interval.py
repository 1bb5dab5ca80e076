"""What one data interval does to a subtask's state: what is too old goes, events are applied, time passes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.operator import OperatorStateBackend
from statelib.backends.ttl import TimedStates, expire
from statelib.functions.state_function import Progress, StateFunction
from statelib.model.ttl import TtlConfig
from statelib.model.types import VOID

Late = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Applied:
    """What an interval came to in one subtask: its late events, by state."""

    late: Late = ()


def expired(backend: KeyedStateBackend, ttl: Mapping[str, TtlConfig], progress: Progress) -> KeyedStateBackend:
    """The backend for state functions and their timers, once nothing in it has expired. The clock is the
    interval's end: a replay gives the same state; without an interval, as in a savepoint, nothing expires."""
    if not ttl:
        return backend
    if progress.after_ms > progress.before_ms:
        expire(backend, ttl, progress.processing_time_ms)
    return TimedStates(backend, ttl, progress.processing_time_ms)


def apply_interval(
    functions: Iterable[StateFunction],
    backend: KeyedStateBackend,
    events: pa.Table,
    keys: pa.Array,
    groups: npt.NDArray[np.int32],
    *,
    progress: Progress,
    operator: OperatorStateBackend,
) -> Late:
    """Let every function see the events, and then the time pass; how many events were late, by each state
    with windows. ``backend``: what :func:`expired` gives."""
    late = []
    for function in functions:
        missed = function.apply(backend, events, keys, groups, progress, operator=operator) if len(events) else 0
        function.advance(backend, progress, operator=operator)
        if backend.schema.state(function.state).namespace_type != VOID:
            late.append((function.state, missed))
    return tuple(late)
