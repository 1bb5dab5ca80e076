"""Entries of keyed state as typed JSON: every part of a key, every kind of value, and bytes that are none."""

import pyarrow as pa
import pytest

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.formats.text.typed_json import entry_lines
from statelib.model.state import (
    EVENT_TIMERS,
    PROCESSING_TIMERS,
    KeyedStateSchema,
    StateDescriptor,
    StateKind,
    timers_descriptor,
)
from statelib.model.types import GLOBAL_WINDOW, INT, STRING, TIME_WINDOW, Opaque, Ttl
from statelib.serializers.entries.keys import decode_keys, encode_keys, key_groups, prefixed_keys, split_keys
from statelib.serializers.entries.rows import StateRows
from statelib.serializers.entries.values import encode_values
from statelib.serializers.scalars.windows import MOMENT
from statelib.wire.ragged import from_list

KEY = '"key":{"type":"string","v":"k"},"kg":'
MAP = StateDescriptor("m", StateKind.MAP, INT, STRING)
LIST = StateDescriptor("l", StateKind.LIST, Ttl(STRING))


def lines(descriptor: StateDescriptor, key: bytes, value: bytes, max_parallelism: int = 128) -> list[str]:
    schema = KeyedStateSchema(STRING, max_parallelism, (descriptor,))
    return list(entry_lines("op", schema, descriptor, StateRows(from_list([key]), from_list([value]))))


def key_of(descriptor: StateDescriptor, max_parallelism: int = 128, **parts: pa.Array) -> bytes:
    schema, keys = KeyedStateSchema(STRING, max_parallelism, (descriptor,)), pa.array(["k"])
    (row,) = encode_keys(schema, descriptor, keys, key_groups(schema, keys), **parts).to_list()
    return row


def test_lists_that_expire_show_natural_values_and_their_places() -> None:
    column = pa.array([[{"last_access": 7, "value": "x,"}, {"last_access": 8, "value": ""}]])
    (value,) = encode_values(LIST, column).to_list()
    exported = lines(LIST, key_of(LIST), value)
    assert [line.partition('"ns":')[2] for line in exported] == [
        'null,"idx":0,"value":{"type":"string","v":"x,"}}',
        'null,"idx":1,"value":{"type":"string","v":""}}',
    ]


def test_a_map_state_has_one_line_per_user_key() -> None:
    key = key_of(MAP, user_keys=pa.array(["\u00e9"]))
    end = '"uk":{"type":"string","v":"\u00e9"},"value":'
    assert lines(MAP, key, b"\0\0\0\0\x07")[0].endswith(end + '{"type":"int","v":7}}')
    assert lines(MAP, key, b"\1\0\0\0\0")[0].endswith(end + '{"type":"null"}}'), "what stands behind null is unused"


