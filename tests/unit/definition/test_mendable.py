"""``checkpoint.mendable`` is refused where the effect of an interval depends on others."""

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
checkpoint: {mendable: 30d}
"""
CASES = {
    "no duration": ("mendable: 30d", "mendable: 30", "a text"),
    "a time to live": ("kind: value, ", "kind: value, ttl: 3d, ", "states.total has a time to live"),
    "a list": (
        "kind: value, fields: {n: {agg: count}, sum: {agg: sum, of: amount}}",
        "kind: list, value: {agg: distinct, of: amount}",
        "states.total has the kind list",
    ),
    "a user function": (
        "fields: {n: {agg: count}, sum: {agg: sum, of: amount}}",
        "fields: {n: long}, function: module:update",
        "states.total has a user function",
    ),
    "blind runs": ("mendable: 30d", "strategy: changelog, blind: true, mendable: 30d", "blind runs do not read"),
    "a source read by commits": (
        'source: {path: "{data}/{start}-{end}", ',
        "source: {format: delta, path: '{data}/events', incremental: true, ",
        "source is read by the commits of its table",
    ),
    "retractions": (
        "source: {",
        "source: {changes: {op: op, before: before, after: after}, ",
        "changes has an effect that depends on earlier intervals",
    ),
}


def test_a_pipeline_of_aggregates_may_be_mendable(tmp_path: Path) -> None:
    (tmp_path / "sales.yaml").write_text(FILE)
    assert load_pipeline(tmp_path / "sales.yaml").checkpoint.mendable == "30d"


@pytest.mark.parametrize("case", CASES)
def test_a_part_that_cannot_be_mended_is_named(case: str, tmp_path: Path) -> None:
    old, new, problem = CASES[case]
    assert old in FILE
    (tmp_path / "sales.yaml").write_text(FILE.replace(old, new))
    with pytest.raises(InvalidRequestError, match=f"checkpoint.mendable: .*{problem}"):
        load_pipeline(tmp_path / "sales.yaml")
