"""docs/observability.md lists the names, tags, columns and log fields of the code in the same words."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from statelib.catalog.views.history import VIEWS
from statelib.telemetry.logs import FIELDS
from statelib.telemetry.metrics import METRICS, MetricKind

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "observability.md").read_text()


def rows(heading: str) -> list[str]:
    """Return the lines of the table with this heading, without heading and ruler."""
    lines = DOCUMENT.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    return lines[start + 2 : lines.index("", start)]


def test_every_metric_is_in_the_table() -> None:
    expected = [f"| `{m.name}` | {m.kind} | {m.unit} | {', '.join(m.tags)} | {m.meaning} |" for m in METRICS]
    assert rows("metric") == expected


@pytest.mark.parametrize(("view", "columns"), VIEWS.items(), ids=VIEWS)
def test_every_column_is_in_its_table(view: str, columns: Mapping[str, str]) -> None:
    assert rows(f"`{view}`") == [f"| `{name}` | {meaning} |" for name, meaning in columns.items()]


def test_every_log_field_is_in_the_table() -> None:
    assert [row.split("`")[1] for row in rows("field")] == list(FIELDS)


def test_the_alert_rules_use_existing_metrics() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", DOCUMENT, re.DOTALL)
    (group,) = yaml.safe_load(block)["groups"]
    metrics = {f"airflow_{m.name.replace('.', '_')}": m.kind for m in METRICS}
    for rule in group["rules"]:
        used = re.findall(r"airflow_statelib_\w+", rule["expr"])
        assert used
        assert set(used) <= set(metrics), rule["alert"]
        counted = "increase(" in rule["expr"]
        assert not counted or {metrics[name] for name in used} == {MetricKind.COUNTER}