@pytest.mark.parametrize("moment", [0, -1, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize(("prefix", "kind"), [(EVENT_TIMERS, "eventTimer"), (PROCESSING_TIMERS, "procTimer")])
def test_timers_have_lines_with_their_time(prefix: str, kind: str, moment: int) -> None:
    timers = timers_descriptor(prefix, "visits", TIME_WINDOW)
    bounds = pa.array([{"start": -5, "end": 2**62}], pa.struct([("start", pa.int64()), ("end", pa.int64())]))
    spaces = bounds.cast(pa.struct([("start", MOMENT), ("end", MOMENT)]))
    key = key_of(timers, 32768, namespaces=spaces, timestamps=pa.array([moment]).cast(MOMENT))
    (line,) = lines(timers, key, b"", 32768)
    assert line.startswith('{"op":"op","state":"visits","kind":"' + kind + '",' + KEY)
    assert line.endswith(f'"ns":{{"type":"timewindow","start":-5,"end":{2**62}}},"ts":{moment}}}')


@pytest.mark.parametrize("name", ["k", "k" * 300])
def test_keys_and_namespaces_are_divided_by_their_lengths_at_the_end(name: str) -> None:
    """The lengths of a key and a namespace of variable length are stored at the end."""
    state = StateDescriptor("s", StateKind.VALUE, INT, None, STRING)
    schema, keys = KeyedStateSchema(STRING, 128, (state,)), pa.array([name])
    groups = key_groups(schema, keys)
    (key,) = encode_keys(schema, state, keys, groups, namespaces=pa.array(["space"])).to_list()
    (line,) = lines(state, key, b"\0\0\0\1")
    assert f'"v":"{name}"}},"kg":{groups[0]},"ns":{{"type":"string","v":"space"}},"value"' in line
    at = 1 + len(name) + (1 if len(name) < 127 else 2)
    with pytest.raises(CorruptStateError) as caught:
        lines(state, key[:at] + b"\x7f" + key[at + 1 :], b"\0\0\0\1")
    assert caught.value.kind == "bad-key-length"


def test_keys_of_unknown_serializers_are_shown_as_bytes() -> None:
    """The end of such a key follows from the length of the rest, except if a user key follows it."""
    key_type = Opaque("a.Kryo", b"")
    rows = StateRows(from_list([b"\7" + b"key" + bytes(16)]), from_list([b"\0\0\0\1"]))
    state = StateDescriptor("s", StateKind.VALUE, INT, None, TIME_WINDOW)
    (line,) = entry_lines("op", KeyedStateSchema(key_type, 128, (state,)), state, rows)
    assert '"key":{"type":"opaque","serializer":"a.Kryo","hex":"6b6579"},"kg":7,"ns":{"type":"timewindow"' in line
    schema = KeyedStateSchema(key_type, 128, (state, MAP))
    decoded = decode_keys(schema, state, rows.keys)
    assert (decoded.keys.to_pylist(), decoded.key_groups.tolist()) == ([b"key"], [7])
    assert decoded.namespaces is not None
    assert len(decoded.namespaces) == 1
    assert split_keys(schema, state, rows.keys).keys.to_list() == [b"key"]
    assert prefixed_keys(schema, state, rows.keys).to_list() == [b"\7key"]
    for read in (decode_keys, split_keys, prefixed_keys, lambda *_: list(entry_lines("op", schema, MAP, rows))):
        with pytest.raises(UnsupportedError, match=r"'m'.*a\.Kryo") as caught:
            read(schema, MAP, rows.keys)
        assert caught.value.kind == "opaque-key"


def test_the_error_names_bytes_that_are_no_entry() -> None:
    value = StateDescriptor("v", StateKind.VALUE, INT)
    space = StateDescriptor("g", StateKind.VALUE, INT, None, GLOBAL_WINDOW)
    timers = timers_descriptor(EVENT_TIMERS, "t")
    good = key_of(value)
    timer = key_of(timers, timestamps=pa.array([1]).cast(MOMENT))
    cases = [
        (value, good + b"\0", b"\0\0\0\1", "trailing-bytes", "key of state 'v'"),
        (value, good, b"\0\0\0\1\0", "trailing-bytes", "value of state 'v'"),
        (value, good, b"\0\0\0", "truncated", "value of state 'v'"),
        (value, good[:-1], b"\0\0\0\1", "truncated", "key of state 'v'"),
        (value, good[:-1] + b"\1", b"\0\0\0\1", "bad-void", "key of state 'v'"),
        (space, good[:-1] + b"\1", b"\0\0\0\1", "bad-void", "key of state 'g'"),
        (LIST, good, bytes(8) + b"\2x;" + bytes(8) + b"\2x", "bad-separator", "value of state 'l'"),
        (LIST, good, bytes(8) + b"\2x,", "truncated", "value of state 'l'"),
        (timers, timer, b"\0", "trailing-bytes", "value of state"),
    ]
    for descriptor, key, stored, kind, text in cases:
        with pytest.raises(CorruptStateError) as caught:
            lines(descriptor, key, stored)
        assert (caught.value.kind, text in caught.value.message) == (kind, True), (descriptor, stored)
    assert lines(space, good, b"\0\0\0\1")[0].endswith('"ns":{"type":"globalwindow"},"value":{"type":"int","v":1}}')
