"""Published tables after a change of the pipeline file: a column keeps its meaning, or the change is refused."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from statelib.errors import InvalidRequestError
from statelib.flows.publication.steps import publish_tables
from statelib.flows.wiring import Deployment
from tests.support.published import TABLES, iceberg_environment, published, table_rows
from tests.support.worlds import checkpoint_of, new_deployment

STATES = """\
name: sales
source: {path: "{data}/{start}-{end}", columns: {shop: string, amount: long, pieces: long}}
key: [shop]
states:
  total: {kind: value, fields: {first: {agg: sum, of: amount}, second: {agg: sum, of: pieces}}}
  other: {kind: value, fields: {first: {agg: count}, second: {agg: max, of: pieces}}}
backend: heap
publish:
"""
FIELDS = "{first: {agg: sum, of: amount}, second: {agg: sum, of: pieces}}"


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    for name, value in iceberg_environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "pipelines").mkdir()
    return new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")


def change_file(deployment: Deployment, text: str) -> None:
    (Path(deployment.pipelines_directory) / "sales.yaml").write_text(text)


def table(format_: str, mode: str, more: str = "") -> str:
    target = "lake.shop.total" if format_ == "iceberg" else "{data}/total"
    return f'  total: {{target: "{target}", format: {format_}, mode: {mode}{more}}}\n'


def run(deployment: Deployment, number: int, *events: tuple[str, int, int]) -> None:
    shops, amounts, pieces = zip(*events, strict=True) if events else ((), (), ())
    columns = [pa.array(shops, pa.string()), pa.array(amounts, pa.int64()), pa.array(pieces, pa.int64())]
    checkpoint_of(deployment, "sales", number, pa.table(columns, names=["shop", "amount", "pieces"]))


def publish(deployment: Deployment) -> None:
    publish_tables(deployment, deployment.pipeline("sales"))


def publish_two_shops(deployment: Deployment, text: str) -> None:
    change_file(deployment, text)
    run(deployment, 1, ("a", 1, 10), ("b", 2, 20))
    publish(deployment)


@pytest.mark.parametrize(("format_", "mode"), TABLES)
def test_a_column_with_another_source_is_refused(
    deployment: Deployment, tmp_path: Path, format_: str, mode: str
) -> None:
    text = STATES + table(format_, mode, ", state: total, columns: {value: first}")
    publish_two_shops(deployment, text)
    run(deployment, 2, ("a", 1, 10))
    changed = {
        "total.second": text.replace("value: first", "value: second"),
        "other.first": text.replace("state: total", "state: other"),
    }
    for source, other_text in changed.items():
        change_file(deployment, other_text)
        expected = f"column value of the table has total.first, and publish.total has {source}"
        with pytest.raises(InvalidRequestError, match=expected) as refusal:
            publish(deployment)
        assert refusal.value.kind == "columns-changed"
    change_file(deployment, text)
    publish(deployment)
    assert published(tmp_path, format_, mode) == {"a": {"value": 2}, "b": {"value": 2}}


@pytest.mark.parametrize(("format_", "mode"), TABLES)
def test_a_renamed_field_and_state_keep_their_columns(
    deployment: Deployment, tmp_path: Path, format_: str, mode: str
) -> None:
    text = STATES + table(format_, mode, ", state: total, columns: {value: first}")
    publish_two_shops(deployment, text)
    renamed = text.replace("first: {agg: sum, of: amount}", "money: {agg: sum, of: amount, renamed_from: first}")
    renamed = renamed.replace("value: first", "value: money").replace("state: total", "state: sums")
    change_file(deployment, renamed.replace("total: {kind: value", "sums: {renamed_from: total, kind: value"))
    for number in (2, 3):
        run(deployment, number, ("a", 1, 10))
        publish(deployment)
    assert published(tmp_path, format_, mode) == {"a": {"value": 3}, "b": {"value": 2}}


@pytest.mark.parametrize("mode", ["table", "changes"])
def test_a_checkpoint_with_fields_in_another_order_is_not_published(
    deployment: Deployment, tmp_path: Path, mode: str
) -> None:
    text = STATES + table("parquet", mode, ", state: total, columns: [first, second]")
    change_file(deployment, text)
    run(deployment, 1, ("a", 1, 10), ("b", 2, 20))
    moved = "{second: {agg: sum, of: pieces}, first: {agg: sum, of: amount}}"
    change_file(deployment, text.replace(FIELDS, moved))
    with pytest.raises(InvalidRequestError, match="row<second: long, first: long>") as refusal:
        publish(deployment)
    assert refusal.value.kind == "other-state"
    run(deployment, 2, ("a", 1, 10))
    publish(deployment)
    assert published(tmp_path, "parquet", mode) == {"a": {"first": 2, "second": 20}, "b": {"first": 2, "second": 20}}


def test_a_checkpoint_with_the_key_in_another_order_is_not_published(deployment: Deployment, tmp_path: Path) -> None:
    text = STATES.replace("key: [shop]", "key: [amount, pieces]") + table("parquet", "table", ", state: other")
    change_file(deployment, text)
    run(deployment, 1, ("a", 1, 10))
    change_file(deployment, text.replace("key: [amount, pieces]", "key: [pieces, amount]"))
    with pytest.raises(InvalidRequestError, match=r"the columns of the key are pieces, amount .* has amount, pieces"):
        publish(deployment)
    change_file(deployment, text)
    publish(deployment)
    (row,) = table_rows(tmp_path / "total", ["amount"]).values()
    assert (row["amount"], row["pieces"]) == (1, 10)


@pytest.mark.parametrize(("format_", "mode"), TABLES)
def test_a_value_that_equals_the_old_one_of_a_moved_field_is_published(
    deployment: Deployment, tmp_path: Path, format_: str, mode: str
) -> None:
    """The stored bytes of both states are the same then."""
    text = STATES + table(format_, mode, ", state: total, columns: [first, second]")
    change_file(deployment, text)
    run(deployment, 1, ("a", 1, 2), ("b", 3, 3))
    publish(deployment)
    change_file(deployment, text.replace(FIELDS, "{second: {agg: sum, of: pieces}, first: {agg: sum, of: amount}}"))
    run(deployment, 2, ("a", 1, -1))
    publish(deployment)
    assert published(tmp_path, format_, mode) == {"a": {"first": 2, "second": 1}, "b": {"first": 3, "second": 3}}


@pytest.mark.parametrize(
    ("column", "fields", "later_fields"),
    [
        (
            "second",
            "{second: {agg: sum, of: pieces}}",
            "{second: {agg: sum, of: pieces}, third: {agg: max, of: amount}}",
        ),
        (
            "first",
            "{money: {agg: sum, of: amount, renamed_from: first}}",
            "{third: {agg: max, of: amount}, money: {agg: sum, of: amount, renamed_from: first}}",
        ),
    ],
)
def test_fields_that_are_dropped_and_added_while_a_table_is_behind_are_not_compared(
    deployment: Deployment, tmp_path: Path, column: str, fields: str, later_fields: str
) -> None:
    text = STATES + table("parquet", "changes", f", state: total, columns: {{value: {column}}}")
    change_file(deployment, text)
    run(deployment, 1, ("a", 2, 3), ("b", 4, 5))
    publish(deployment)
    for number, (declared, event) in enumerate(((fields, ("b", 1, 1)), (later_fields, ("a", 1, -1))), start=2):
        change_file(deployment, text.replace(FIELDS, declared).replace("value: first", "value: money"))
        run(deployment, number, event)
    publish(deployment)
    expected = {"second": {"a": 2, "b": 6}, "first": {"a": 3, "b": 5}}
    assert published(tmp_path, "parquet", "changes") == {k: {"value": v} for k, v in expected[column].items()}


def test_tables_of_earlier_versions_are_continued(deployment: Deployment, tmp_path: Path) -> None:
    change_file(deployment, STATES + table("parquet", "table", ", state: total"))
    run(deployment, 1, ("a", 1, 10))
    publish(deployment)
    path = tmp_path / "total" / "commit-00000001" / "_manifest.json"
    manifest = json.loads(path.read_text())
    assert manifest.pop("sources") == {"shop": "key", "first": "total.first", "second": "total.second"}
    path.write_text(json.dumps(manifest))
    run(deployment, 2, ("a", 1, 10))
    publish(deployment)
    assert published(tmp_path, "parquet", "table") == {"a": {"first": 2, "second": 20}}


def test_more_commits_can_be_retained_than_are_left(deployment: Deployment, tmp_path: Path) -> None:
    """The directory of commit 1 has a file that commit 3 uses, and no manifest any more."""
    few, many = (table("parquet", "table", f", state: total, retain: {count}") for count in (1, 10))
    change_file(deployment, STATES + few)
    for number in (1, 2, 3):
        run(deployment, number, *([("a", 1, 10)] if number == 1 else []))
        publish(deployment)
    assert [path.parent.name for path in (tmp_path / "total").glob("*/_manifest.json")] == ["commit-00000003"]
    change_file(deployment, STATES + many)
    publish(deployment)
    run(deployment, 4, ("a", 1, 10))
    publish(deployment)
    assert published(tmp_path, "parquet", "table") == {"a": {"first": 2, "second": 20}}
    manifests = sorted(path.parent.name for path in (tmp_path / "total").glob("*/_manifest.json"))
    assert manifests == ["commit-00000003", "commit-00000004"]
