# ruff: noqa: E501 (a table: one mistake per line)
"""``outputs:`` in a pipeline file, and their publication: columns have types, and each mistake is one error."""

from pathlib import Path

import pyarrow as pa
import pytest

from statelib.definition.output_forms import output_forms
from statelib.definition.pipeline import Pipeline, load_pipeline
from statelib.errors import InvalidRequestError

GOOD = """\
name: shown
source: {path: "{start}-{end}", columns: {customer: string, amount: double, seen: instant}}
key: customer
states:
  visits: {kind: value, fields: {n: {agg: count}, mean: {agg: avg, of: amount}}, window: {time: seen, session: 1h, retain: 1h}}
  spent: {kind: value, fields: {total: double}, function: "my.module:update"}
outputs:
  alerts: {columns: {customer: string, amount: "decimal(18, 2)", at: instant}}
  ended: {closed: visits}
backend: heap
publish:
  feed: {target: "{data}/feed", mode: changes, output: alerts, columns: {who: customer, sum: amount}}
"""
MISTAKES = {
    "no function": (
        'fields: {total: double}, function: "my.module:update"', "value: {agg: count}",
        "outputs.alerts: no state has a 'function', nothing else can emit such rows",
    ),
    "no columns": ('{customer: string, amount: "decimal(18, 2)", at: instant}', "{}", "expected 'columns' with at least one col"),
    "not a type": ("at: instant", "at: moment", "outputs.alerts.columns.at: .*moment"),
    "type of no column": ("at: instant", "at: time", "a column is one of boolean"),
    "name of a state": ("  alerts: {", "  Spent: {", "outputs.Spent: state 'spent' has this name"),
    "name of an output": ("outputs:\n", "outputs:\n  Alerts: {columns: {n: long}}\n", "output 'Alerts' has this name"),
    "own column": ("at: instant", "row_number: long", "row_number: every output has a column of this name"),
    "column in capitals": ("at: instant", "AMOUNT: long", "alerts.columns.AMOUNT: column 'amount' has this name"),
    "odd name": ("at: instant", "'a:b': long", "expected a name without any of"),
    "both kinds": ("ended: {closed", "ended: {columns: {a: long}, closed", "outputs.ended: expected 'columns' with at"),
    "unknown state": ("closed: visits", "closed: visit", "outputs.ended.closed: no state 'visit', did you mean 'visits'"),
    "no sessions": ("closed: visits", "closed: spent", "closed: only sessions are emitted when they are closed; state 's"),
    "own field": ("{n: {agg", "{row_number: {agg", "every output has a column 'row_number', and so has state 'visits'"),
    "unknown column of sessions": ("output: alerts", "output: ended", "columns are customer, window_start, window_end, n, m"),
    "unknown key": ("alerts: {columns: {", "alerts: {column: {", "did you mean 'columns'"),
    "unknown output": ("output: alerts", "output: alert", "no output 'alert', did you mean 'alerts'"),
    "table": ("mode: changes", "mode: table", "publish.feed.mode: an output is published as a feed only"),
    "both": ("output: alerts", "output: alerts, state: spent", "expected one of 'state' and 'output', found both"),
    "unknown column": ("who: customer", "who: customers", "no column 'customers', did you mean 'customer'"),
    "column of the feed": ("who: customer", "change: customer", "a feed of changes has a column 'change' of its own"),
    "column of the feed in capitals": ("who: customer", "Change: customer", "has a column 'Change' of its own"),
    "published in capitals": ("who: customer", "SUM: customer", "could not distinguish the columns 'SUM' and 'sum'"),
    "number of the feed": ("who: customer", "row_number: customer", "has a column 'row_number' of its own"),
    "retain": ("output: alerts", "output: alerts, retain: 3", "belongs to mode: table in format: parquet"),
}  # fmt: skip


def loaded(tmp_path: Path, text: str) -> Pipeline:
    path = tmp_path / "shown.yaml"
    path.write_text(text)
    return load_pipeline(path)


def test_an_output_has_the_types_of_source_columns_or_of_its_state(tmp_path: Path) -> None:
    forms = output_forms(loaded(tmp_path, GOOD))
    instant = pa.timestamp("ns", "UTC")
    expected = [("customer", pa.string()), ("amount", pa.decimal128(18, 2)), ("at", instant)]
    assert forms["alerts"].schema == pa.schema(expected)
    moment = pa.timestamp("ms", "UTC")
    windows = [("customer", pa.string()), ("window_start", moment), ("window_end", moment)]
    assert forms["ended"].schema == pa.schema([*windows, ("n", pa.int64()), ("mean", pa.float64())])


@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_each_mistake_is_one_error_with_its_place(tmp_path: Path, mistake: str) -> None:
    good, bad, message = MISTAKES[mistake]
    assert good in GOOD
    with pytest.raises(InvalidRequestError, match=message) as refusal:
        loaded(tmp_path, GOOD.replace(good, bad))
    assert refusal.value.kind == "bad-pipeline"
    assert len(refusal.value.message.splitlines()) == 1
