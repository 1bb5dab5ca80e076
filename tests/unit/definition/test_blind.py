"""``checkpoint.blind`` is refused where a run has to read the state."""

from pathlib import Path

import pytest

from statelib.definition.pipeline import load_pipeline
from statelib.errors import InvalidRequestError

FILE = """\
name: sales
source: {path: "{data}/{start}-{end}", columns: {shop: string, amount: long, gone: boolean, at: instant}}
key: shop
states:
  total: {kind: value, fields: {n: {agg: count}, sum: {agg: sum, of: amount}}}
backend: heap
checkpoint: {strategy: changelog, blind: true}
"""
CASES = {
    "another strategy": ("strategy: changelog", "strategy: canonical", "belongs to strategy: changelog"),
    "a time to live": ("kind: value, ", "kind: value, ttl: 3d, ", "read states.total, which has a time to live"),
    "a list": (
        "kind: value, fields: {n: {agg: count}, sum: {agg: sum, of: amount}}",
        "kind: list, value: {agg: distinct, of: amount}",
        "read states.total, which has the kind list",
    ),
    "a user function": (
        "fields: {n: {agg: count}, sum: {agg: sum, of: amount}}",
        "fields: {n: long}, function: module:update",
        "read states.total, which has a user function",
    ),
    "deletes of maps": (
        "key: shop",
        "key: shop\norder_by: [at]",
        "delete_when with a map needs the whole state",
    ),
    "a published table": (
        "backend: heap",
        "backend: heap\npublish: {out: {state: total, target: '{data}/out', format: parquet, mode: changes}}",
        "publish needs the whole state",
    ),
    "drift": (
        "backend: heap",
        "backend: heap\nchecks: {drift: {entries: {most: 20%}}}",
        "checks.drift needs the whole state",
    ),
    "expectations": (
        "backend: heap",
        "backend: heap\nchecks: {expectations: [{state: total, expect: column_values_to_not_be_null, column: n}]}",
        "checks.expectations needs the whole state",
    ),
}


def test_a_pipeline_of_aggregates_may_be_blind(tmp_path: Path) -> None:
    (tmp_path / "sales.yaml").write_text(FILE)
    assert load_pipeline(tmp_path / "sales.yaml").checkpoint.blind


@pytest.mark.parametrize("case", CASES)
def test_a_state_that_must_be_read_is_named(case: str, tmp_path: Path) -> None:
    old, new, problem = CASES[case]
    assert old in FILE
    text = FILE.replace(old, new)
    if case == "deletes of maps":
        text = text.replace("backend:", "  items: {kind: map, user_key: amount, value: {agg: count}}\nbackend:")
        text = text.replace("source: {", "source: {delete_when: gone, ")
    (tmp_path / "sales.yaml").write_text(text)
    with pytest.raises(InvalidRequestError, match=f"checkpoint.blind: .*{problem}"):
        load_pipeline(tmp_path / "sales.yaml")
