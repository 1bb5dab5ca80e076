"""``publish:`` in a pipeline file: the examples of the document are valid, each table has its columns, and invalid
publications are refused."""

import re
from pathlib import Path

import pytest
import yaml

from statelib.definition.pipeline import Pipeline, load_pipeline
from statelib.definition.published_columns import column_sources, published_columns
from statelib.errors import InvalidRequestError

BLOCKS = re.findall(
    r"^```yaml\n(.*?)^```",
    (Path(__file__).parents[3] / "docs" / "publish.md").read_text(),
    re.DOTALL | re.MULTILINE,
)
REST = """\
name: shown
source: {path: "{start}-{end}", columns: {customer: string, item: string, amount: double, at: instant}}
key: customer
states:
  orders:
    kind: value
    fields:
      total: {agg: sum, of: amount}
      mean: {agg: avg, of: amount}
      newest: {agg: last, of: item, by: at}
  per_item: {kind: map, user_key: item, value: {agg: count}}
  hourly:
    kind: value
    value: {agg: variance, of: amount}
    window: {time: at, tumbling: 1h, retain: 1d}
  spent: {kind: value, fields: {spent: double}, function: "my_jobs.payments:update"}
outputs:
  alerts: {columns: {customer: string, amount: double, reason: string}}
backend: heap
"""


def loaded(tmp_path: Path, publish: str) -> Pipeline:
    path = tmp_path / "shown.yaml"
    path.write_text(REST + publish)
    return load_pipeline(path)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_table_in_the_document_is_valid(tmp_path: Path, block: str) -> None:
    assert set(loaded(tmp_path, block).publish) == set(yaml.safe_load(block)["publish"])


def test_all_code_blocks_of_the_document_are_tested() -> None:
    assert len(BLOCKS) == 6


COLUMNS = {
    "state: orders": ["customer", "total", "mean", "newest"],
    "state: orders, columns: [newest, mean.count]": ["customer", "newest", "mean.count"],
    "state: orders, columns: {who: customer, sum: total}": ["who", "sum"],
    "state: per_item": ["customer", "user_key", "value"],
    "state: per_item, columns: {item: user_key}": ["customer", "item"],
    "state: per_item, columns: {item: user_key, n: value}": ["customer", "item", "n"],
    "state: hourly": ["customer", "window_start", "window_end", "value"],
}


@pytest.mark.parametrize("chosen", COLUMNS)
def test_a_table_has_the_selected_columns(tmp_path: Path, chosen: str) -> None:
    pipeline = loaded(tmp_path, f"publish: {{t: {{target: /t, mode: table, {chosen}}}}}\n")
    columns = published_columns(pipeline, pipeline.publish["t"])
    assert [column.name for column in columns] == COLUMNS[chosen]


REFUSED = {
    "mode: table": "expected 'state', the one of orders, per_item, hourly, spent that is published, or 'output'",
    "mode: table, state: order": "publish.t.state: no state 'order', did you mean 'orders'?",
    "mode: table, state: orders, columns: [totl]": "publish.t.columns: no column 'totl', did you mean 'total'?",
    "mode: changes, state: orders, columns: {change: total}": "publish.t.columns: a feed of changes has a column",
    "mode: table, format: delta, state: orders, columns: {commit: total}": "what is merged into a Delta table has",
    "mode: table, state: orders, columns: []": "publish.t.columns: expected one column or more, or no 'columns'",
    "mode: table, state: orders, columns: [[total]]": "publish.t.columns: expected a mapping",
    "mode: table, state: orders, columns: {customer: total}": "publish.t.columns: a column that identifies the row",
    "mode: table, state: orders, columns: {a: customer, b: customer}": "publish.t.columns: column 'customer'",
    "mode: changes, state: orders, retain: 3": "publish.t.retain: belongs to mode: table in format: parquet",
    "mode: upsert, state: orders": "publish.t.mode: expected 'changes' or 'table', found 'upsert'",
    "mode: table, state: orders, target: '{data}/../t'": "publish.t.target: expected a path without '..', found",
    "mode: table, state: orders, target: '{start}/t'": "publish.t.target: expected {data} as the only placeholder",
    "mode: table, state: orders, target: '{data/t'": "publish.t.target: not a template",
    "mode: table, state: orders, target: tables": "publish.t.target: expected an absolute path or a URI",
    "mode: table, state: orders, format: iceberg, target: '{data}/t'": "expected <catalog>.<namespace>.<table>, as in",
    "mode: table, state: orders, format: iceberg, target: lake.t": "expected <catalog>.<namespace>.<table>, as in",
    "mode: table, state: orders, format: iceberg, target: a.b.c, retain: 2": "publish.t.retain: belongs to mode: table",
    "mode: table, state: orders, formatt: parquet": "publish.t.formatt: unknown key, did you mean 'format'?",
}


