"""Entries are looked at once more before they are written: their key groups, and that each key is there once."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from statelib.errors import StatelibError
from statelib.model.key_groups import KeyGroupRange, assign_key_groups
from statelib.model.key_hash import FieldsHash
from statelib.model.savepoint import KeyedOperator
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import LONG, STRING, Like, StateType, Tuple
from statelib.savepoints.writing.new_savepoint import NewSavepoint
from statelib.serializers.entries.encoding import encode_entries
from statelib.serializers.entries.keys import encode_keys
from statelib.serializers.entries.rows import NO_ROWS, StateRows
from statelib.serializers.entries.values import encode_values
from statelib.serializers.registry import codec_of
from statelib.serializers.type_text import parse_type
from statelib.snapshots.writers.keyed import chunk_of, write_subtask

VALUE = StateDescriptor("v", StateKind.VALUE, LONG)
MAP = StateDescriptor("m", StateKind.MAP, LONG, STRING)
LONGS = KeyedOperator("op", KeyedStateSchema(LONG, 128, (VALUE, MAP)))
WHOLE = KeyGroupRange(0, 127)


def write(root: Path, operator: KeyedOperator, states: list[StateRows]) -> list[str]:
    """Write the states of an operator and return the names of the files in the directory."""
    place = NewSavepoint(str(root), "x")
    reference = place.claim()
    with place.uploads(reference, 0, inline=0) as uploads:
        write_subtask(uploads, operator, 0, [chunk_of(WHOLE, states)])
        uploads.complete()
    return [path.name for path in (root / "savepoint-x-1").iterdir()]


def shifted(rows: int, wrong: int) -> StateRows:
    """Return entries, of which one is in the key group after its own."""
    keys = pa.array(range(rows), pa.int64())
    groups = assign_key_groups(np.arange(rows, dtype=np.int32), 128)
    groups[wrong] = (groups[wrong] + 1) % 128
    return StateRows(encode_keys(LONGS.schema, VALUE, keys, groups), encode_values(VALUE, keys))


def test_correct_entries_are_written(tmp_path: Path) -> None:
    rows = encode_entries(LONGS.schema, VALUE, pa.table({"key": pa.array([1, 2]), "value": pa.array([3, 4])}))
    assert len(write(tmp_path, LONGS, [rows, NO_ROWS])) == 1


@pytest.mark.parametrize("wrong", [0, 99, 199])
def test_an_entry_in_the_wrong_key_group_is_refused_and_leaves_no_file(tmp_path: Path, wrong: int) -> None:
    with pytest.raises(StatelibError, match="key group") as caught:
        write(tmp_path, LONGS, [shifted(200, wrong), NO_ROWS])
    assert caught.value.kind == "wrong-key-group"
    assert list((tmp_path / "savepoint-x-1").iterdir()) == []


def test_two_entries_of_one_key_are_refused(tmp_path: Path) -> None:
    twice = encode_entries(LONGS.schema, VALUE, pa.table({"key": pa.array([7, 1, 7]), "value": pa.array([1, 2, 3])}))
    with pytest.raises(StatelibError, match="'v': key 7 has two entries") as caught:
        write(tmp_path, LONGS, [twice, NO_ROWS])
    assert caught.value.kind == "duplicate-key"


def test_a_map_state_may_have_many_user_keys_per_key_but_each_only_once(tmp_path: Path) -> None:
    columns = {"key": pa.array([7, 7]), "user_key": pa.array(["a", "b"]), "value": pa.array([1, 2])}
    assert write(tmp_path, LONGS, [NO_ROWS, encode_entries(LONGS.schema, MAP, pa.table(columns))])
    columns["user_key"] = pa.array(["a", "a"])
    with pytest.raises(StatelibError, match="for each user key"):
        write(tmp_path, LONGS, [NO_ROWS, encode_entries(LONGS.schema, MAP, pa.table(columns))])


def test_key_groups_of_a_users_class_are_checked_with_the_rule_of_its_hash(tmp_path: Path) -> None:
    type_ = parse_type("pojo<a.K; id: int, name: string>")
    schema = KeyedStateSchema(type_, 128, (VALUE,))
    keys = pa.array([{"id": n, "name": f"n{n}"} for n in range(50)], pa.struct({"id": pa.int32(), "name": pa.string()}))
    table = pa.table({"key": keys, "value": pa.array(range(50), pa.int64())})
    rule = FieldsHash(("id", "name"), start=0)
    rows = encode_entries(schema, VALUE, table, rule)
    assert write(tmp_path, KeyedOperator("op", schema, 1, rule), [rows])
    with pytest.raises(StatelibError) as caught:
        write(tmp_path, KeyedOperator("op", schema, 1, FieldsHash(("id", "name"), start=1)), [rows])
    assert caught.value.kind == "wrong-key-group"
    with pytest.raises(StatelibError) as caught:
        encode_entries(schema, VALUE, table)
    assert caught.value.kind == "no-key-hash"


def test_a_column_of_key_groups_is_accepted_only_for_keys_of_a_users_class() -> None:
    type_ = parse_type("pojo<a.K; id: int>")
    keys = pa.array([{"id": 1}], pa.struct({"id": pa.int32()}))
    table = pa.table({"key": keys, "value": pa.array([1]), "key_group": pa.array([77], pa.int32())})
    schema = KeyedStateSchema(type_, 128, (VALUE,))
    assert encode_entries(schema, VALUE, table).keys.to_list()[0][0] == 77
    with pytest.raises(StatelibError) as caught:
        encode_entries(KeyedStateSchema(type_, 77, (VALUE,)), VALUE, table)
    assert caught.value.kind == "bad-key-group"
    longs = table.set_column(0, "key", pa.array([42], pa.int64()))
    assert encode_entries(LONGS.schema, VALUE, longs).keys.to_list()[0][0] == 29


@pytest.mark.parametrize(
    ("type_", "key"),
    [
        (Like(Tuple((STRING, LONG)), "a.CaseClassSerializer", b"the snapshot of Flink"), {"f0": "a", "f1": 1}),
        (parse_type("tuple<string, pojo<a.K; id: int>>"), {"f0": "a", "f1": {"id": 1}}),
    ],
)
def test_stored_key_groups_of_keys_with_a_hash_of_their_own_are_used_and_not_checked(
    tmp_path: Path, type_: StateType, key: dict
) -> None:
    schema = KeyedStateSchema(type_, 128, (VALUE,))
    keys = pa.array([key], codec_of(schema.key_type).arrow_type)
    table = pa.table({"key": keys, "value": pa.array([1]), "key_group": pa.array([77], pa.int32())})
    rows = encode_entries(schema, VALUE, table)
    assert rows.keys.to_list()[0][0] == 77
    assert write(tmp_path, KeyedOperator("op", schema), [rows])
    with pytest.raises(StatelibError, match="a hashCode of a class of its own") as caught:
        encode_entries(schema, VALUE, table.drop_columns("key_group"))
    assert caught.value.kind == "no-key-hash"
