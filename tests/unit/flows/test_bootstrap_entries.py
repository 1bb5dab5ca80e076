"""From columns to the entries of a described state, and from sorted batches to chunks of whole key groups."""

import numpy as np
import pyarrow as pa
import pytest

from statelib.backends.keys.order import byte_order
from statelib.definition.bootstrap import Bootstrap
from statelib.errors import InvalidRequestError
from statelib.flows.savepoint.bootstrap import chunks, entries_of, made_of
from statelib.model.key_groups import KeyGroupRange
from statelib.serializers.entries.keys import decode_keys
from statelib.serializers.entries.rows import StateRows, join_rows, key_groups_of
from statelib.serializers.entries.values import decode_values
from statelib.serializers.type_text import parse_type

ROWS = pa.table(
    {
        "n": pa.array([1, 2], pa.int32()),
        "who": pa.array([{"name": "a", "at.x": 1}, {"name": None, "at.x": 2}]),
        "a.b": pa.array(["x", "y"]),
        "tags": pa.array([["p", "q"], ["r"]]),
        "code": pa.array([5, 6], pa.int64()),
    }
)

ROWS_OF_ALL = {1: {"most": None}, 2: {"most": 7}, 3: {"most": 0}, 4: {"most": None}, 5: {"most": None}}


def described(key: dict[str, object], state: dict[str, object]) -> Bootstrap:
    operator = {"key": key, "rows": {"parquet": "x"}, "states": {"s": state}}
    return Bootstrap.model_validate({"name": "x", "operators": {"op": operator}})


@pytest.mark.parametrize(
    ("type_", "of", "expected"),
    [
        ("long", "n", [1, 2]),
        ("string", "who.name", ["a", None]),
        ("string", "a.b", ["x", "y"]),
        ("tuple<long, string>", ["n", "a.b"], [{"f0": 1, "f1": "x"}, {"f0": 2, "f1": "y"}]),
        ("row<b: string, a: int>", {"a": "n", "b": "a.b"}, [{"b": "x", "a": 1}, {"b": "y", "a": 2}]),
        ("rowdata<k: BIGINT, v: VARCHAR(5)>", ["n", "a.b"], [{"k": 1, "v": "x"}, {"k": 2, "v": "y"}]),
        (
            "row<r: tuple<int, string>, n: string>",
            {"r": ["n", "a.b"], "n": "who.name"},
            [{"r": {"f0": 1, "f1": "x"}, "n": "a"}, {"r": {"f0": 2, "f1": "y"}, "n": None}],
        ),
    ],
)
def test_values_are_built_from_columns(type_: str, of: object, expected: list[object]) -> None:
    bootstrap = described({"type": "long", "of": "n"}, {"kind": "value", "type": type_, "of": of})
    of = bootstrap.operators["op"].states["s"].of
    assert made_of(parse_type(type_), of, ROWS, "here").to_pylist() == expected


@pytest.mark.parametrize(
    ("type_", "of", "kind"),
    [
        ("long", "m", "missing-column"),
        ("long", "who.other", "missing-column"),
        ("long", "n.x", "missing-column"),
        ("long", "a.b", "bad-value-type"),
        ("long", ["n"], "bad-columns"),
        ("tuple<long, string>", ["n"], "bad-columns"),
        ("tuple<long, string>", ["n", "a.b", "n"], "bad-columns"),
        ("row<a: int>", {"b": "n"}, "bad-columns"),
        ("row<name: string, age: int>", "who", "bad-value-type"),
    ],
)
def test_columns_of_the_wrong_type_are_refused_by_name(type_: str, of: object, kind: str) -> None:
    bootstrap = described({"type": "long", "of": "n"}, {"kind": "value", "type": type_, "of": of})
    with pytest.raises(InvalidRequestError, match="operator 'op', state 's', value") as caught:
        entries_of(bootstrap, "op", "s", ROWS)
    assert caught.value.kind == kind


def test_the_error_of_a_missing_column_names_the_fields_of_columns() -> None:
    bootstrap = described({"type": "long", "of": "n"}, {"kind": "value", "type": "long", "of": "who.other"})
    with pytest.raises(InvalidRequestError, match=r"no column 'who\.other', there are .*who\.name"):
        entries_of(bootstrap, "op", "s", ROWS)


