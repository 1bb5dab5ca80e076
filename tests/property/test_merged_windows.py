"""Merges of windows in a log, against a slow walk: lists, and sums whose function statelib does not know."""

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.formats.change_set import ChangeRecords, Op
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import LONG
from statelib.restore.state_changes import StateChanges, changes_of
from statelib.wire.ragged import from_list

WINDOWS = st.integers(0, 5)
MERGES = st.tuples(WINDOWS, st.just(Op.MERGE_NS), st.sets(WINDOWS, max_size=3).map(sorted))
ELEMENTS = st.tuples(WINDOWS, st.just(Op.ADD_ELEMENT), st.integers(0, 99))
CLEARS = st.tuples(WINDOWS, st.just(Op.CLEAR), st.none())
SETS = st.tuples(WINDOWS, st.just(Op.SET_INTERNAL), st.integers(0, 99))
Change = tuple[int, Op, Any]


def long(number: int) -> bytes:
    return struct.pack(">q", number)


def merge(target: int, sources: list[int]) -> bytes:
    return long(target) + struct.pack(">i", len(sources)) + b"".join(map(long, sources))


def argument(window: int, op: Op, value: Any) -> bytes:
    if op is Op.MERGE_NS:
        return merge(window, value)
    return b"" if op is Op.CLEAR else long(value)


def outcome(
    kind: StateKind, changes: list[Change], *, over_nothing: bool = True, arguments: list[bytes] | None = None
) -> StateChanges:
    """Of one key, whose namespaces are the windows."""
    state = StateDescriptor("s", kind, LONG, namespace_type=LONG)
    records = ChangeRecords(
        np.array([op for _, op, _ in changes], np.uint8),
        np.zeros(len(changes), np.int32),
        from_list([long(7)] * len(changes)),
        from_list([long(window) for window, _, _ in changes]),
        from_list(arguments or [argument(*change) for change in changes]),
    )
    return changes_of(KeyedStateSchema(LONG, 16, (state,)), state, [records], over_nothing=over_nothing)


def held(changes: StateChanges) -> dict[int, list[int]]:
    """What each window has, of a log over nothing."""
    found = {}
    for rows in (changes.put, changes.appended):
        for key, value in zip(rows.keys.to_list(), rows.values.to_list(), strict=True):
            found[struct.unpack(">q", key[9:])[0]] = [
                struct.unpack_from(">q", value, at)[0] for at in range(0, len(value), 9)
            ]
    return found


@settings(deadline=None)
@given(st.lists(MERGES | ELEMENTS | CLEARS, min_size=1, max_size=25))
def test_lists_are_moved_in_their_order(changes: list[Change]) -> None:
    state: dict[int, list[int]] = {}
    for window, op, value in changes:
        if op is Op.MERGE_NS:
            merged = [element for source in value for element in state.pop(source, [])]
            state[window] = state.get(window, []) + merged
        elif op is Op.CLEAR:
            state.pop(window, None)
        else:
            state.setdefault(window, []).append(value)
    assert held(outcome(StateKind.LIST, changes)) == {window: values for window, values in state.items() if values}


@settings(deadline=None)
@given(
    st.sampled_from([StateKind.REDUCING, StateKind.AGGREGATING]),
    st.lists(MERGES | SETS | CLEARS, min_size=1, max_size=25),
)
def test_a_value_of_two_counts_once_the_job_has_said_it(kind: StateKind, changes: list[Change]) -> None:
    state: dict[int, int | None] = {}
    for window, op, value in changes:
        if op is Op.MERGE_NS:
            there = [state.pop(source) for source in value if source in state]
            there += [state.pop(window)] if window in state else []
            if there:
                state[window] = there[0] if len(there) == 1 else None
        elif op is Op.CLEAR:
            state.pop(window, None)
        else:
            state[window] = value
    if None in state.values():
        with pytest.raises(UnsupportedError, match="no new value") as caught:
            outcome(kind, changes)
        assert caught.value.kind == "merging-windows"
    else:
        assert held(outcome(kind, changes)) == {window: [value] for window, value in state.items()}


def test_what_lies_below_is_not_merged() -> None:
    changes: list[Change] = [(1, Op.MERGE_NS, [2])]
    for kind in (StateKind.LIST, StateKind.REDUCING):
        with pytest.raises(UnsupportedError, match="merges windows") as caught:
            outcome(kind, changes, over_nothing=False)
        assert caught.value.kind == "merging-windows"
    later = outcome(StateKind.REDUCING, [*changes, (1, Op.SET_INTERNAL, 5)], over_nothing=False)
    assert held(later) == {1: [5]}
    assert later.gone.to_list() == [b"\0" + long(7) + long(2)]
    cleared: list[Change] = [(2, Op.CLEAR, None), (2, Op.ADD_ELEMENT, 4), *changes]
    moved = outcome(StateKind.LIST, cleared, over_nothing=False)
    assert (len(moved.put), moved.appended.values.to_list()) == (0, [long(4)])


@pytest.mark.parametrize(
    "damaged", [merge(1, [2])[:-1], merge(1, [2]) + b"x", merge(1, [2])[:9], long(1) + b"\xff" * 4]
)
def test_a_damaged_merge_is_named(damaged: bytes) -> None:
    with pytest.raises(CorruptStateError):
        outcome(StateKind.LIST, [(1, Op.MERGE_NS, [2])], arguments=[damaged])


def test_a_value_state_cannot_be_merged() -> None:
    with pytest.raises(CorruptStateError, match="operation 4"):
        outcome(StateKind.VALUE, [(1, Op.MERGE_NS, [2])])
