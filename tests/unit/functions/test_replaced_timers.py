"""Timers are deleted and set in one write, whether or not they are set already."""

import numpy as np
import pyarrow as pa
import pytest

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.functions.timers import Timers, register, replace, take_due
from statelib.model.key_groups import all_key_groups
from statelib.model.state import EVENT_TIMERS, KeyedStateSchema, timers_descriptor
from statelib.model.types import LONG


def timers(*moments: int) -> Timers:
    """Return event-time timers of one key."""
    count = len(moments)
    keys, zeros = pa.array([7] * count, pa.int64()), np.zeros(count, np.int64)
    return Timers(zeros.astype(np.int8), np.array(moments, np.int64), keys, zeros.astype(np.int32))


@pytest.mark.parametrize(
    ("gone", "new", "expected"),
    [
        ((1, 2), (3, 4), {3, 4}),
        ((1, 9), (3,), {2, 3}),
        ((1,), (2, 3), {2, 3}),
        ((9,), (2,), {1, 2}),
        ((), (5,), {1, 2, 5}),
        ((2,), (), {1}),
        ((), (), {1, 2}),
    ],
)
def test_timers_are_replaced(gone: tuple[int, ...], new: tuple[int, ...], expected: set[int]) -> None:
    schema = KeyedStateSchema(LONG, 16, (timers_descriptor(EVENT_TIMERS, "t"),))
    backend = HeapKeyedStateBackend(schema, all_key_groups(16))
    register(backend, "t", timers(1, 2))
    replace(backend, "t", timers(*gone), timers(*new))
    due = take_due(backend, "t", 0, 100)
    assert due is not None
    assert sorted(due.moments.tolist()) == sorted(expected)
