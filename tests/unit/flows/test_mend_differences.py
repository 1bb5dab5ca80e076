"""The differences that a correction would make: what a person reads before the approval, and how it is handed over."""

from pathlib import Path

import pyarrow as pa
import pytest

from statelib.errors import NotFoundError
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.mending.differences import MAX_CHARACTERS, MAX_STATES, Differences, StateDifferences
from statelib.flows.mending.preview_file import store_preview, take_preview
from statelib.flows.wiring import Deployment
from statelib.storage.registry import new_attempt
from statelib.visible import is_hidden
from tests.support.hostile_strings import ANY
from tests.support.worlds import checkpoint_of, new_deployment

PIPELINE = """\
name: sales
source: {path: "{data}/{start}-{end}", columns: {shop: string, amount: long}}
key: shop
states: {total: {kind: value, value: {agg: sum, of: amount}}}
backend: heap
checkpoint: {mendable: 3d, inline_threshold_bytes: 65536}
"""


def counts(added: int, removed: int, changed: int) -> dict[str, int]:
    return {"added": added, "removed": removed, "changed": changed}


def stored_files(deployment: Deployment) -> set[Path]:
    return {path for path in Path(deployment.storage_root).rglob("*") if path.is_file()}


def entry(key: str, change: str, before: str, after: str) -> dict[str, str]:
    return {"key_group": "7", "key": key, "user_key": '"i"', "change": change, "before": before, "after": after}


def test_counts_and_values_before_and_after_are_listed() -> None:
    sample = (entry('"a"', "changed", "1", "2"), entry('"b"', "added", "-", "3"), entry('"c"', "removed", "4", "-"))
    states = (StateDifferences("total", counts(1, 1, 1201), sample), StateDifferences("most", counts(0, 0, 0), ()))
    assert Differences(1, states).describe().splitlines() == [
        "**Differences, by 1 event**",
        "",
        "- ` total `: 1 added, 1 removed, 1,201 changed",
        '    - changed, key ` "a" `, user key ` "i" `: ` 1 ` → ` 2 `',
        '    - added, key ` "b" `, user key ` "i" `: ` 3 `',
        '    - removed, key ` "c" `, user key ` "i" `: ` 4 `',
        "    - and 1,200 more entries",
        "- ` most `: 0 added, 0 removed, 0 changed",
    ]


def test_hostile_and_long_values_are_code_of_limited_length() -> None:
    sample = tuple(entry(text, "changed", text * 1000, text) for text in ANY)
    states = tuple(StateDifferences(f"s{n}", counts(0, 0, len(ANY)), sample) for n in range(1000))
    lines = Differences(5, states).describe().splitlines()
    assert len(lines) == 2 + len(states) + MAX_STATES * len(ANY), "every entry has one line"
    assert max(map(len, lines)) < 6 * MAX_CHARACTERS
    assert not any(is_hidden(character) for line in lines for character in line)


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "sales.yaml").write_text(PIPELINE)
    return new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")


def test_a_stored_preview_is_taken_once_and_leaves_nothing(deployment: Deployment) -> None:
    pipeline, attempts = deployment.pipeline("sales"), [new_attempt(), new_attempt()]
    for attempt in attempts:
        store_preview(deployment, pipeline, attempt, f"→ {attempt}")
    assert take_preview(deployment, pipeline, attempts[1]) == f"→ {attempts[1]}"
    assert take_preview(deployment, pipeline, attempts[0]) == f"→ {attempts[0]}"
    assert not stored_files(deployment)
    with pytest.raises(NotFoundError, match=r"sales: the preview of attempt [0-9a-f]{32} is not in"):
        take_preview(deployment, pipeline, attempts[0])


def test_the_orphan_sweep_removes_a_preview_that_nobody_took(deployment: Deployment) -> None:
    checkpoint_of(deployment, "sales", 1, pa.table({"shop": ["a"], "amount": [1]}))
    before = stored_files(deployment)
    store_preview(deployment, deployment.pipeline("sales"), new_attempt(), "text")
    assert stored_files(deployment) > before
    (swept,) = orphans(deployment, "sales", dry_run=False, force=True, grace_ms=0)
    assert len(swept.files) == 1
    assert stored_files(deployment) == before
