"""The result of a log of changes is compared with a slow walk over the same records: all of Flink's operations and
merges of partial sums, in any order."""

import struct
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.formats.changelog.change_set import ChangeRecords, Op
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import FieldMeaning, KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import LONG
from statelib.restore.changelog.change_log import ChangeLog
from statelib.restore.changelog.state_changes import changes_of
from statelib.serializers.entries.rows import StateRows
from statelib.wire.ragged import from_list

KEY_GROUPS = KeyGroupRange(0, 15)
Entries = dict[bytes, bytes]


def long(number: int) -> bytes:
    return struct.pack(">q", number)


def schema_of(kind: StateKind) -> KeyedStateSchema:
    sums = () if kind is StateKind.LIST else (FieldMeaning("", "sum", "n"),)
    state = StateDescriptor("s", kind, LONG, LONG if kind is StateKind.MAP else None, meanings=sums)
    return KeyedStateSchema(LONG, 16, (state,))


def composite(key: int, user_key: int | None = None) -> bytes:
    """Return a composite key: key group, key, void namespace, user key."""
    return bytes([key % 16]) + long(key) + b"\0" + (b"" if user_key is None else long(user_key))


def whole_list(values: list[int]) -> bytes:
    return struct.pack(">i", len(values)) + b"".join(map(long, values))


def whole_map(values: dict[int, int | None]) -> bytes:
    entries = [long(k) + (b"\1" if v is None else b"\0" + long(v)) for k, v in values.items()]
    return struct.pack(">i", len(entries)) + b"".join(entries)


NUMBERS = st.integers(0, 3)
LISTS = st.lists(NUMBERS, max_size=3)
MAPS = st.dictionaries(NUMBERS, st.none() | NUMBERS, max_size=3)
KEYS = st.integers(0, 20)
SETS = st.sampled_from([Op.SET, Op.SET_INTERNAL])
VALUE_CHANGES = st.tuples(KEYS, SETS | st.just(Op.MERGE), NUMBERS) | st.tuples(KEYS, st.just(Op.CLEAR), st.none())
LIST_CHANGES = (
    st.tuples(KEYS, SETS | st.just(Op.ADD), LISTS)
    | st.tuples(KEYS, st.just(Op.ADD_ELEMENT), NUMBERS)
    | st.tuples(KEYS, st.just(Op.CLEAR), st.none())
)
MAP_CHANGES = (
    st.tuples(KEYS, SETS | st.just(Op.ADD), MAPS)
    | st.tuples(
        KEYS, st.sampled_from([Op.ADD_ELEMENT, Op.ADD_OR_UPDATE_ELEMENT, Op.MERGE]), st.tuples(NUMBERS, NUMBERS)
    )
    | st.tuples(KEYS, st.just(Op.REMOVE_ELEMENT), NUMBERS)
    | st.tuples(KEYS, st.just(Op.CLEAR), st.none())
)
BASES = st.dictionaries(KEYS, st.lists(NUMBERS, min_size=1, max_size=3), max_size=15)


def argument(kind: StateKind, op: Op, value: Any) -> bytes:
    if op is Op.CLEAR:
        return b""
    if op in (Op.SET, Op.SET_INTERNAL, Op.ADD) and kind is not StateKind.VALUE:
        return whole_list(value) if kind is StateKind.LIST else whole_map(value)
    return b"".join(map(long, value)) if isinstance(value, tuple) else long(value)


def applied(kind: StateKind, base: list[tuple[bytes, bytes]], batches: list[list[Any]]) -> list[tuple[bytes, bytes]]:
    """Run the code under test: apply the log to two batches of entries below it."""
    schema = schema_of(kind)
    log = []
    for changes in batches:
        log.append(
            ChangeRecords(
                np.array([op for _, op, _ in changes], np.uint8),
                np.array([key % 16 for key, _, _ in changes], np.int32),
                from_list([long(key) for key, _, _ in changes]),
                from_list([b"\0"] * len(changes)),
                from_list([argument(kind, op, value) for _, op, value in changes]),
            )
        )
    overlay = ChangeLog(schema, {0: changes_of(schema, schema.states[0], log)}).over(KEY_GROUPS)
    half = len(base) // 2
    values: list[tuple[bytes, bytes]] = []
    for part in (base[:half], base[half:]):
        rows = StateRows(from_list([key for key, _ in part]), from_list([value for _, value in part]))
        left = overlay.covered(0, rows)
        values += zip(left.keys.to_list(), left.values.to_list(), strict=True)
    for _, rows in overlay.rest():
        values += zip(rows.keys.to_list(), rows.values.to_list(), strict=True)
    return sorted(values)


@settings(deadline=None)
@given(BASES, st.lists(st.lists(VALUE_CHANGES, min_size=1, max_size=20), max_size=3))
def test_the_result_for_values_equals_a_slow_walk(base: dict[int, list[int]], batches: list[list[Any]]) -> None:
    state = {key: values[0] for key, values in base.items()}
    below = [(composite(key), long(value)) for key, value in state.items()]
    for key, op, value in (change for batch in batches for change in batch):
        before = state.pop(key, 0)
        if op is not Op.CLEAR:
            state[key] = before + value if op is Op.MERGE else value
    expected = sorted((composite(key), long(value)) for key, value in state.items())
    assert applied(StateKind.VALUE, below, batches) == expected


@settings(deadline=None)
@given(BASES, st.lists(st.lists(LIST_CHANGES, min_size=1, max_size=20), max_size=3))
def test_the_result_for_lists_equals_a_slow_walk(base: dict[int, list[int]], batches: list[list[Any]]) -> None:
    def separated(lists: dict[int, list[int]]) -> list[tuple[bytes, bytes]]:
        return [(composite(key), b",".join(map(long, values))) for key, values in lists.items() if values]

    state = {key: list(values) for key, values in base.items()}
    below = separated(state)
    for key, op, value in (change for batch in batches for change in batch):
        before = state.get(key, []) if op in (Op.ADD, Op.ADD_ELEMENT) else []
        added = [] if op is Op.CLEAR else [value] if op is Op.ADD_ELEMENT else value
        state[key] = before + added
    assert applied(StateKind.LIST, below, batches) == sorted(separated(state))


@settings(deadline=None)
@given(BASES, st.lists(st.lists(MAP_CHANGES, min_size=1, max_size=20), max_size=3))
def test_the_result_for_maps_equals_a_slow_walk(base: dict[int, list[int]], batches: list[list[Any]]) -> None:
    def flagged(state: dict[int, dict[int, int | None]]) -> list[tuple[bytes, bytes]]:
        return [
            (composite(key, user), b"\1" if value is None else b"\0" + long(value))
            for key, entries in state.items()
            for user, value in entries.items()
        ]

    state: dict[int, dict[int, int | None]] = {key: dict(enumerate(values)) for key, values in base.items()}
    below = flagged(state)
    for key, op, value in (change for batch in batches for change in batch):
        entries = state.setdefault(key, {})
        if op in (Op.CLEAR, Op.SET, Op.SET_INTERNAL):
            entries.clear()
        if op is Op.REMOVE_ELEMENT:
            entries.pop(value, None)
        elif op in (Op.ADD_ELEMENT, Op.ADD_OR_UPDATE_ELEMENT):
            entries[value[0]] = value[1]
        elif op is Op.MERGE:
            entries[value[0]] = (entries.get(value[0]) or 0) + value[1]
        elif op is not Op.CLEAR:
            entries |= value
    assert applied(StateKind.MAP, below, batches) == sorted(flagged(state))
