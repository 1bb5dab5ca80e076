"""A change set is written and read back: each state's last changes, by key group; damage has one name."""

import numpy as np
import pyarrow as pa
import pytest

from statelib.backends.keys.order import byte_order
from statelib.errors import CorruptStateError, StatelibError, UnsupportedError
from statelib.formats.changelog.change_set import (
    METADATA_GROUP,
    ChangeRecords,
    ChangeSet,
    Op,
    decode_change_set,
    decode_stream,
    read_binding,
    records_of,
    state_ids,
)
from statelib.formats.changelog.encoder import ChangedRows, encode_changes
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import EVENT_TIMERS, KeyedStateSchema, StateDescriptor, StateKind, timers_descriptor
from statelib.model.types import LONG, STRING, TIME_WINDOW, Opaque
from statelib.restore.changelog.state_changes import changes_of
from statelib.serializers.entries.keys import encode_keys, key_groups
from statelib.serializers.entries.rows import NO_ROWS, StateRows
from statelib.serializers.entries.values import encode_values, value_arrow_type
from statelib.serializers.registry import codec_of
from statelib.serializers.scalars.windows import MOMENT
from statelib.testing.keyed_samples import sample_schema, serialized
from statelib.wire.ragged import Ragged, from_list

SCHEMA = sample_schema()
WHOLE = KeyGroupRange(0, 127)
NOTHING = ChangedRows(NO_ROWS, NO_ROWS.keys)


def changed(state: str, values: dict[str, object], removed: list[str], place: str | None = None) -> ChangedRows:
    def keys(names: list[str]) -> list[bytes]:
        return serialized(SCHEMA, state, names, None if place is None else [place] * len(names)).to_list()

    descriptor = SCHEMA.state(state)
    column = pa.array(list(values.values()), value_arrow_type(descriptor))
    rows = sorted(zip(keys(list(values)), encode_values(descriptor, column).to_list(), strict=True))
    put_rows = StateRows(from_list([key for key, _ in rows]), from_list([value for _, value in rows]))
    return ChangedRows(put_rows, from_list(sorted(keys(removed))))


EXAMPLE = [
    changed("totals", {f"k{i}": {"count": i, "last": None} for i in range(40)}, ["gone"]),
    NOTHING,
    changed("visits", {"k1": [1, 2, 3], "k2": [4]}, ["k3"]),
    changed("per_place", {"k1": 5, "k2": None}, ["k3"], "JFK"),
]


def decoded(data: bytes, wanted: KeyGroupRange = WHOLE) -> ChangeSet:
    return decode_change_set(decode_stream(memoryview(data), "log"), 0, wanted, "log")


def test_a_change_set_contains_each_changed_state_and_each_change() -> None:
    changes = decoded(encode_changes(SCHEMA, EXAMPLE))
    bound = {b.number: b.descriptor for b in (read_binding(record, "log") for record in changes.metadata)}
    assert {number: state.name for number, state in bound.items()} == {0: "totals", 2: "visits", 3: "per_place"}
    ids = state_ids(changes, "log")
    rows = {number: (ids == number).nonzero()[0] for number in bound}
    ops = {number: records_of(changes, at, STRING, bound[number]).ops.tolist() for number, at in rows.items()}
    assert sorted(ops[0]) == [Op.CLEAR] + [Op.SET] * 40
    assert sorted(ops[2]) == [Op.CLEAR, Op.SET, Op.SET]
    assert sorted(ops[3]) == [Op.ADD, Op.ADD_OR_UPDATE_ELEMENT, Op.REMOVE_ELEMENT], "a null is a map of one entry"


def test_the_changes_of_some_key_groups_can_be_read_alone() -> None:
    data = encode_changes(SCHEMA, EXAMPLE)
    whole = decoded(data)
    parts = [decoded(data, KeyGroupRange(0, 40)), decoded(data, KeyGroupRange(41, 127))]
    assert [set(part.key_groups.tolist()) <= set(r) for part, r in zip(parts, (range(41), range(41, 128)), strict=True)]
    assert sum(len(part.starts) for part in parts) == len(whole.starts) == 47
    assert all(len(part.metadata) == 3 for part in parts)
    assert METADATA_GROUP not in whole.key_groups.tolist()