def test_the_elements_of_a_list_state_are_a_column_of_lists() -> None:
    bootstrap = described({"type": "long", "of": "n"}, {"kind": "list", "type": "string", "of": "tags"})
    rows = entries_of(bootstrap, "op", "s", ROWS)
    assert decode_values(bootstrap.operator("op").schema.states[0], rows.values).to_pylist() == [["p", "q"], ["r"]]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"kind": "list", "type": "string", "of": "tags"}, {1: ["p"], 5: ["q", "r"]}),
        ({"kind": "value", "type": "long", "of": "most"}, {2: 7, 3: 0}),
        ({"kind": "reducing", "type": "long", "of": "most"}, {2: 7, 3: 0}),
        ({"kind": "value", "type": "list<string>", "of": "tags"}, {1: ["p"], 3: [], 5: ["q", "r"]}),
        ({"kind": "value", "type": "nullable<long>", "of": "most"}, {1: None, 2: 7, 3: 0, 4: None, 5: None}),
        ({"kind": "value", "type": "row<most: long>", "of": ["most"]}, ROWS_OF_ALL),
    ],
)
def test_a_wide_row_without_a_value_has_no_entry_in_that_state(state: dict[str, object], expected: object) -> None:
    rows = pa.table(
        {
            "n": pa.array([1, 2, 3, 4, 5], pa.int64()),
            "tags": pa.array([["p"], None, [], None, ["q", "r"]]),
            "most": pa.array([None, 7, 0, None, None], pa.int64()),
        }
    )
    bootstrap = described({"type": "long", "of": "n"}, state)
    schema = bootstrap.operator("op").schema
    entries = entries_of(bootstrap, "op", "s", rows)
    keys = decode_keys(schema, schema.states[0], entries.keys).keys.to_pylist()
    results = dict(zip(keys, decode_values(schema.states[0], entries.values).to_pylist(), strict=True))
    assert results == (
        expected if expected != "all" else {n + 1: {"most": m} for n, m in enumerate(rows["most"].to_pylist())}
    )


def test_a_map_state_takes_its_key_groups_from_a_hash_column() -> None:
    key = {"type": "pojo<a.K; id: int>", "of": ["n"]}
    state = {"kind": "map", "type": "long", "of": "n", "user_key": {"type": "string", "of": "a.b"}}
    by_code = described({**key, "hash": {"column": "code"}}, state)
    schema = by_code.operator("op").schema
    decoded = decode_keys(schema, schema.states[0], entries_of(by_code, "op", "s", ROWS).keys)
    longs = described({"type": "int", "of": "code"}, state)
    same = decode_keys(longs.operator("op").schema, schema.states[0], entries_of(longs, "op", "s", ROWS).keys)
    assert decoded.key_groups.tolist() == same.key_groups.tolist()
    assert decoded.user_keys.to_pylist() == ["x", "y"]
    by_group = described({**key, "hash": {"key_group": "code"}}, state)
    result = decode_keys(schema, schema.states[0], entries_of(by_group, "op", "s", ROWS).keys)
    assert result.key_groups.tolist() == [5, 6]


def test_null_keys_are_refused() -> None:
    bootstrap = described({"type": "string", "of": "who.name"}, {"kind": "value", "type": "long", "of": "n"})
    with pytest.raises(InvalidRequestError) as caught:
        entries_of(bootstrap, "op", "s", ROWS)
    assert caught.value.kind == "null-key"


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_chunks_contain_whole_key_groups_in_order(size: int) -> None:
    bootstrap = described({"type": "long", "of": "k"}, {"kind": "value", "type": "long", "of": "k"})
    operator = bootstrap.operator("op")
    rows = entries_of(bootstrap, "op", "s", pa.table({"k": pa.array(range(300))}))
    rows = rows.take(byte_order(rows.keys))
    groups = key_groups_of(rows.keys, 1)

    def batches() -> list[tuple[np.ndarray, np.ndarray, StateRows]]:
        cuts = [np.arange(i, min(i + size, 300)) for i in range(0, 300, size)]
        nothing = (groups[:0], np.zeros(0, np.int32), rows.take(np.arange(0)))
        return [nothing, *((groups[cut], np.zeros(len(cut), np.int32), rows.take(cut)) for cut in cuts), nothing]

    results = list(chunks(operator, 0, batches()))
    following = 0
    for chunk in results:
        assert chunk.key_groups.start == following
        following = chunk.key_groups.end + 1
        held = key_groups_of(chunk.states[0].keys, 1)
        assert KeyGroupRange(int(held.min()), int(held.max())).intersection(chunk.key_groups) == KeyGroupRange(
            int(held.min()), int(held.max())
        )
    whole = join_rows([chunk.states[0] for chunk in results])
    assert whole.keys.to_list() == rows.keys.to_list()
    assert whole.values.to_list() == rows.values.to_list()
