"""``outputs:`` in a pipeline file, and their publication: columns have types, and each mistake is one error."""

from pathlib import Path

import pyarrow as pa
import pytest

from statelib.definition.columns import output_schemas
from statelib.definition.pipeline import Pipeline, load_pipeline
from statelib.errors import InvalidRequestError

GOOD = """\
name: shown
source: {path: "{start}-{end}", columns: {customer: string, amount: double}}
key: customer
states:
  spent: {kind: value, fields: {total: double}, function: "my.module:update"}
outputs:
  alerts: {columns: {customer: string, amount: "decimal(18, 2)", at: instant}}
backend: heap
publish:
  feed: {target: "{data}/feed", mode: changes, output: alerts, columns: {who: customer, sum: amount}}
"""
MISTAKES = {
    "no function": (
        'fields: {total: double}, function: "my.module:update"', "value: {agg: count}",
        "outputs: no state has a 'function', nothing else can emit rows",
    ),
    "no columns": ('{customer: string, amount: "decimal(18, 2)", at: instant}', "{}", "expected at least one column"),
    "not a type": ("at: instant", "at: moment", "outputs.alerts.columns.at: .*moment"),
    "type of no column": ("at: instant", "at: time", "a column is one of boolean"),
    "name of a state": ("  alerts: {", "  Spent: {", "outputs.Spent: state 'spent' has this name"),
    "name of an output": ("outputs:\n", "outputs:\n  Alerts: {columns: {n: long}}\n", "output 'Alerts' has this name"),
    "own column": ("at: instant", "row_number: long", "row_number: every output has a column of this name"),
    "odd name": ("at: instant", "'a:b': long", "expected a name without any of"),
    "unknown key": ("alerts: {columns: {", "alerts: {column: {", "did you mean 'columns'"),
    "unknown output": ("output: alerts", "output: alert", "no output 'alert', did you mean 'alerts'"),
    "table": ("mode: changes", "mode: table", "publish.feed.mode: an output is published as a feed only"),
    "both": ("output: alerts", "output: alerts, state: spent", "expected one of 'state' and 'output', found both"),
    "unknown column": ("who: customer", "who: customers", "no column 'customers', did you mean 'customer'"),
    "column of the feed": ("who: customer", "change: customer", "a feed of changes has a column 'change' of its own"),
    "number of the feed": ("who: customer", "row_number: customer", "has a column 'row_number' of its own"),
    "retain": ("output: alerts", "output: alerts, retain: 3", "belongs to mode: table in format: parquet"),
}  # fmt: skip


def loaded(tmp_path: Path, text: str) -> Pipeline:
    path = tmp_path / "shown.yaml"
    path.write_text(text)
    return load_pipeline(path)


def test_an_output_has_the_types_of_source_columns(tmp_path: Path) -> None:
    schemas = output_schemas(loaded(tmp_path, GOOD))
    instant = pa.timestamp("ns", "UTC")
    expected = [("customer", pa.string()), ("amount", pa.decimal128(18, 2)), ("at", instant)]
    assert schemas == {"alerts": pa.schema(expected)}


@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_each_mistake_is_one_error_with_its_place(tmp_path: Path, mistake: str) -> None:
    good, bad, message = MISTAKES[mistake]
    assert good in GOOD
    with pytest.raises(InvalidRequestError, match=message) as refusal:
        loaded(tmp_path, GOOD.replace(good, bad))
    assert refusal.value.kind == "bad-pipeline"
    assert len(refusal.value.message.splitlines()) == 1