def test_without_changes_nothing_is_encoded() -> None:
    assert encode_changes(SCHEMA, [NOTHING] * 4) == b""


def test_a_truncated_or_changed_stream_is_refused() -> None:
    data = encode_changes(SCHEMA, EXAMPLE)
    for stop in range(len(data)):
        with pytest.raises(CorruptStateError):
            decoded(data[:stop])
    whole = decoded(data).data.tobytes()
    for at in range(len(data)):
        try:
            result = decoded(bytes([*data[:at], data[at] ^ 0x40, *data[at + 1 :]])).data.tobytes()
        except StatelibError:
            continue
        assert result == whole, "Snappy may copy the same bytes from another place"


def test_an_uncompressed_change_set_that_ends_early_is_refused() -> None:
    plain = decode_stream(memoryview(encode_changes(SCHEMA, EXAMPLE)), "log").tobytes()
    for stop in range(len(plain)):
        with pytest.raises(CorruptStateError) as caught:
            decoded(b"\0" + plain[:stop])
        assert caught.value.kind == "corrupt-changelog"
    assert len(decoded(b"\0" + plain).starts) == 47
    with pytest.raises(CorruptStateError) as caught:
        decode_stream(memoryview(b"\2"), "log")
    assert caught.value.kind == "corrupt-changelog"


KRYO = Opaque("a.Kryo")


@pytest.mark.parametrize(
    ("state", "op"),
    [
        (StateDescriptor("m", StateKind.MAP, LONG, KRYO), Op.ADD_ELEMENT),
        (StateDescriptor("m", StateKind.MAP, LONG, KRYO), Op.REMOVE_ELEMENT),
        (StateDescriptor("m", StateKind.MAP, KRYO, LONG), Op.ADD),
        (StateDescriptor("l", StateKind.LIST, KRYO), Op.SET),
    ],
)
def test_entries_that_only_a_users_class_can_divide_are_unsupported_and_not_damaged(
    state: StateDescriptor, op: Op
) -> None:
    argument = from_list([b"\0\0\0\2" + bytes(20)])
    none = from_list([b""])
    records = ChangeRecords(np.array([op], np.uint8), np.zeros(1, np.int32), none, from_list([b"\0"]), argument)
    with pytest.raises(UnsupportedError, match=r"a\.Kryo") as caught:
        changes_of(KeyedStateSchema(LONG, 128, (state,)), state, [records])
    assert caught.value.kind == "opaque-entries"
    logged = ChangeSet((), argument.data, np.zeros(1, np.int32), argument.starts, argument.offsets[1:])
    with pytest.raises(UnsupportedError, match=r"a\.Kryo"):
        records_of(logged, np.arange(1), KRYO, state)


def test_timers_are_logged_and_the_last_change_of_each_counts() -> None:
    timers = timers_descriptor(EVENT_TIMERS, "alarms", TIME_WINDOW)
    schema = KeyedStateSchema(STRING, 128, (timers,))
    keys = pa.array(["a", "b", "c"])
    windows = pa.array([{"start": 0, "end": n} for n in (1, 2, 3)], codec_of(TIME_WINDOW).arrow_type)
    moments = pa.array([5, -1, 2**62], MOMENT)
    groups = key_groups(schema, keys)
    rows = encode_keys(schema, timers, keys, groups, namespaces=windows, timestamps=moments)
    order = byte_order(rows)
    put_rows, gone = rows.take(order[:2]), rows.take(order[2:])
    empty = Ragged(np.empty(0, np.uint8), np.zeros(3, np.int64))
    changes = decoded(encode_changes(schema, [ChangedRows(StateRows(put_rows, empty), gone)]))
    (binding,) = (read_binding(record, "log") for record in changes.metadata)
    assert (binding.descriptor, binding.key_type) == (timers, STRING)
    records = records_of(changes, np.arange(3), STRING, timers)
    again = changes_of(schema, timers, [records])
    assert sorted(again.put.keys.to_list()) == sorted(put_rows.to_list())
    assert again.gone.to_list() == gone.to_list()
    assert again.plain
    later = records_of(changes, np.arange(3)[::-1], STRING, timers)
    assert sorted(changes_of(schema, timers, [records, later]).put.keys.to_list()) == sorted(put_rows.to_list())
