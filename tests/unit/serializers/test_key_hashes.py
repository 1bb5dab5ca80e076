"""Hash codes of keys: on columns, one by one, and as the key groups that Flink put them in."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from statelib.errors import StatelibError
from statelib.model.key_groups import assign_key_groups
from statelib.model.key_hash import FieldsHash
from statelib.serializers.entries.key_hashes import hash_codes
from statelib.serializers.plain_hashes import plain_hashes, plain_key_group
from statelib.serializers.registry import codec_of
from statelib.serializers.type_text import parse_type

FLINK = Path(__file__).parents[2] / "golden" / "flink" / "1.20.5"
POJO = "pojo<probe.Tv$PKey; id: int, name: string>"
PKEY = FieldsHash(("id", "name"), start=0)

SAMPLES = {
    "boolean": [True, False],
    "byte": [-128, 0, 127],
    "short": [-(2**15), -1, 2**15 - 1],
    "char": [0, 65, 0xD83D],
    "int": [-(2**31), -1, 0, 42],
    "long": [-(2**63), -1, 0, 42, 2**40 + 1],
    "float": [0.0, -0.0, 1.5, float("nan"), float("-inf")],
    "double": [0.0, -0.0, 1.5, float("nan"), 1e-310],
    "string": ["", "hello", "é日😀", "x" * 300],
    "date": [-1_000_000, -1, 0, 11_016, 19_782, 2_900_000],
    "time": [0, 1, 86_399_999_999_999],
    "datetime": [-1, 0, 1_700_000_000_123_456_789, -(2**62)],
    "instant": [-1, 0, 1_700_000_000_123_456_789, -(2**62)],
    "javadate": [-1, 0, 1_700_000_000_123, -(2**62)],
    "sqldate": [-1, 0, 1_700_000_000_123],
    "sqltime": [-1, 0, 86_399_999],
    "sqltimestamp": [-1, 0, 1_700_000_000_123_456_789, -(2**62)],
    "bigint": ["0", "-1", "1", str(2**70), str(-(2**64)), str(2**63)],
    "bigdecimal": ["0", "1.0", "1.00", "-12.345", "1E+3", str(2**70)],
    "tuple<string, long>": [{"f0": "a", "f1": 1}, {"f0": "", "f1": -7}],
    "row<a: int, b: string, c: list<long>>": [
        {"a": 1, "b": None, "c": [1, 2]}, {"a": None, "b": "x", "c": None}, {"a": -5, "b": "", "c": []},
    ],
    "row<m: map<string, long>>": [{"m": [("k", 1), ("l", None)]}, {"m": []}, {"m": None}],
    "either<int, string>": [{"left": 3, "right": None}, {"left": None, "right": "r"}],
    "rowdata<k: BIGINT, v: VARCHAR(30)>": [{"k": 42, "v": "longer than seven"}, {"k": -1, "v": ""}],
}  # fmt: skip


def column(text: str) -> pa.Array:
    wanted = codec_of(parse_type(text)).arrow_type
    if text in ("date", "time", "datetime", "instant", "javadate", "sqldate", "sqltime", "sqltimestamp"):
        return pa.array(SAMPLES[text], pa.int32() if text == "date" else pa.int64()).cast(wanted)
    return pa.array(SAMPLES[text], wanted)


@pytest.mark.parametrize("text", SAMPLES)
def test_hash_codes_of_single_values_equal_those_of_columns(text: str) -> None:
    type_, values = parse_type(text), column(text)
    assert plain_hashes(type_, values) == hash_codes(type_, values).tolist()
    assert len(set(plain_hashes(type_, values))) > 1


def test_hash_codes_equal_known_values_of_flink() -> None:
    assert plain_hashes(parse_type("string"), pa.array(["hello"])) == [99162322]
    assert plain_hashes(parse_type("rowdata<k: BIGINT>"), pa.array([{"k": 42}], pa.struct({"k": pa.int64()}))) == [
        907821237
    ]


@pytest.mark.parametrize("max_parallelism", [1, 3, 128, 32768])
def test_key_groups_of_single_values_equal_those_of_columns(max_parallelism: int) -> None:
    hashes = np.array([0, 1, -1, 42, 2**31 - 1, -(2**31), *np.random.default_rng(1).integers(-(2**31), 2**31, 200)])
    expected = assign_key_groups(hashes.astype(np.int32), max_parallelism).tolist()
    assert [plain_key_group(code, max_parallelism) for code in hashes.tolist()] == expected


def test_keys_of_a_users_class_are_hashed_by_the_rule_of_the_job() -> None:
    """The hashes give the key groups that a real job chose with ``31 * id + name.hashCode()``."""
    lines = (FLINK / "keys-pojo-hashmap-canonical" / "truth.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    fields = [entry["key"]["v"] for entry in entries]
    keys = pa.array(
        [{"id": f["id"]["v"], "name": f["name"].get("v")} for f in fields], codec_of(parse_type(POJO)).arrow_type
    )
    hashes = hash_codes(parse_type(POJO), keys, PKEY)
    assert len(entries) > 150
    assert assign_key_groups(hashes, 128).tolist() == [entry["kg"] for entry in entries]
    assert plain_hashes(parse_type(POJO), keys, PKEY) == hashes.tolist()
    other = hash_codes(parse_type(POJO), keys, FieldsHash(("id", "name")))
    assert assign_key_groups(other, 128).tolist() != [entry["kg"] for entry in entries]


def test_a_slice_has_the_hash_codes_of_its_rows() -> None:
    keys = pa.array(
        [{"id": 1, "name": "a"}, {"id": 2, "name": None}, {"id": 3, "name": "c"}], codec_of(parse_type(POJO)).arrow_type
    )
    assert (
        hash_codes(parse_type(POJO), keys.slice(1), PKEY).tolist()
        == hash_codes(parse_type(POJO), keys, PKEY)[1:].tolist()
    )


@pytest.mark.parametrize(
    ("text", "rule", "kind"),
    [
        (POJO, None, "no-key-hash"),
        (POJO, FieldsHash(("id", "other")), "bad-key-hash"),
        (POJO, FieldsHash(()), "bad-key-hash"),
        ("string", PKEY, "bad-key-hash"),
        ("array<int>", None, "no-key-hash"),
    ],
)
def test_a_type_without_a_hash_is_refused_by_name(text: str, rule: FieldsHash | None, kind: str) -> None:
    type_ = parse_type(text)
    with pytest.raises(StatelibError) as caught:
        hash_codes(type_, pa.nulls(0, codec_of(type_).arrow_type), rule)
    assert caught.value.kind == kind
