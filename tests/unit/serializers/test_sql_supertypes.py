"""STRUCTURED types with supertypes, as Flink's own classes write them: three of a chain, one attribute or two each."""

from pathlib import Path

import numpy as np
import pytest

from statelib.errors import UnsupportedError
from statelib.model.types import Like, Sql
from statelib.serializers.registry import codec_of
from statelib.serializers.snapshots import decode_serializer_snapshot, encode_serializer_snapshot
from statelib.serializers.sql import logical_types
from statelib.serializers.sql.logical_types import read_logical_type
from statelib.serializers.typed_json import json_reader
from statelib.wire.java_objects import JavaClass, JavaObject
from statelib.wire.reader import Reader

LINES = [line.split("\t") for line in Path(__file__).with_name("sql_supertypes.txt").read_text().splitlines()]
FLINK = {version: (bytes.fromhex(snapshot), bytes.fromhex(values)) for version, snapshot, values in LINES}
"""The snapshot of a RowDataSerializer of a BIGINT and a Dog, which is an Animal, which is a Being, and its rows, by
version."""
DOG = "STRUCTURED<name: VARCHAR(10), legs: INT NOT NULL, breed: VARCHAR(20), age: BIGINT>"
NULL = {"type": "null"}


def dog(*values: object) -> dict[str, object]:
    texts = [NULL if value is None else {"type": "string", "v": value} for value in (values[0], values[2])]
    age = NULL if values[3] is None else {"type": "long", "v": values[3]}
    return {"type": "rowdata", "kind": "+I", "v": [texts[0], {"type": "int", "v": values[1]}, texts[1], age]}


@pytest.mark.parametrize("version", FLINK)
def test_attributes_of_supertypes_come_first_beginning_with_the_topmost(version: str) -> None:
    snapshot, values = FLINK[version]
    reader = Reader(snapshot, "snapshot")
    decoded = decode_serializer_snapshot(reader)
    assert reader.remaining == 0
    assert isinstance(decoded, Like)
    assert str(decoded.form) == f"rowdata<f0: BIGINT, f1: {DOG}>"
    assert encode_serializer_snapshot(decoded) == snapshot
    read, rows = json_reader(decoded), Reader(values, "rows")
    read_values = [read(rows)["v"] for _ in range(3)]
    assert rows.remaining == 0
    assert read_values[0] == [{"type": "long", "v": 42}, dog("Rex", 4, "a long-haired Collie", 7)]
    assert read_values[1] == [NULL, dog(None, 0, None, None)]
    assert read_values[2] == [{"type": "long", "v": 1}, NULL]


@pytest.mark.parametrize("version", FLINK)
def test_columns_have_the_attributes_of_all_supertypes(version: str) -> None:
    snapshot, values = FLINK[version]
    decoded = decode_serializer_snapshot(Reader(snapshot, "snapshot"))
    end = 4 + int.from_bytes(values[:4], "big")
    column, _ = codec_of(decoded).decode(np.frombuffer(values, np.uint8), np.array([0]), np.array([end]))
    (row,) = column.to_pylist()
    assert row == {"f0": 42, "f1": {"name": "Rex", "legs": 4, "breed": "a long-haired Collie", "age": 7}}


def structured(supertype: object, *attributes: JavaObject) -> JavaObject:
    listed = JavaObject(JavaClass("java.util.ArrayList", 1, 3, ()), written={"java.util.ArrayList": list(attributes)})
    values = {"isNullable": True, "attributes": listed, "superType": supertype}
    return JavaObject(JavaClass("org.apache.flink.table.types.logical.StructuredType", 1, 2, ()), values)


def attribute(name: str) -> JavaObject:
    of_int = JavaObject(JavaClass("org.apache.flink.table.types.logical.IntType", 1, 2, ()), {"isNullable": True})
    return JavaObject(JavaClass("StructuredAttribute", 1, 2, ()), {"name": name, "type": of_int})


def read(decoded: JavaObject, monkeypatch: pytest.MonkeyPatch) -> Sql:
    monkeypatch.setattr(logical_types, "read_object", lambda _: decoded)
    return Sql(read_logical_type(Reader(b"", "header")))


def test_a_type_may_add_nothing_to_its_supertype(monkeypatch: pytest.MonkeyPatch) -> None:
    result = read(structured(structured(None, attribute("a"))), monkeypatch)
    assert [part.name for part in result.type.parts] == ["a"]


def test_invalid_supertypes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsupportedError, match="a STRUCTURED type as a supertype, found INTEGER") as caught:
        read(structured(attribute("a").values["type"], attribute("b")), monkeypatch)
    assert caught.value.kind == "logical-type"
    endless = structured(None, attribute("a"))
    endless.values["superType"] = endless
    with pytest.raises(UnsupportedError, match="64 deep"):
        read(endless, monkeypatch)
