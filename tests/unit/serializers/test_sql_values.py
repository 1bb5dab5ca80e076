"""SQL's values outside of rows, and rows with STRUCTURED and RAW fields: as columns and as exact values."""

from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from statelib.errors import CorruptStateError, InvalidRequestError, UnsupportedError
from statelib.model.sql import TEXTS, LogicalType
from statelib.serializers.plain_hashes import plain_hashes
from statelib.serializers.registry import codec_of, key_bytes
from statelib.serializers.snapshots import encode_serializer_snapshot
from statelib.serializers.sql.values.logical_registry import LOGICAL_TYPES
from statelib.serializers.type_text import parse_type
from statelib.serializers.typed_json import json_reader
from statelib.wire.reader import Reader

LONG = {"type": "long", "v": 5}
DECIMAL = {"type": "bigdecimal", "unscaled": "-258", "scale": 2}
NOON = {"type": "localdatetime", "date": "1970-01-02", "nanoOfDay": 43_200_000_000_000}
VIEW = "org.apache.flink.table.api.dataview.MapView"
CASES: list[tuple[str, Any, str, dict[str, Any]]] = [
    ("sql<VARCHAR(9)>", "é", "00000002c3a9", {"type": "string", "v": "é"}),
    ("sql<VARBINARY(9)>", b"\x01\x02", "000000020102", {"type": "bytes", "hex": "0102"}),
    ("sql<DECIMAL(9, 2)>", Decimal("-2.58"), "fffffffffffffefe", DECIMAL),
    ("sql<DECIMAL(30, 2)>", Decimal("-2.58"), "00000002fefe", DECIMAL),
    ("sql<TIMESTAMP(3)>", datetime(1970, 1, 2, 12), "0000000007b98a00", NOON),
    ("sql<TIMESTAMP_LTZ(9)>", datetime(1970, 1, 2, 12), "0000000007b98a0000000000", NOON),
    ("sql<ARRAY<BIGINT>>", [5], "000000100100000000000000" + "0500000000000000", {"type": "list", "v": [LONG]}),
    ("rowdata<>", {}, "000000080000000000000000", {"type": "rowdata", "kind": "+I", "v": []}),
    (
        "rowdata<a: ROW<>>",
        {"a": {}},
        "00000018" + "0000000000000000" + "0800000010000000" + "0000000000000000",
        {"type": "rowdata", "kind": "+I", "v": [{"type": "rowdata", "kind": "+I", "v": []}]},
    ),
    (
        f"rowdata<a: STRUCTURED(a.B$C)<min: BIGINT, map: RAW({VIEW})>>",
        {"a": {"min": 5, "map": b"\0"}},
        "00000030000000000000000020000000100000000000000000000000050000000000000001000000180000000000000000000000",
        {"type": "rowdata", "kind": "+I", "v": [
            {"type": "rowdata", "kind": "+I", "v": [LONG, {"type": "raw", "class": VIEW, "hex": "00"}]},
        ]},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value", "raw", "typed"), CASES, ids=[case[0][:30] for case in CASES])
def test_values_are_written_and_read_back_exactly(text: str, value: object, raw: str, typed: dict[str, Any]) -> None:
    kind = parse_type(text)
    assert str(kind) == text
    codec = codec_of(kind)
    column = pa.array([value, value], codec.arrow_type)
    rows = codec.encode(column)
    stored = bytes.fromhex(raw)
    assert rows.to_list() == [stored, stored]
    again, end = codec.decode(rows.data, rows.starts.copy(), rows.offsets[1:].copy())
    assert again.equals(column)
    assert end.tolist() == rows.offsets[1:].tolist()
    assert codec.skip(rows.data, rows.starts.copy(), rows.offsets[1:].copy()).tolist() == end.tolist()
    assert codec.width in (-1, len(stored))
    reader = Reader(stored, "value")
    assert json_reader(kind)(reader) == typed
    assert reader.remaining == 0
    with pytest.raises(CorruptStateError):
        codec.decode(rows.data[:-1].copy(), rows.starts.copy(), np.array([len(stored), 2 * len(stored) - 1]))


@pytest.mark.parametrize("root", TEXTS)
def test_every_logical_type_has_values(root: str) -> None:
    assert root in LOGICAL_TYPES.of(LogicalType(root)).roots


@pytest.mark.parametrize("root", ["BINARY", "VARBINARY"])
def test_the_snapshot_of_bytes_outside_of_rows_is_refused_by_name(root: str) -> None:
    with pytest.raises(UnsupportedError, match=f"logical type {root} is read, and not written") as caught:
        encode_serializer_snapshot(parse_type(f"sql<{root}(9)>"))
    assert caught.value.kind == "sql-type-not-written"


def test_invalid_text_and_nulls_are_refused() -> None:
    codec = codec_of(parse_type("sql<VARCHAR(9)>"))
    raw = np.frombuffer(bytes.fromhex("00000001ff"), np.uint8)
    with pytest.raises(CorruptStateError, match="expected UTF-8"):
        codec.decode(raw, np.array([0]), np.array([5]))
    for text in ("sql<DECIMAL(9, 2)>", "sql<TIMESTAMP(3)>", "sql<VARCHAR(9)>"):
        codec = codec_of(parse_type(text))
        with pytest.raises(InvalidRequestError, match="no null"):
            codec.encode(pa.nulls(1, codec.arrow_type))


def test_keys_have_the_bytes_that_flinks_generated_code_reserves_for_nulls() -> None:
    kind = parse_type("rowdata<k: BIGINT, t: TIMESTAMP(9), d: DECIMAL(38, 2), s: TIMESTAMP(3), v: VARCHAR(20)>")
    key = {"k": 5, "t": None, "d": None, "s": None, "v": "0123456789"}
    keys = pa.array([key, {**key, "t": 7_000_001, "d": Decimal("1.00")}], codec_of(kind).arrow_type)
    text = b"0123456789" + bytes(6)
    slots = [5, 48 << 32, 56 << 32, 0, 72 << 32 | 10]
    row = b"\0\x0e" + bytes(6) + b"".join(slot.to_bytes(8, "little") for slot in slots) + bytes(8 + 16) + text
    rows = key_bytes(kind, keys)
    assert rows.to_list()[0] == len(row).to_bytes(4, "big") + row
    assert rows.to_list()[1] == codec_of(kind).encode(keys).to_list()[1]
    assert plain_hashes(kind, keys) == codec_of(kind).java_hash(keys).tolist()
    again, _ = codec_of(kind).decode(rows.data, rows.starts, rows.offsets[1:])
    assert again.equals(keys)
    assert len(codec_of(kind).encode(keys).to_list()[0]) == len(row) + 4 - 24
