"""``operator_states``, ``ttl`` and ``update`` in a pipeline file."""

from pathlib import Path

import pytest

from statelib.definition.parts.durations import milliseconds
from statelib.definition.pipeline import Pipeline, load_pipeline
from statelib.errors import InvalidRequestError
from statelib.model.operator_state import OperatorStateDescriptor, OperatorStateMode
from statelib.model.ttl import TtlConfig, TtlUpdate
from statelib.model.types import DOUBLE, LONG, STRING, Field, Row, Ttl

GOOD = """\
name: p
source: {path: "{start}-{end}", columns: {k: string, n: long}}
key: [k]
states:
  s: {kind: value, fields: {n: long}, function: "m:f", ttl: 30d}
  c: {kind: reducing, value: {agg: count}, ttl: 90s, update: on_read_and_write}
  l: {kind: list, value: {agg: collect, of: n}, ttl: 12h}
  m: {kind: map, user_key: k, value: {agg: count}, ttl: 1ms}
  e: {kind: value, value: {agg: count}}
operator_states:
  rules: {mode: broadcast, key: string, value: double}
  seen_files: {mode: list, element: string}
  offsets: {mode: union, element: "row<at: long>"}
side_data: [model, routes]
backend: heap
"""


def loaded(tmp_path: Path, text: str) -> Pipeline:
    (tmp_path / "p.yaml").write_text(text)
    return load_pipeline(tmp_path / "p.yaml")


def test_a_valid_file_is_read(tmp_path: Path) -> None:
    pipeline = loaded(tmp_path, GOOD)
    assert pipeline.operator_descriptors() == (
        OperatorStateDescriptor("rules", OperatorStateMode.BROADCAST, DOUBLE, STRING),
        OperatorStateDescriptor("seen_files", OperatorStateMode.SPLIT_DISTRIBUTE, STRING),
        OperatorStateDescriptor("offsets", OperatorStateMode.UNION, Row((Field("at", LONG),))),
    )
    types = {state.name: state.value_type for state in pipeline.schema().states}
    assert types == {"s": Ttl(Row((Field("n", LONG),))), "c": Ttl(LONG), "l": Ttl(LONG), "m": Ttl(LONG), "e": LONG}
    assert pipeline.ttl() == {
        "s": TtlConfig(30 * 86_400_000),
        "c": TtlConfig(90_000, TtlUpdate.ON_READ_AND_WRITE),
        "l": TtlConfig(12 * 3_600_000),
        "m": TtlConfig(1),
    }
    assert Pipeline.model_validate(pipeline.model_dump()) == pipeline
    assert pipeline.side_data == ("model", "routes")
    hash(pipeline)


CASES = [
    (
        "ttl: 30d",
        "ttl: 30 days",
        "states.s.ttl: expected a duration such as 500ms, 90s, 15m, 1h or 7d, found '30 days'",
    ),
    ("ttl: 30d", "ttl: 0d", "states.s.ttl: expected a duration of more than 0"),
    ("ttl: 30d", "ttl: -1d", "states.s.ttl: expected a duration such as"),
    ("ttl: 30d", "ttl: 999999999999d", "states.s.ttl: expected a duration such as"),
    ("ttl: 30d", "update: on_read_and_write", "states.s.update: has a meaning only with 'ttl'"),
    ("on_read_and_write", "sometimes", "states.c.update: expected 'on_create_and_write' or 'on_read_and_write'"),
    ("fields: {n: long}", 'fields: {n: "ttl<long>"}', "states.s.fields.n: a type cannot expire"),
    ("n: long}}", 'n: "list<ttl<long>>"}}', "source.columns.n: a type cannot expire"),
    ("mode: union", "mode: onion", "operator_states.offsets.mode: expected 'list', 'union' or 'broadcast'"),
    (", element: string", "", "operator_states.seen_files: a list state needs 'element'"),
    ("key: string, ", "", "operator_states.rules: a broadcast state needs 'key'"),
    ("key: string, ", "key: bytes, ", "operator_states.rules.key: expected one of boolean,"),
    ("value: double}", "value: double, element: long}", "operator_states.rules.element: a broadcast state has key and"),
    ("element: string", "element: text", "operator_states.seen_files.element: "),
    ("element: string", "element: string, key: long", "operator_states.seen_files.key: a list state has element"),
    ("  seen_files", "  statelib.files", "operator_states.statelib.files: expected a name that does not start with"),
    ("  offsets", "  rules", "operator_states.rules: given twice"),
    (', function: "m:f"', "", "operator_states: no state has a 'function'"),
    (', function: "m:f"', "", "side_data: no state has a 'function'"),
    ("[model, routes]", "[model, model]", "side_data.1: expected each name once"),
    ("[model, routes]", '[model, ""]', "side_data.1: expected each name once, and none empty"),
    ("[model, routes]", "{model: bytes}", "side_data: "),
]


@pytest.mark.parametrize(("good", "bad", "message"), CASES, ids=lambda text: text[:20])
def test_each_mistake_is_refused(tmp_path: Path, good: str, bad: str, message: str) -> None:
    assert good in GOOD
    with pytest.raises(InvalidRequestError) as caught:
        loaded(tmp_path, GOOD.replace(good, bad, 1))
    assert message in caught.value.message


@pytest.mark.parametrize("text", ["", "d", "1", "1w", "1.5h", "1d 2h", "٣d", "1D", "9" * 16 + "d"])
def test_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a duration such as"):
        milliseconds(text)
