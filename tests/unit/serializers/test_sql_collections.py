"""Arrays, maps, multisets and rows within SQL's rows: written as Flink writes them, and read back."""

import random
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from statelib.errors import UnsupportedError
from statelib.model.sql import LogicalType
from statelib.model.types import Sql
from statelib.serializers.registry import codec_of
from statelib.serializers.sql.snapshots import read_sql_snapshot, write_sql_snapshot
from statelib.serializers.sql.values.rows import BinaryRowCodec
from statelib.serializers.type_text import parse_type
from statelib.serializers.typed_json import json_reader
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

SNAPSHOTS = dict(line.split("\t") for line in Path(__file__).with_name("sql_collections.txt").read_text().splitlines())
"""The snapshots of the serializers of these types as Flink 1.20.5 and 2.3.0 write them, with the same bytes."""
NESTED = {"ARRAY<ARRAY<INT>>", "MAP<INT NOT NULL, ARRAY<VARCHAR(5)>>", "ARRAY<ROW<a: INT, b: VARCHAR(3)>>"}
ROW = (
    "rowdata<a: ARRAY<VARCHAR(9)>, b: ARRAY<BOOLEAN>, c: ARRAY<SMALLINT>, m: MAP<VARCHAR(9), DECIMAL(30, 2)>, "
    "s: MULTISET<INT>, r: ROW<x: BIGINT, y: ARRAY<TIMESTAMP(9)>>, n: ARRAY<ARRAY<INT>>, "
    "l: ARRAY<ROW<x: VARBINARY(20)>>>"
)


def logical(text: str) -> LogicalType:
    type_ = parse_type(f"rowdata<a: {text}>")
    assert isinstance(type_, Sql)
    return type_.type.parts[0].type


@pytest.mark.parametrize("text", SNAPSHOTS)
def test_serializer_snapshots_have_the_bytes_of_flink(text: str) -> None:
    writer, stored = Writer(), bytes.fromhex(SNAPSHOTS[text])
    reader = Reader(stored, "snapshot")
    name, version = reader.utf(), reader.i32()
    decoded = read_sql_snapshot(reader, name, version, lambda _: [])
    assert reader.remaining == 0
    assert [part.type for part in decoded.type.parts][: len(logical(text).parts)] == [
        p.type for p in logical(text).parts
    ]
    if text in NESTED:
        with pytest.raises(UnsupportedError, match="is read, and not written"):
            write_sql_snapshot(writer, logical(text), lambda *_: None)
    else:
        write_sql_snapshot(writer, logical(text), lambda *_: None)
        assert writer.getvalue() == stored


def some(random_: random.Random, make: object, nulls: float = 0.2) -> object:
    return None if random_.random() < nulls else make()


def row(r: random.Random) -> dict[str, object]:
    def text() -> str:
        return "é" * r.randrange(9)

    def amount() -> Decimal:
        return Decimal(r.randrange(-(10**27), 10**27)).scaleb(-2)

    def several(make: object, nulls: float = 0.2) -> list[object]:
        return [some(r, make, nulls) for _ in range(r.choice((0, 1, 3, 40)))]

    return {
        "a": some(r, lambda: several(text)),
        "b": some(r, lambda: several(lambda: r.random() < 0.5)),
        "c": some(r, lambda: several(lambda: r.randrange(-(2**15), 2**15))),
        "m": some(r, lambda: [(str(i) * i, amount()) for i in range(r.randrange(9))]),
        "s": some(r, lambda: [(i, i + 1) for i in range(r.randrange(5))]),
        "r": some(r, lambda: {"x": some(r, lambda: 7), "y": some(r, lambda: several(lambda: r.randrange(2**60)))}),
        "n": some(r, lambda: several(lambda: several(lambda: r.randrange(2**31)))),
        "l": some(r, lambda: several(lambda: {"x": some(r, lambda: bytes(r.randrange(20)))})),
    }  # fmt: skip


def test_every_value_is_read_back() -> None:
    type_, made = parse_type(ROW), random.Random(7)
    assert isinstance(type_, Sql)
    codec = codec_of(type_)
    assert isinstance(codec, BinaryRowCodec)
    values = pa.array([row(made) for _ in range(300)], codec.arrow_type)
    for part in (values, values.slice(100, 57), values.slice(0, 0)):
        rows = codec.encode(part)
        data = np.ascontiguousarray(rows.data)
        result, ends = codec.decode(data, rows.offsets[:-1], rows.offsets[1:])
        assert ends.tolist() == rows.offsets[1:].tolist()
        assert result.to_pylist() == part.to_pylist()
        assert all(length % 8 == 4 for length in rows.lengths)


def test_a_small_array_and_a_small_map_have_these_exact_bytes() -> None:
    """The expected bytes are written by hand: count, null bits, slots; for a map the size of the keys, then keys and
    values in this form."""
    type_ = parse_type("rowdata<a: ARRAY<SMALLINT>, m: MAP<INT, VARCHAR(20)>>")
    values = pa.array([{"a": [1, None, 3], "m": [(9, "0123456789")]}], codec_of(type_).arrow_type)
    array = bytes.fromhex("03000000 02000000 0100 0000 0300 0000")
    keys = bytes.fromhex("01000000 00000000 09000000 00000000")
    text = bytes.fromhex("01000000 00000000 0a000000 10000000") + b"0123456789" + bytes(6)
    body = (len(keys)).to_bytes(4, "little") + keys + text
    slots = bytes.fromhex("10000000 18000000") + len(body).to_bytes(4, "little") + (40).to_bytes(4, "little")
    (result,) = codec_of(type_).encode(values).to_list()
    assert result[4:] == bytes(8) + slots + array + body + bytes(-len(body) % 8)
    assert json_reader(type_)(Reader(result, "row"))["v"][0]["v"][1] == {"type": "null"}
