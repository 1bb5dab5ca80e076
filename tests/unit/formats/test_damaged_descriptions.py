"""Damaged manifests, headers and operator state that fuzzing found."""

import json
from typing import Any

import pytest

from statelib.errors import CorruptStateError, InvalidRequestError, StatelibError, UnsupportedError
from statelib.formats.keyed.header import decode_keyed_header, encode_header
from statelib.formats.manifest.manifest_json import manifest_to_json
from statelib.formats.manifest.trailer import read_checkpoint_file
from statelib.formats.metadata.metadata_file import encode_metadata
from statelib.formats.operator_state import OperatorStream, encode_operator_state
from statelib.formats.source_position import position_content
from statelib.model.checkpoint import DataInterval, SourcePosition
from statelib.model.handles import ByteStreamStateHandle, OperatorStreamStateHandle
from statelib.model.types import LONG, Field, Row, Tuple
from statelib.serializers.snapshots import decode_serializer_snapshot, encode_serializer_snapshot
from statelib.testing.keyed_samples import sample_schema
from statelib.wire.reader import Reader
from tests.fuzz.describing_targets import own_checkpoint, with_body


def body() -> tuple[bytes, dict[str, Any]]:
    metadata, manifest = read_checkpoint_file(own_checkpoint())
    assert manifest is not None
    return encode_metadata(metadata), json.loads(json.dumps(manifest_to_json(manifest)))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["statistics", 0, "key_groups"], [0, 2**63]),
        (["files", 0, "key_groups"], [0, 40_000]),
        (["created_at_ms"], 2**63),
        (["checkpoint_id"], 10**40),
        (["schema", "max_parallelism"], 0),
        (["schema", "max_parallelism"], 2**40),
        (["schema", "states", 0, "meanings", 0, "bounds"], [10**400]),
        (["schema", "key_type"], "nullable<long; x>"),
    ],
)
def test_impossible_numbers_in_a_manifest_are_damage(path: list[str | int], value: object) -> None:
    flink, content = body()
    at: Any = content
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    with pytest.raises(CorruptStateError) as caught:
        read_checkpoint_file(with_body(flink, json.dumps(content).encode()), "chk-4/_metadata")
    assert caught.value.kind == "corrupt-metadata"
    assert caught.value.message.startswith("chk-4/_metadata")


def test_a_header_with_a_state_twice_is_damaged() -> None:
    header = encode_header(sample_schema(), compressed=False)
    with pytest.raises(CorruptStateError, match="once") as caught:
        decode_keyed_header(header.replace(b"visits", b"totals"), 128, "chk-1/a")
    assert caught.value.kind == "corrupt-header"


@pytest.mark.parametrize("max_parallelism", [0, -1, 2**31 - 1])
def test_a_header_of_an_impossible_number_of_key_groups_is_damaged(max_parallelism: int) -> None:
    with pytest.raises(CorruptStateError, match="max_parallelism"):
        decode_keyed_header(encode_header(sample_schema(), compressed=False), max_parallelism, "chk-1/a")


@pytest.mark.parametrize(("message", "most"), [("a\nb\x1b[31m\ud800", 40), ("x" * 70_000, 4000)])
def test_text_made_of_stored_bytes_is_one_printable_line_of_limited_length(message: str, most: int) -> None:
    for kind in (CorruptStateError, UnsupportedError):
        result = kind(message, kind="k").message
        assert result.isprintable()
        assert len(result) <= most
    assert InvalidRequestError("two\nlines", kind="k").message == "two\nlines"
    assert InvalidRequestError("a\x1b", kind="k").message == r"a\x1b"


def test_elements_of_operator_state_do_not_share_their_bytes() -> None:
    position = SourcePosition(DataInterval(0, 1), 1)
    data, ((name, mode, (first,)),) = encode_operator_state([position_content(position)])
    handle = OperatorStreamStateHandle(((name, mode, (first, first)),), ByteStreamStateHandle("p", data))
    with pytest.raises(CorruptStateError) as caught:
        list(OperatorStream(handle, data).contents())
    assert caught.value.kind == "bad-offset"
    overlapping = OperatorStreamStateHandle(((name, mode, (first, first + 1)),), ByteStreamStateHandle("p", data))
    with pytest.raises(StatelibError):
        list(OperatorStream(overlapping, data).contents())
    twice = OperatorStreamStateHandle(((name, mode, (first,)),) * 2, ByteStreamStateHandle("p", data))
    with pytest.raises(CorruptStateError, match="twice"):
        OperatorStream(twice, data)


def test_serializers_of_tuples_and_rows_without_fields_are_refused() -> None:
    for type_ in (Row((Field("a", LONG),)), Tuple((LONG,))):
        good = encode_serializer_snapshot(type_)
        at = good.rindex((1).to_bytes(4, "big"), 0, good.index(b"LongSerializer"))
        bad = good[:at] + bytes(4) + good[at + 4 :]
        with pytest.raises(UnsupportedError):
            decode_serializer_snapshot(Reader(bad.replace(b"tuple.Tuple1", b"tuple.Tuple0"), "header"))
