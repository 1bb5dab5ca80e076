"""Each source that docs/sources.md shows is valid in a pipeline file."""

import re
from pathlib import Path

import pytest
import yaml

from statelib.definition.pipeline import load_pipeline

TEXT = (Path(__file__).parents[3] / "docs" / "sources.md").read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
REST = """\
name: shown
schedule: {cron: "@daily", start: 2026-01-01}
key: customer
states: {orders: {kind: value, value: {agg: count}}}
backend: heap
"""


@pytest.mark.parametrize("block", BLOCKS)
def test_a_source_in_the_document_is_valid(tmp_path: Path, block: str) -> None:
    path = tmp_path / "shown.yaml"
    rest = REST if "schedule:" not in block else re.sub(r"schedule: .*\n", "", REST)
    path.write_text(rest + block)
    shown = yaml.safe_load(block)
    sources = {f"sources.{name}": each for name, each in shown.get("sources", {}).items()}
    inputs = load_pipeline(path).inputs
    assert {field: set(each.columns) for field, each in inputs.items()} == {
        field: set(each["columns"]) for field, each in (sources or {"source": shown["source"]}).items()
    }


def test_all_code_blocks_of_the_document_are_tested() -> None:
    assert len(BLOCKS) == TEXT.count("```yaml") > 4
