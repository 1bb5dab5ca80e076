"""Merges of windows in a log, against a slow walk: lists, and sums whose function is not available to statelib."""

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.formats.changelog.change_set import ChangeRecords, Op
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import LONG
from statelib.restore.changelog.change_log import ChangeLog
from statelib.restore.changelog.state_changes import StateChanges, changes_of
from statelib.serializers.entries.rows import StateRows
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
    if op in (Op.SET, Op.ADD):
        return struct.pack(">i", len(value)) + b"".join(map(long, value))
    return b"" if op is Op.CLEAR else long(value)


def outcome(
    kind: StateKind, changes: list[Change], *, over_nothing: bool = True, arguments: list[bytes] | None = None
) -> StateChanges:
    """Return the result of a log of changes to one key. The namespaces are the windows."""
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
    """Return the elements of each window, from a log without entries below it."""
    windows = {}
    for rows in (changes.put, changes.appended):
        for key, value in zip(rows.keys.to_list(), rows.values.to_list(), strict=True):
            windows[struct.unpack(">q", key[9:])[0]] = [
                struct.unpack_from(">q", value, at)[0] for at in range(0, len(value), 9)
            ]
    return windows


def entry(window: int) -> bytes:
    return b"\0" + long(7) + long(window)


def left(
    kind: StateKind, changes: list[Change], below: dict[int, list[int]], batches: int = 1, twice: bool = False
) -> dict[int, list[int]]:
    """Return the elements of each window after the log was applied to the entries ``below``, which come in
    ``batches``."""
    state = StateDescriptor("s", kind, LONG, namespace_type=LONG)
    schema = KeyedStateSchema(LONG, 16, (state,))
    log = ChangeLog(schema, {0: outcome(kind, changes, over_nothing=False)})
    rows = [(entry(window), b",".join(map(long, values))) for window, values in below.items()]
    for _ in range(2 if twice else 1):
        overlay = log.over(KeyGroupRange(0, 15))
        parts = [
            overlay.covered(0, StateRows(from_list([key for key, _ in part]), from_list([value for _, value in part])))
            for part in (rows[number::batches] for number in range(batches))
        ]
        parts += [rest for _, rest in overlay.rest()]
        pairs = [pair for part in parts for pair in zip(part.keys.to_list(), part.values.to_list(), strict=True)]
        assert len({key for key, _ in pairs}) == len(pairs)
    return {
        struct.unpack(">q", key[9:])[0]: [struct.unpack_from(">q", value, at)[0] for at in range(0, len(value), 9)]
        for key, value in pairs
    }


LISTS_BELOW = st.dictionaries(WINDOWS, st.lists(st.integers(100, 199), min_size=1, max_size=3))
WHOLE_LISTS = st.tuples(WINDOWS, st.sampled_from([Op.SET, Op.ADD]), st.lists(st.integers(0, 99), max_size=3))


@settings(deadline=None)
@given(st.lists(MERGES | ELEMENTS | CLEARS | WHOLE_LISTS, min_size=1, max_size=25), LISTS_BELOW, st.integers(1, 3))
def test_merged_lists_keep_the_order_of_their_elements(
    changes: list[Change], below: dict[int, list[int]], batches: int
) -> None:
    state = {window: list(values) for window, values in below.items()}
    for window, op, value in changes:
        if op is Op.MERGE_NS:
            merged = [element for source in value for element in state.pop(source, [])]
            state[window] = state.get(window, []) + merged
        elif op in (Op.CLEAR, Op.SET):
            state[window] = list(value or [])
        else:
            state.setdefault(window, []).extend(value if op is Op.ADD else [value])
    expected = {window: values for window, values in state.items() if values}
    assert left(StateKind.LIST, changes, below, batches) == expected
    if not below:
        assert held(outcome(StateKind.LIST, changes)) == expected


