"""Applying one data interval to the state of a subtask: expired entries are removed, events applied, timers fired."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.operator.side_data import SideData
from statelib.backends.operator.state import OperatorStateBackend
from statelib.backends.wrappers.ttl import TimedStates, expire
from statelib.functions.state_function import Ignored, Progress, StateFunction
from statelib.model.ttl import TtlConfig
from statelib.model.types import VOID

EventsByState = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class IntervalResult:
    """The result of an interval in one subtask: numbers of ignored events, as :class:`EventCounts` has them."""

    late: EventsByState = ()
    without_user_key: EventsByState = ()


def expired(
    backend: KeyedStateBackend,
    ttl: Mapping[str, TtlConfig],
    progress: Progress,
    lists: Mapping[str, SideData] | None = None,
) -> KeyedStateBackend:
    """Remove expired entries, and return the backend that state functions and their timers use. ``lists``: as for
    :func:`~statelib.backends.wrappers.ttl.expire`.

    The current time is the end of the interval, so that a replay gives the same state. Nothing expires without an
    interval, for example in a savepoint."""
    if not ttl:
        return backend
    if progress.after_ms > progress.before_ms:
        expire(backend, ttl, progress.processing_time_ms, before_ms=progress.before_ms + 1, lists=lists)
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
) -> IntervalResult:
    """Apply the events and then the progress of time to every function. ``backend`` is the result of :func:`expired`.

    Raise what the functions raise."""
    late, without_user_key = [], []
    for function in functions:
        ignored = Ignored()
        if len(events):
            ignored = function.apply(backend, events, keys, groups, progress, operator=operator)
        function.advance(backend, progress, operator=operator)
        if backend.schema.state(function.state).namespace_type != VOID:
            late.append((function.state, ignored.late))
        if ignored.without_user_key:
            without_user_key.append((function.state, ignored.without_user_key))
    return IntervalResult(tuple(late), tuple(without_user_key))