@pytest.mark.parametrize("text", REFUSED)
def test_each_invalid_publication_is_refused(tmp_path: Path, text: str) -> None:
    target = "" if "target" in text else "target: /t, "
    with pytest.raises(InvalidRequestError) as refusal:
        loaded(tmp_path, f"publish: {{t: {{{target}{text}}}}}\n")
    assert REFUSED[text] in refusal.value.message


@pytest.mark.parametrize("again", ["/t", "/t/"])
def test_two_tables_in_one_place_are_refused(tmp_path: Path, again: str) -> None:
    first, second = (f"{{target: {target}, mode: table, state: orders}}" for target in ("/t", again))
    both = f"publish:\n  a: {first}\n  b: {second}\n"
    with pytest.raises(InvalidRequestError, match=r"publish\.b\.target: 'a' is published there"):
        loaded(tmp_path, both)


def test_a_field_with_the_name_of_a_part_of_another_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "shown.yaml"
    path.write_text(REST.replace("total: {agg: sum", "mean.sum: {agg: max"))
    with pytest.raises(InvalidRequestError, match=r"states\.orders: two columns .* would be called 'mean\.sum'"):
        load_pipeline(path)


RENAMED = """\
name: shown
source: {path: "{start}-{end}", columns: {customer: string, item: string, amount: double, at: instant}}
key: [customer, item]
states:
  orders:
    kind: value
    renamed_from: sales
    fields:
      "total.net": {agg: sum, of: amount, renamed_from: net}
      mean: {agg: avg, of: amount}
      item: {agg: count}
  visits: {kind: value, value: {agg: avg, of: amount}, window: {time: at, session: 30m, retain: 1d}}
  carts:
    kind: value
    fields: {views: {agg: count, renamed_from: hits}}
    window: {time: at, session: 30m, retain: 1d}
outputs:
  ended: {closed: carts}
backend: heap
"""
SOURCES: dict[str, dict[str, tuple[str, ...]]] = {
    "mode: table, state: orders": {
        "customer": ("key.0",),
        "item": ("key.1",),
        "total.net": ("orders.total.net", "orders.net", "sales.total.net", "sales.net"),
        "mean": ("orders.mean", "sales.mean"),
        "value.item": ("orders.item", "sales.item"),
    },
    "mode: table, state: visits, columns: {start: window_start, sum: value.sum}": {
        "customer": ("key.0",),
        "item": ("key.1",),
        "start": ("namespace.0",),
        "window_end": ("namespace.1",),
        "sum": ("visits.value.sum",),
    },
    "mode: changes, output: ended, columns: {what: item, seen: views}": {
        "what": ("key.1",),
        "seen": ("carts.views", "carts.hits"),
    },
}


@pytest.mark.parametrize("chosen", SOURCES)
def test_the_source_of_a_column_has_its_earlier_names(tmp_path: Path, chosen: str) -> None:
    path = tmp_path / "shown.yaml"
    path.write_text(f'{RENAMED}publish: {{shown: {{target: "/tables/shown", {chosen}}}}}\n')
    pipeline = load_pipeline(path)
    assert column_sources(pipeline, pipeline.publish["shown"]) == SOURCES[chosen]
