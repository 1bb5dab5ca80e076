"""``checkpoint.reads: touched`` is refused where a run has to read entries that no event touches."""

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
backend: rocksdb
checkpoint: {strategy: changelog, reads: touched}
"""
FIELDS = "kind: value, fields: {n: {agg: count}, sum: {agg: sum, of: amount}}"
CASES = {
    "another strategy": ("strategy: changelog", "strategy: full", "belongs to strategy: changelog"),
    "the heap": ("backend: rocksdb", "backend: heap", "expected backend rocksdb"),
    "local copies": ("reads: touched", "reads: touched, local_recovery: true", "local_recovery makes copies"),
    "a time to live": ("kind: value, ", "kind: value, ttl: 3d, ", "all entries for states.total, which has a time to"),
    "timers": (
        FIELDS,
        "kind: value, fields: {n: long}, function: module:update, on_timer: module:fire",
        "all entries for states.total, which has timers",
    ),
    "deletes of maps": (
        "key: shop\nstates:",
        "key: shop\norder_by: [at]\nstates:\n  items: {kind: map, user_key: amount, value: {agg: count}}",
        "states.items, a map from which delete_when removes keys",
    ),
}


def test_aggregates_and_user_functions_can_be_read_by_touched_entries(tmp_path: Path) -> None:
    file = tmp_path / "sales.yaml"
    for states in (FIELDS, "kind: value, fields: {n: long}, function: module:update"):
        file.write_text(FILE.replace(FIELDS, states))
        assert load_pipeline(file).checkpoint.reads == "touched"


@pytest.mark.parametrize("case", CASES)
def test_each_part_that_needs_all_entries_is_refused_by_name(tmp_path: Path, case: str) -> None:
    old, new, message = CASES[case]
    text = FILE.replace(old, new)
    assert text != FILE
    if case == "deletes of maps":
        text = text.replace("source: {", "source: {delete_when: gone, ")
    (tmp_path / "sales.yaml").write_text(text)
    with pytest.raises(InvalidRequestError, match=message):
        load_pipeline(tmp_path / "sales.yaml")
