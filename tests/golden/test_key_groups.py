"""Every key of the fixtures that Flink wrote lies in the key group that Flink put it in."""

import datetime
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from statelib.model.key_groups import assign_key_groups, subtask_ranges
from statelib.model.state import KeyedStateSchema
from statelib.model.types import StateType
from statelib.serializers.entries.keys import key_groups
from statelib.serializers.registry import codec_of
from statelib.serializers.type_text import parse_type
from statelib.testing.reference import codecs as reference

FLINK = Path(__file__).parent / "flink" / "1.20.5"

FIXTURES = [
    ("keys-string-hashmap-canonical", "string", "string", 38),
    ("keys-long-hashmap-canonical", "long", "long", 38),
    ("keys-int-hashmap-canonical", "int", "int", 38),
    ("keys-tuple2-hashmap-canonical", "tuple2", "tuple<string, long>", 38),
    ("keys-row-hashmap-canonical", "row", "row<id: int, name: string>", 38),
    ("keys-misc-hashmap-canonical", "short", "short", 34),
    ("keys-misc-hashmap-canonical", "double", "double", 34),
    ("keys-misc-hashmap-canonical", "localdate", "date", 34),
    ("maxpar32768-hashmap-canonical", "long", "long", 40),
]


@pytest.mark.parametrize(("fixture", "word", "text", "count"), FIXTURES)
def test_every_key_is_in_the_key_group_that_flink_chose(fixture: str, word: str, text: str, count: int) -> None:
    about = json.loads((FLINK / fixture / "about.json").read_text())
    lines = [json.loads(line) for line in (FLINK / fixture / "truth.jsonl").read_text().splitlines()]
    keys_read = {json.dumps(e["key"]): (e["key"], e["kg"]) for e in lines if "kg" in e and e["key"]["type"] == word}
    assert len(keys_read) == count
    type_ = parse_type(text)
    keys = reference.arrow(type_, [plain(key) for key, _ in keys_read.values()])
    schema = KeyedStateSchema(type_, about["maxParallelism"], ())
    assert key_groups(schema, keys).tolist() == [group for _, group in keys_read.values()]


def plain(typed: dict) -> reference.Plain:
    """Return a typed value of truth.jsonl as the plain value of the reference codecs."""
    if typed["type"] == "double":
        return np.frombuffer(bytes.fromhex(typed["bits"]), ">f8").item()
    if typed["type"] == "localdate":
        return datetime.date.fromisoformat(typed["v"]).toordinal() - 719_163
    if typed["type"] in ("tuple2", "row"):
        return [plain(field) for field in typed["v"]]
    return typed.get("v")


def test_key_groups_follow_from_known_murmur_hashes() -> None:
    """The murmur hashes are known. With 2**31 - 1 key groups the whole hash is visible, with 32768 its low bits."""
    murmurs = {0: 593689054, 1: 68075478, -1: 1982413648, 42: 1134849565, 2**31 - 1: 1653689534, -(2**31): 1718298732}
    hashes = np.array(list(murmurs), np.int32)
    for max_parallelism in (2**31 - 1, 32768, 128):
        expected = [murmur % max_parallelism for murmur in murmurs.values()]
        assert assign_key_groups(hashes, max_parallelism).tolist() == expected


@pytest.mark.parametrize(
    ("text", "value", "hash_code", "group"), [("long", 42, 42, 29), ("string", "hello", 99162322, 35)]
)
def test_known_keys_have_these_hash_codes_and_key_groups(
    text: str, value: reference.Plain, hash_code: int, group: int
) -> None:
    type_: StateType = parse_type(text)
    keys = pa.array([value], codec_of(type_).arrow_type)
    assert codec_of(type_).java_hash(keys).tolist() == [hash_code]
    assert key_groups(KeyedStateSchema(type_, 128, ()), keys).tolist() == [group]


def test_three_subtasks_have_these_key_group_ranges() -> None:
    assert [str(r) for r in subtask_ranges(3, 128)] == ["0-42", "43-85", "86-127"]
