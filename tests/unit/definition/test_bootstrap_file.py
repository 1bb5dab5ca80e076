"""Bootstrap files: their content, and the mistakes in them by line and field."""

from pathlib import Path

import pytest

from statelib.definition.bootstrap import Bootstrap, load_bootstrap
from statelib.errors import InvalidRequestError, NotFoundError
from statelib.model.key_hash import FieldsHash
from statelib.model.operator_state import OperatorStateDescriptor, OperatorStateMode
from statelib.model.state import StateDescriptor, StateKind
from statelib.model.types import LONG, STRING
from statelib.serializers.type_text import parse_type

GOOD = """\
name: flights
max_parallelism: 300
parallelism: 3
operators:
  activity:
    key: {type: string, of: tail}
    rows: {parquet: /data/activity}
    states:
      seen: {kind: value, type: "row<n: long, dest: string>", of: {n: flights, dest: last}}
      per_dest: {kind: map, user_key: {type: string, of: dest}, type: long, of: n, rows: {snapshot: a/1, state: x}}
  people:
    key: {type: "pojo<a.Key; id: int, name: string>", of: [id, who.name], hash: {of: [id, name], start: 0}}
    states:
      weight: {kind: reducing, type: long, of: x, rows: {parquet: /data/people}}
  rules:
    rows: {parquet: /data/rules}
    operator_states:
      limits: {mode: broadcast, user_key: {type: string, of: name}, type: long, of: most}
      splits: {mode: list, type: "tuple<long, string>", of: [at, file]}
"""


def loaded(tmp_path: Path, text: str) -> Bootstrap:
    (path := tmp_path / "b.yaml").write_text(text)
    return load_bootstrap(path)


def test_a_valid_file_is_read(tmp_path: Path) -> None:
    bootstrap = loaded(tmp_path, GOOD)
    activity, people = bootstrap.operator("activity"), bootstrap.operator("people")
    assert (activity.uid, activity.parallelism, activity.schema.max_parallelism) == ("activity", 3, 300)
    assert activity.schema.key_type == STRING
    assert activity.schema.states == (
        StateDescriptor("seen", StateKind.VALUE, parse_type("row<n: long, dest: string>")),
        StateDescriptor("per_dest", StateKind.MAP, LONG, STRING),
    )
    assert activity.key_hash is None
    assert people.key_hash == FieldsHash(("id", "name"), 31, 0)
    assert bootstrap.compression == "snappy"
    assert list(bootstrap.keyed) == ["activity", "people"]
    assert [bootstrap.operator_state("rules", name) for name in ("limits", "splits")] == [
        OperatorStateDescriptor("limits", OperatorStateMode.BROADCAST, LONG, STRING),
        OperatorStateDescriptor("splits", OperatorStateMode.SPLIT_DISTRIBUTE, parse_type("tuple<long, string>")),
    ]


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("\nparallelism: 3", "\nparallelism: 301", 3, "parallelism: expected at most max_parallelism, 300"),
        ("max_parallelism: 300", "max_parallelism: 32769", 2, "max_parallelism: expected"),
        ("type: string, of: tail", "type: text, of: tail", 6, "operators.activity.key.type: "),
        ("type: string, of: tail", "type: bytes, of: tail", 6, "operators.activity.key.type: type bytes as a key"),
        ("    rows: {parquet: /data/activity}\n", "", 8, "operators.activity.states.seen.rows: is missing"),
        ("kind: value,", "kind: single,", 9, "operators.activity.states.seen.kind: expected"),
        ("kind: map, user_key: {type: string, of: dest},", "kind: map,", 10, "per_dest: state 'per_dest' of kind map"),
        ("snapshot: a/1, state: x", "snapshot: a/1", 10, "per_dest.rows.state: is missing"),
        ("snapshot: a/1, state: x", "state: x", 10, "per_dest.rows: expected one of parquet and snapshot"),
        (", hash: {of: [id, name], start: 0}", "", 12, "people.key: pojo<a.Key"),
        ("of: [id, name], start", "of: [id, other], start", 12, "operators.people.key.hash.of: hash of a.Key"),
        ("of: [id, name], start", "column: h, of: [id], start", 12, "operators.people.key.hash: "),
        ("of: tail}", "of: tail, hash: {of: [x]}}", 6, "operators.activity.key.hash: string: Flink defines"),
        ("of: x,", "oft: x,", 14, "unknown key, did you mean 'of'?"),
        ("kind: reducing, type: long", "kind: reducing, type: nothing", 14, "people.states.weight.type: "),
        ("mode: broadcast", "mode: shared", 18, "operators.rules.operator_states.limits.mode: expected"),
        ("mode: broadcast", "mode: union", 18, "rules.operator_states.limits: operator state 'limits' of mode UNION"),
        (", of: name}, type: long", ", of: name}, type: lung", 18, "operators.rules.operator_states.limits.type: "),
        ("    rows: {parquet: /data/rules}\n", "", 17, "operators.rules.operator_states.limits.rows: is missing"),
        (
            "  rules:\n",
            "  rules:\n    key: {type: long, of: a}\n",
            16,
            "operators.rules.key: belongs to keyed states, and there are no",
        ),
        ("    key: {type: string, of: tail}\n", "", 5, "operators.activity.key: is missing"),
        (
            "  people:\n",
            "  people:\n    operator_states: {weight: {mode: list, type: long, of: x}}\n",
            12,
            "operators.people.operator_states.weight: 'states' has a state of this name too",
        ),
    ],
)
def test_each_mistake_is_reported_with_line_and_field(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    assert old in GOOD
    with pytest.raises(InvalidRequestError) as caught:
        loaded(tmp_path, GOOD.replace(old, new))
    assert caught.value.kind == "bad-bootstrap"
    lines = caught.value.message.splitlines()
    if message.startswith("people.key: "):
        message = "operators.people.key.hash: " + message.removeprefix("people.key: ")
    assert any(text.startswith(f"{tmp_path}/b.yaml:{line}: ") and message in text for text in lines), lines


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("\nparallelism: 3\n", "\nparallelism: 999\n").replace("of: [id, name], start", "of: [], start")
    with pytest.raises(InvalidRequestError) as caught:
        loaded(tmp_path, text)
    assert len(caught.value.message.splitlines()) == 2


@pytest.mark.parametrize(
    "text", ["", "[]", "name: x\noperators: {}\n", "name: [", "operators: {a: {key: 1, states: {}}}"]
)
def test_a_file_that_is_no_bootstrap_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        loaded(tmp_path, text)
    assert caught.value.kind == "bad-bootstrap"
    assert "b.yaml:" in caught.value.message


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        load_bootstrap(tmp_path / "none.yaml")
