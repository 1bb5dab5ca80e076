"""Each registered type provides every aspect: an example is written, read, skipped, shown, hashed and described."""

import re
import subprocess
import sys
from collections import Counter
from dataclasses import fields
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest

from statelib.errors import UnsupportedError
from statelib.model.types import JAVA_SCALARS, SCALARS, STRING_VALUE, WINDOWS, Scalar, StateType
from statelib.restore.schemas.matching import as_stored
from statelib.serializers.aspects.type_support import TypeSupport
from statelib.serializers.plain_hashes import plain_hashes
from statelib.serializers.registry import TYPES, codec_of, support_of
from statelib.serializers.skippers import skipper_of
from statelib.serializers.snapshots import decode_serializer_snapshot, encode_serializer_snapshot
from statelib.serializers.type_text import WORDS, parse_type
from statelib.serializers.typed_json import json_reader
from statelib.wire.reader import Reader

ROOT = Path(__file__).parents[3]
EXAMPLES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "byte": [1, -1],
    "short": [1, -1],
    "int": [1, -1],
    "long": [1, -(2**40)],
    "float": [1.5, -0.0],
    "double": [1.5, -0.0],
    "char": [65, 65535],
    "string": ["", "日本"],
    "stringvalue": ["", "日本"],
    "bytes": [b"", b"ab"],
    "date": [0, 20_000],
    "time": [0, 86_399_000_000_001],
    "datetime": [0, -1],
    "instant": [0, -1],
    "void": [None, None],
    "bigint": ["0", str(-(2**70))],
    "bigdecimal": ["1.50", "-3"],
    "decimal(5, 2)": [Decimal("1.50"), Decimal("-999.99")],
    "javadate": [0, -1],
    "sqldate": [0, -1],
    "sqltime": [0, -1],
    "sqltimestamp": [0, 1_700_000_000_123_456_789],
    "timewindow": [{"start": 0, "end": 1000}, {"start": -5, "end": 7}],
    "globalwindow": [None, None],
    "array<long>": [[], [1, 2]],
    "list<string>": [[], ["a", "b"]],
    "set<long>": [[], [1, 2]],
    "map<string, long>": [[], [("a", 1), ("b", None)]],
    "tuple<long, string>": [{"f0": 1, "f1": "a"}, {"f0": 2, "f1": "é"}],
    "row<f0: long, f1: string>": [{"f0": 1, "f1": None}, {"f0": None, "f1": "é"}],
    "objects<java.lang.String; string>": [[], ["a", None]],
    "nullable<string>": ["a", None],
    "either<string, long>": [{"left": "a", "right": None}, {"left": None, "right": 4}],
    "option<string>": ["a", None],
    "ttl<string>": [{"last_access_ms": 5, "value": "a"}, {"last_access_ms": 6, "value": "b"}],
    "enum<a.Kind; ONE, TWO>": ["ONE", "TWO"],
    "pojo<a.Person; age: int, name: string>": [{"age": 1, "name": "a"}, None],
    "opaque<a.Serializer; a.Value>": [b"ab"],
    "like<a.Serializer; string>": ["a", "é"],
    "oneof<0: long, 1: string>": [{"t0": 1, "t1": None}, {"t0": None, "t1": "a"}],
    "rowdata<f0: BIGINT, f1: VARCHAR(20)>": [{"f0": 1, "f1": None}, {"f0": None, "f1": "more than seven"}],
}
WITHOUT_SNAPSHOT = {"stringvalue", "option", "oneof", "opaque", "like"}
"""Types whose snapshot only Flink writes, and whose examples have none."""
WITHOUT_PLAIN_HASH = {
    "bytes", "void", "stringvalue", "timewindow", "globalwindow",
    "array", "list", "set", "map", "objects", "ttl", "enum", "pojo", "opaque", "like", "oneof", "option",
}  # fmt: skip
"""Types that are no keys, or whose hash is not checked a second time."""
TEXT_OF = {support_of(parse_type(text)).of: text for text in EXAMPLES}


def example(support: TypeSupport[Any]) -> tuple[str, StateType, pa.Array]:
    assert support.of in TEXT_OF, f"write an example of {support.of} into EXAMPLES"
    text = TEXT_OF[support.of]
    type_, values = parse_type(text), EXAMPLES[text]
    arrow_type = codec_of(type_).arrow_type
    if pa.types.is_temporal(arrow_type):
        integers = pa.int32() if arrow_type.bit_width == 32 else pa.int64()
        return text, type_, pa.array(values, integers).cast(arrow_type)
    return text, type_, pa.array(values, arrow_type)


