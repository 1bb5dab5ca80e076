"""Headers that name serializers of a user's own: opaque if the length of their snapshot is certain, otherwise
refused."""

import pyarrow as pa
import pytest

from statelib.errors import UnsupportedError
from statelib.formats.keyed.header import decode_keyed_header, encode_header
from statelib.formats.operator_state import OperatorStateContent, OperatorStream, encode_operator_state
from statelib.model.handles import ByteStreamStateHandle, OperatorStreamStateHandle
from statelib.model.operator_state import OperatorStateDescriptor, OperatorStateMode
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import BOOLEAN, INT, LONG, Field, Opaque, Pojo
from statelib.serializers.snapshots import encode_serializer_snapshot

SIMPLE = encode_serializer_snapshot(INT)
NAME = b"com.acme.OrderSerializer$OrderSnapshot"
FOREIGN = len(NAME).to_bytes(2, "big") + NAME + b"\0\0\0\3"
STATES = (
    StateDescriptor("a", StateKind.VALUE, INT),
    StateDescriptor("b", StateKind.LIST, INT),
    StateDescriptor("c", StateKind.MAP, INT, BOOLEAN),
)
HEADER = encode_header(KeyedStateSchema(LONG, 128, STATES), False)
OPAQUE = Opaque("com.acme.OrderSerializer", "", FOREIGN)


def test_a_foreign_serializer_without_content_is_opaque() -> None:
    decoded = decode_keyed_header(HEADER.replace(SIMPLE, FOREIGN), 128)
    assert [state.value_type for state in decoded.schema.states] == [OPAQUE] * 3
    assert decoded.schema.states[2].user_key_type == BOOLEAN
    assert encode_header(decoded.schema, False) == HEADER.replace(SIMPLE, FOREIGN)


@pytest.mark.parametrize(
    "data",
    [
        HEADER.replace(SIMPLE, FOREIGN + b"\0\1x"),
        HEADER.replace(SIMPLE, FOREIGN) + b"entries",
        HEADER.replace(SIMPLE, FOREIGN[:-1] + b"\2"),
        HEADER.replace(SIMPLE, FOREIGN.replace(NAME, b"org.apache.flink.".ljust(len(NAME), b"x"))),
    ],
    ids=["content", "no end", "version", "Flink's own"],
)
def test_a_foreign_serializer_that_may_have_content_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(UnsupportedError) as caught:
        decode_keyed_header(data, 128)
    assert caught.value.kind == "unknown-serializer"


def test_a_foreign_serializer_of_a_pojo_field_is_read_whatever_its_content() -> None:
    """The snapshots of a POJO's fields have lengths."""
    pojo = Pojo("com.acme.Cart", (Field("n", LONG), Field("order", Opaque("x", "", FOREIGN + b"more"))))
    states = (StateDescriptor("s", StateKind.VALUE, pojo), *STATES)
    decoded = decode_keyed_header(encode_header(KeyedStateSchema(LONG, 128, states), False) + b"entries", 128)
    value_type = decoded.schema.states[0].value_type
    assert isinstance(value_type, Pojo)
    assert value_type.fields[1].type == Opaque("com.acme.OrderSerializer", "", FOREIGN + b"more")


def test_operator_state_with_foreign_serializers_is_read_as_bytes() -> None:
    """The handle contains the offset of the first element: the header must end there."""
    state = OperatorStateContent(
        OperatorStateDescriptor("e", OperatorStateMode.UNION, INT), pa.array([1, 2], pa.int32())
    )
    data, ((name, mode, offsets),) = encode_operator_state([state])
    grown = len(FOREIGN) - len(SIMPLE)
    for moved, readable in ((0, True), (1, False)):
        places = tuple(offset + grown + moved for offset in offsets)
        handle = OperatorStreamStateHandle(((name, mode, places),), ByteStreamStateHandle("x", b""))
        foreign = data.replace(SIMPLE, FOREIGN)
        if readable:
            opened = OperatorStream(handle, foreign)
            assert opened.descriptors[0].value_type == OPAQUE
            assert opened.read(opened.descriptors[0]).values.to_pylist() == [b"\0\0\0\1", b"\0\0\0\2"]
            assert opened.stored(opened.descriptors[0]) == (b"\0\0\0\1", b"\0\0\0\2")
        else:
            with pytest.raises(UnsupportedError):
                OperatorStream(handle, foreign)