@settings(deadline=None)
@given(
    st.sampled_from([StateKind.REDUCING, StateKind.AGGREGATING]),
    st.lists(MERGES | SETS | CLEARS, min_size=1, max_size=25),
    st.dictionaries(WINDOWS, st.integers(100, 199)),
)
def test_the_sum_of_two_merged_windows_is_accepted_only_if_the_job_logged_it(
    kind: StateKind, changes: list[Change], below: dict[int, int]
) -> None:
    state: dict[int, int | None] = dict(below)
    for window, op, value in changes:
        if op is Op.MERGE_NS:
            merged = [state.pop(source) for source in value if source in state]
            merged += [state.pop(window)] if window in state else []
            if merged:
                state[window] = merged[0] if len(merged) == 1 else None
        elif op is Op.CLEAR:
            state.pop(window, None)
        else:
            state[window] = value
    if None in state.values():
        with pytest.raises(UnsupportedError, match="no new value") as caught:
            left(kind, changes, {window: [value] for window, value in below.items()})
        assert caught.value.kind == "merging-windows"
        return
    expected = {window: [value] for window, value in state.items()}
    assert left(kind, changes, {window: [value] for window, value in below.items()}) == expected
    if not below:
        assert held(outcome(kind, changes)) == expected


def test_entries_below_the_log_are_merged_if_they_exist() -> None:
    changes: list[Change] = [(1, Op.ADD_ELEMENT, 5), (1, Op.MERGE_NS, [2, 3]), (1, Op.ADD_ELEMENT, 6)]
    below = {1: [10], 2: [20, 21], 4: [40]}
    assert left(StateKind.LIST, changes, below, batches=3, twice=True) == {1: [10, 5, 20, 21, 6], 4: [40]}
    assert not outcome(StateKind.LIST, changes, over_nothing=False).plain
    merge_alone: list[Change] = [(1, Op.MERGE_NS, [2])]
    assert left(StateKind.REDUCING, merge_alone, {2: [20]}) == {1: [20]}
    assert left(StateKind.REDUCING, merge_alone, {}) == {}
    with pytest.raises(UnsupportedError, match="merges windows") as caught:
        left(StateKind.REDUCING, merge_alone, {1: [10], 2: [20]})
    assert caught.value.kind == "merging-windows"
    later = outcome(StateKind.REDUCING, [*merge_alone, (1, Op.SET_INTERNAL, 5)], over_nothing=False)
    assert held(later) == {1: [5]}
    assert later.gone.to_list() == [entry(2)]
    cleared: list[Change] = [(2, Op.CLEAR, None), (2, Op.ADD_ELEMENT, 4), *merge_alone]
    moved = outcome(StateKind.LIST, cleared, over_nothing=False)
    assert (len(moved.put), moved.appended.values.to_list()) == (0, [long(4)])


def test_other_key_groups_are_ignored() -> None:
    state = StateDescriptor("s", StateKind.LIST, LONG, namespace_type=LONG)
    changes: list[Change] = [(1, Op.MERGE_NS, [2]), (1, Op.ADD_ELEMENT, 6)]
    log = ChangeLog(KeyedStateSchema(LONG, 16, (state,)), {0: outcome(StateKind.LIST, changes, over_nothing=False)})
    assert list(log.over(KeyGroupRange(1, 15)).rest()) == []
    ((_, rest),) = log.over(KeyGroupRange(0, 0)).rest()
    assert rest.values.to_list() == [long(6)]


@pytest.mark.parametrize(
    "damaged", [merge(1, [2])[:-1], merge(1, [2]) + b"x", merge(1, [2])[:9], long(1) + b"\xff" * 4]
)
def test_a_damaged_merge_is_refused(damaged: bytes) -> None:
    with pytest.raises(CorruptStateError):
        outcome(StateKind.LIST, [(1, Op.MERGE_NS, [2])], arguments=[damaged])


def test_a_value_state_cannot_be_merged() -> None:
    with pytest.raises(CorruptStateError, match="operation 4"):
        outcome(StateKind.VALUE, [(1, Op.MERGE_NS, [2])])