each_type = pytest.mark.parametrize("support", TYPES, ids=lambda support: TEXT_OF.get(support.of, str(support.of)))


def test_every_type_of_the_model_is_registered() -> None:
    classes = {kind for kind in get_args(StateType) if kind is not Scalar}
    scalars = {*SCALARS.values(), *JAVA_SCALARS.values(), *WINDOWS.values(), STRING_VALUE}
    assert {support.of for support in TYPES} == classes | scalars
    assert len(TYPES) == len(classes | scalars)


@each_type
def test_every_type_has_every_aspect(support: TypeSupport[Any]) -> None:
    assert [field.name for field in fields(support) if getattr(support, field.name) is None] == []


@each_type
def test_columns_are_written_read_back_and_skipped(support: TypeSupport[Any]) -> None:
    _, type_, values = example(support)
    codec = codec_of(type_)
    rows = codec.encode(values)
    decoded, ends = codec.decode(rows.data, rows.starts, rows.offsets[1:])
    assert decoded.to_pylist() == values.to_pylist()
    skipped = codec.skip(rows.data, rows.starts, rows.offsets[1:])
    assert ends.tolist() == skipped.tolist() == rows.offsets[1:].tolist()
    if codec.width > 0:
        assert set(rows.lengths.tolist()) == {codec.width}


@each_type
def test_a_skipper_ends_where_the_codec_ends(support: TypeSupport[Any]) -> None:
    text, type_, values = example(support)
    rows = codec_of(type_).encode(values)
    skip = skipper_of([codec_of(type_)])
    raw = bytes(rows.data)
    if text.startswith("opaque"):
        with pytest.raises(UnsupportedError) as caught:
            skip(raw, 0)
        assert caught.value.kind == "opaque-entries"
        return
    ends = []
    for start in rows.starts.tolist():
        ends.append(skip(raw, start))
    assert ends == rows.offsets[1:].tolist()


@each_type
def test_typed_json_is_read_to_the_last_byte(support: TypeSupport[Any]) -> None:
    _, type_, values = example(support)
    shown = []
    for row in codec_of(type_).encode(values).to_list():
        reader = Reader(row, str(type_))
        shown.append(json_reader(type_)(reader))
        assert reader.remaining == 0
    assert all("type" in value for value in shown)
    assert [value == {"type": "null"} for value in shown] == [
        value is None and support.of != WINDOWS["globalwindow"] for value in values.to_pylist()
    ]


@each_type
def test_the_snapshot_of_each_type_is_read_back(support: TypeSupport[Any]) -> None:
    text, type_, _ = example(support)
    if text.partition("<")[0] in WITHOUT_SNAPSHOT:
        with pytest.raises(UnsupportedError) as caught:
            encode_serializer_snapshot(type_)
        assert caught.value.kind == "opaque-without-snapshot"
        return
    reader = Reader(encode_serializer_snapshot(type_), text)
    assert decode_serializer_snapshot(reader) == as_stored(type_)
    assert reader.remaining == 0


@each_type
def test_the_text_of_each_type_is_parsed_back(support: TypeSupport[Any]) -> None:
    text, type_, _ = example(support)
    assert str(type_) == text


@each_type
def test_both_ways_to_hash_a_key_agree_or_refuse_the_type(support: TypeSupport[Any]) -> None:
    text, type_, values = example(support)
    present = values.filter(values.is_valid())
    if text.partition("<")[0] not in WITHOUT_PLAIN_HASH:
        assert plain_hashes(type_, present) == codec_of(type_).java_hash(present).tolist()
        return
    if len(present):
        with pytest.raises(UnsupportedError) as caught:
            plain_hashes(type_, present)
        assert caught.value.kind == "no-key-hash"


def test_every_word_begins_the_text_of_a_type() -> None:
    assert {re.split("[<(]", text)[0] for text in EXAMPLES} | {"sql"} == set(WORDS)


def test_types_are_parsed_without_arrow() -> None:
    code = (
        "import sys; from statelib.serializers.type_text import parse_type; "
        f"[parse_type(text) for text in {sorted(EXAMPLES)!r}]; "
        "print([name for name in ('numpy', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_snapshot_belongs_to_two_types() -> None:
    snapshots = Counter(name for s in TYPES for name in (*s.snapshot.plain, *s.snapshot.readers))
    assert [name for name, count in snapshots.items() if count > 1] == []
