"""The vectorised codecs equal the slow ones, for every type, at any place among other bytes."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.errors import CorruptStateError, StatelibError
from statelib.model.key_groups import prefix_width
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import LONG, VOID, ListOf, StateType
from statelib.serializers.entries.keys import decode_keys, encode_keys, key_groups
from statelib.serializers.entries.values import decode_values, encode_values, value_arrow_type
from statelib.serializers.registry import codec_of
from statelib.serializers.snapshots import decode_serializer_snapshot, encode_serializer_snapshot
from statelib.serializers.type_text import parse_type
from statelib.testing.reference import codecs as reference
from statelib.testing.type_strategies import plain_values, state_types
from statelib.wire.ragged import from_list
from statelib.wire.reader import Reader
from tests.support.extent import examples

SETTINGS = settings(max_examples=examples(150), deadline=None)


def batches(type_: StateType) -> st.SearchStrategy[tuple[StateType, list[reference.Plain]]]:
    return st.tuples(st.just(type_), st.lists(plain_values(type_), max_size=6))


TYPED = state_types().flatmap(batches)
KEYED = state_types(keyable=True).flatmap(batches)


def sliced(type_: StateType, values: list[reference.Plain]) -> pa.Array:
    """Return the values as a slice from the middle of a longer column."""
    return reference.arrow(type_, [*values[:2], *values, *values[:1]]).slice(min(2, len(values)), len(values))


@SETTINGS
@given(TYPED)
def test_encode_writes_the_bytes_of_the_slow_codec(typed) -> None:
    type_, values = typed
    expected = [reference.encode(type_, v) for v in values]
    rows = codec_of(type_).encode(sliced(type_, values))
    assert rows.to_list() == expected
    if codec_of(type_).width > 0:
        assert {len(row) for row in expected} <= {codec_of(type_).width}


@SETTINGS
@given(TYPED, st.binary(max_size=9), st.binary(max_size=9))
def test_decode_reads_the_values_back_from_between_other_bytes(typed, before, after) -> None:
    type_, values = typed
    rows = from_list([before, *(reference.encode(type_, v) + after for v in values), after])
    cursor, limit = rows.starts[1:-1], rows.offsets[2:-1]
    ends = limit - len(after)
    result, at = codec_of(type_).decode(rows.data, cursor, limit)
    result.validate(full=True)
    assert result.type == codec_of(type_).arrow_type
    assert result.equals(reference.arrow(type_, values))
    assert at.tolist() == ends.tolist()
    assert codec_of(type_).skip(rows.data, cursor, limit).tolist() == ends.tolist()
    assert cursor.tolist() == rows.starts[1:-1].tolist()


@SETTINGS
@given(state_types().flatmap(lambda t: st.tuples(st.just(t), plain_values(t))), st.data())
def test_a_truncated_value_is_refused(typed, data) -> None:
    type_, value = typed
    raw = reference.encode(type_, value)
    rows = from_list([raw])
    cut = rows.offsets[1:] - data.draw(st.integers(1, len(raw)))
    for read in (codec_of(type_).decode, codec_of(type_).skip):
        with pytest.raises(CorruptStateError) as caught:
            read(rows.data, rows.starts, cut)
        assert caught.value.kind == "truncated-value"


@SETTINGS
@given(state_types(), st.lists(st.binary(max_size=30), max_size=4))
def test_any_bytes_are_decoded_within_bounds_or_refused(type_, raw) -> None:
    rows = from_list(raw)
    try:
        result, at = codec_of(type_).decode(rows.data, rows.starts, rows.offsets[1:])
    except StatelibError:
        return
    result.validate(full=True)
    assert len(result) == len(raw)
    assert np.all(at <= rows.offsets[1:])
    assert np.all(at > rows.starts)


@SETTINGS
@given(KEYED, st.sampled_from([1, 3, 128, 129, 32768]))
def test_hashes_and_key_groups_equal_those_of_java(typed, max_parallelism) -> None:
    type_, values = typed
    keys = sliced(type_, values)
    hashes = codec_of(type_).java_hash(keys)
    assert hashes.dtype == np.int32
    assert hashes.tolist() == [reference.java_hash(type_, v) for v in values]
    schema = KeyedStateSchema(type_, max_parallelism, ())
    expected = [reference.key_group(h, max_parallelism) for h in hashes.tolist()]
    assert key_groups(schema, keys).tolist() == expected


@SETTINGS
@given(
    KEYED,
    st.one_of(st.just(VOID), state_types()),
    st.one_of(st.none(), state_types()),
    st.sampled_from([128, 129]),
    st.data(),
)
def test_composite_keys_are_encoded_and_decoded(typed, namespace_type, user_key_type, max_parallelism, data) -> None:
    key_type, keys = typed
    kind = StateKind.VALUE if user_key_type is None else StateKind.MAP
    state = StateDescriptor("s", kind, LONG, user_key_type, namespace_type)
    schema = KeyedStateSchema(key_type, max_parallelism, (state,))
    namespaces = [data.draw(plain_values(namespace_type)) for _ in keys]
    user_keys = [None if user_key_type is None else data.draw(plain_values(user_key_type)) for _ in keys]
    groups = np.array([data.draw(st.integers(0, max_parallelism - 1)) for _ in keys], np.int32)
    parts = zip(groups.tolist(), keys, namespaces, user_keys, strict=True)
    expected = [reference.encode_key(schema, state, g, (k, n, u)) for g, k, n, u in parts]

    key_column = reference.arrow(key_type, keys)
    user_key_column = None if user_key_type is None else reference.arrow(user_key_type, user_keys)
    space_column = None if namespace_type == VOID else reference.arrow(namespace_type, namespaces)
    rows = encode_keys(schema, state, key_column, groups, user_key_column, namespaces=space_column)
    assert rows.to_list() == expected
    decoded = decode_keys(schema, state, rows)
    assert decoded.key_groups.tolist() == groups.tolist()
    assert decoded.keys.equals(key_column)
    assert (decoded.user_keys is None) == (user_key_type is None)
    assert decoded.user_keys is None or decoded.user_keys.equals(user_key_column)
    assert (decoded.namespaces is None) == (namespace_type == VOID)
    assert decoded.namespaces is None or decoded.namespaces.equals(space_column)
    assert prefix_width(max_parallelism) == (1 if max_parallelism == 128 else 2)


@SETTINGS
@given(state_types(), st.sampled_from([kind for kind in StateKind if kind is not StateKind.TIMERS]), st.data())
def test_values_of_each_kind_of_state_are_encoded_and_decoded(type_, kind, data) -> None:
    state = StateDescriptor("s", kind, type_, LONG if kind is StateKind.MAP else None)
    one = plain_values(type_)
    strategy = {StateKind.LIST: st.lists(one, min_size=1, max_size=4), StateKind.MAP: st.one_of(st.none(), one)}
    values = data.draw(st.lists(strategy.get(kind, one), max_size=5))
    column = reference.arrow(ListOf(type_) if kind is StateKind.LIST else type_, values)
    rows = encode_values(state, column)
    assert rows.to_list() == [reference.encode_value(state, v) for v in values]
    decoded = decode_values(state, rows)
    decoded.validate(full=True)
    assert decoded.type == value_arrow_type(state)
    assert decoded.equals(column)


@SETTINGS
@given(state_types())
def test_the_text_of_a_type_is_read_back(type_) -> None:
    assert parse_type(str(type_)) == type_
    assert parse_type(f"  {type_} ".replace(", ", " ,  ")) == type_


@SETTINGS
@given(state_types(), st.binary(max_size=5))
def test_the_snapshot_of_a_serializer_is_read_back_without_further_bytes(type_, after) -> None:
    raw = encode_serializer_snapshot(type_)
    reader = Reader(raw + after, "header")
    decoded = decode_serializer_snapshot(reader)
    assert reader.offset == len(raw)
    assert encode_serializer_snapshot(decoded) == raw
    assert codec_of(decoded).encode(reference.arrow(decoded, [])).to_list() == []
