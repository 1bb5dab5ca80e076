"""Tables in the format Delta: types, two publishers at once, other writers, a killed publisher, a package that is
missing."""

import shutil
from functools import partial
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake

from statelib import extras
from statelib.errors import InvalidRequestError, NotFoundError, UnsupportedError
from statelib.flows.publication.steps import publish_tables, standings
from statelib.flows.wiring import Deployment
from statelib.testing.crash_points import Place, ends_at, kill, recorded
from tests.faults.crash_child import run as run_in_a_child
from tests.integration.shop import SALES, sales
from tests.support.published import by_identity, delta_rows, errors_together, folded
from tests.support.worlds import checkpoint_of, day, new_deployment

PUBLISH = """\
publish:
  feed: {target: "{data}/feed", format: delta, mode: changes, state: total}
  now: {target: "{data}/now", format: delta, mode: table, state: per_item}
"""
WINDOWED = """\
name: sales
source: {path: "{data}/{start}-{end}", columns: {shop: string, item: string, amount: long, at: instant, bytes: bytes}}
key: [shop, item]
states:
  hourly:
    kind: value
    fields: {mean: {agg: avg, of: amount}, all: {agg: collect, of: bytes}, newest: {agg: last, of: at, by: at}}
    window: {time: at, tumbling: 1h, retain: 1h}
backend: heap
publish:
  feed: {target: "{data}/feed", format: delta, mode: changes}
  now: {target: "{data}/now", format: delta, mode: table}
"""


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    made = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    change_file(made, SALES + PUBLISH)
    return made


def change_file(deployment: Deployment, text: str) -> None:
    (Path(deployment.pipelines_directory) / "sales.yaml").write_text(text)


def run(deployment: Deployment, number: int) -> None:
    checkpoint_of(deployment, "sales", number, sales(number * 3))


def publish(deployment: Deployment) -> None:
    publish_tables(deployment, deployment.pipeline("sales"))


def published(deployment: Deployment, place: Place) -> None:
    with ends_at(place, kill):
        publish(deployment)


def test_nanoseconds_are_refused_and_not_cut(deployment: Deployment) -> None:
    change_file(deployment, WINDOWED)
    at = pa.array([(day(1).end_ms - 1) * 1_000_000 + 1] * 6, pa.timestamp("ns", "UTC"))
    events = sales(0).append_column("at", at).append_column("bytes", pa.array([b"x"] * 6))
    checkpoint_of(deployment, "sales", 1, events)
    with pytest.raises(UnsupportedError, match="would lose data") as refusal:
        publish_tables(deployment, deployment.pipeline("sales"), ("now",))
    assert refusal.value.kind == "delta-type"


def tables(root: Path) -> tuple[object, object]:
    """Return the rows of the folded feed and of the table."""
    rows = by_identity(delta_rows(root / "now"), ["shop", "user_key"])
    return folded(delta_rows(root / "feed"), ["shop"]), rows


def test_independent_readers_agree(deployment: Deployment, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        run(deployment, number)
        publish(deployment)
    newest = pl.scan_delta(str(tmp_path / "feed")).sort("commit").group_by("shop").last().sort("shop").collect()
    assert newest["sold"].to_list() == [6, 6, 6]
    assert len(by_identity(delta_rows(tmp_path / "now"), ["shop", "user_key"])) == 6
    assert pl.read_delta(str(tmp_path / "now"))["value"].sum() == 18
    history = DeltaTable(tmp_path / "feed").history()
    assert [entry["statelib.checkpoint"] for entry in history] == ["sales/3", "sales/2", "sales/1"]


def test_windows_lists_and_times(deployment: Deployment, tmp_path: Path) -> None:
    change_file(deployment, WINDOWED)
    for number in (1, 2):
        at = pa.array([day(number).start_ms + 23 * 3_600_000] * 6, pa.timestamp("ms", "UTC"))
        events = sales(0).append_column("at", at.cast(pa.timestamp("ns", "UTC")))
        checkpoint_of(deployment, "sales", number, events.append_column("bytes", pa.array([b"x"] * 6)))
        publish(deployment)
    identity = ["shop", "item", "window_start", "window_end"]
    rows = by_identity(delta_rows(tmp_path / "now"), identity)
    assert len(rows) == 6
    assert {str(row["window_start"])[:13] for row in rows.values()} == {"2013-01-02 23"}
    assert [(type(row["mean"]), row["all"]) for row in rows.values()] == [(float, [b"x"])] * 6
    assert folded(delta_rows(tmp_path / "feed"), identity) == rows


def test_the_keys_zero_and_negative_zero_are_two_rows(deployment: Deployment, tmp_path: Path) -> None:
    source = 'source: {path: "{data}/{start}-{end}", columns: {rate: double, amount: long}}'
    state = "states: {total: {kind: value, fields: {amount: {agg: sum, of: amount}}}}"
    now = 'publish: {now: {target: "{data}/now", format: delta, mode: table}}'
    change_file(deployment, "\n".join(("name: sales", source, "key: rate", state, "backend: heap", now, "")))
    rates = pa.array([0.0, -0.0, float("nan"), 1.5, -0.0])
    for number in (1, 2):
        events = pa.table({"rate": rates, "amount": pa.array([1, 2, 3, 4, 5])})
        checkpoint_of(deployment, "sales", number, events)
        publish(deployment)
    rows = {str(row["rate"]): row["amount"] for row in delta_rows(tmp_path / "now").to_pylist()}
    assert rows == {"0.0": 2, "-0.0": 14, "nan": 6, "1.5": 8}


def test_a_name_with_a_quotation_mark_can_be_merged(deployment: Deployment, tmp_path: Path) -> None:
    now = (
        """publish: {now: {target: "{data}/now", format: delta, mode: table, state: total, columns: {'a "b"': sold}}}"""
    )
    change_file(deployment, f"{SALES}{now}\n")
    for number in (1, 2):
        run(deployment, number)
        publish(deployment)
    assert set(delta_rows(tmp_path / "now").column_names) == {"shop", 'a "b"'}


def test_two_publishers_at_once(deployment: Deployment, tmp_path: Path) -> None:
    run(deployment, 1)
    publish(deployment)
    for number in (2, 3, 4):
        run(deployment, number)
    assert errors_together(3, partial(publish, deployment)) == []
    feed = delta_rows(tmp_path / "feed")
    assert len(feed) == 12, "no row twice"
    assert {(row["commit"], row["checkpoint_id"]) for row in feed.to_pylist()} == {(n, n) for n in (1, 2, 3, 4)}
    assert DeltaTable(tmp_path / "now").version() == 3


def appended(target: Path) -> None:
    write_deltalake(target, delta_rows(target).slice(0, 1), mode="append")


def deleted(target: Path) -> None:
    DeltaTable(target).delete("shop = 'shop-1'")


@pytest.mark.parametrize("write", [appended, deleted])
@pytest.mark.parametrize("table", ["feed", "now"])
def test_a_table_that_something_else_wrote_to(deployment: Deployment, tmp_path: Path, write, table: str) -> None:
    for number in (1, 2):
        run(deployment, number)
        publish(deployment)
    write(tmp_path / table)
    version = DeltaTable(tmp_path / table).version()
    run(deployment, 3)
    with pytest.raises(InvalidRequestError, match="was written by something else") as refusal:
        publish(deployment)
    assert refusal.value.kind == "foreign-target"
    assert DeltaTable(tmp_path / table).version() == version
    assert {s.table: bool(s.error) for s in standings(deployment, deployment.pipeline("sales"))}[table]
    (tmp_path / table).rename(tmp_path / "moved")
    publish(deployment)
    assert len(delta_rows(tmp_path / table)) == {"feed": 3, "now": 6}[table]


def test_the_advice_names_each_table_that_something_else_wrote_to(deployment: Deployment, tmp_path: Path) -> None:
    run(deployment, 1)
    publish(deployment)
    for name in ("feed", "now"):
        deleted(tmp_path / name)
    run(deployment, 2)
    with pytest.raises(InvalidRequestError) as refusal:
        publish(deployment)
    assert refusal.value.kind == "tables-in-trouble"
    assert [f"publish.{name}.target" in refusal.value.hint for name in ("feed", "now")] == [True, True]
    assert refusal.value.hint.count("statelib publish sales publishes it") == 1


def test_maintenance_is_no_foreign_writer(deployment: Deployment, tmp_path: Path) -> None:
    for number in (1, 2):
        run(deployment, number)
        publish(deployment)
    DeltaTable(tmp_path / "feed").optimize.compact()
    DeltaTable(tmp_path / "feed").vacuum(0, dry_run=False, enforce_retention_duration=False)
    run(deployment, 3)
    publish(deployment)
    assert [row["sold"] for row in folded(delta_rows(tmp_path / "feed"), ["shop"]).values()] == [6, 6, 6]


def test_descriptions_constraints_and_features_are_no_foreign_rows(deployment: Deployment, tmp_path: Path) -> None:
    run(deployment, 1)
    publish(deployment)
    alter = DeltaTable(tmp_path / "now").alter
    alter.set_table_description("what each shop has sold of each item")
    alter.set_column_metadata("value", {"comment": "the number of events"})
    alter.add_constraint({"counted": "value > 0"})
    alter.drop_constraint("counted")
    alter.set_table_properties({"delta.logRetentionDuration": "interval 90 days"})
    alter.add_feature(TableFeatures.AppendOnly, allow_protocol_versions_increase=True)
    run(deployment, 2)
    publish(deployment)
    assert sorted(delta_rows(tmp_path / "now")["value"].to_pylist()) == [2] * 6
    DeltaTable(tmp_path / "now").restore(0)
    run(deployment, 3)
    with pytest.raises(InvalidRequestError, match="was written by something else: RESTORE"):
        publish(deployment)


def test_rows_that_the_table_refuses(deployment: Deployment, tmp_path: Path) -> None:
    def refused(reason: str) -> None:
        with pytest.raises(InvalidRequestError, match=f"the table refuses the rows of the commit: .*{reason}") as error:
            publish(deployment)
        assert error.value.kind == "delta-refused"

    run(deployment, 1)
    publish(deployment)
    run(deployment, 2)
    alter = DeltaTable(tmp_path / "now").alter
    alter.add_constraint({"first": "value < 2"})
    refused(r"some do not meet a condition of the table \(first: value < 2\)")
    alter.drop_constraint("first")
    alter.set_table_properties({"delta.appendOnly": "true"})
    refused("it has the property delta.appendOnly")
    alter.set_table_properties({"delta.appendOnly": "false"})
    publish(deployment)
    assert sorted(delta_rows(tmp_path / "now")["value"].to_pylist()) == [2] * 6


def test_a_table_of_somebody_else(deployment: Deployment, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "feed", pa.table({"x": [1]}))
    run(deployment, 1)
    with pytest.raises(InvalidRequestError, match="a Delta table that is not table 'feed' in mode changes") as refusal:
        publish(deployment)
    assert refusal.value.kind == "foreign-target"
    assert DeltaTable(tmp_path / "feed").version() == 0


def test_other_columns_than_the_table_has(deployment: Deployment) -> None:
    run(deployment, 1)
    publish(deployment)
    run(deployment, 2)
    change_file(deployment, SALES + PUBLISH.replace("state: total}", "state: total, columns: [sold]}"))
    with pytest.raises(InvalidRequestError, match="the table has the columns") as refusal:
        publish(deployment)
    assert refusal.value.kind == "columns-changed"


def clock(events: pa.Table, _state: pa.Table) -> pa.Table:
    """Return a time of day per shop."""
    shops = events["shop"].unique()
    return pa.table({"shop": shops, "at": pa.array([0] * len(shops), pa.time32("ms"))})


def test_a_type_that_delta_does_not_have(deployment: Deployment, tmp_path: Path) -> None:
    function = "tests.integration.test_published_in_delta:clock"
    state = f"states:\n  opened: {{kind: value, fields: {{at: time}}, function: '{function}'}}"
    tables = "publish: {opened: {target: '{data}/opened', format: delta, mode: table, state: opened}}\n"
    change_file(deployment, SALES.replace("states:", state) + tables)
    run(deployment, 1)
    with pytest.raises(UnsupportedError, match="Invalid data type for Delta Lake: Time") as refusal:
        publish(deployment)
    assert refusal.value.kind == "delta-type"
    assert not (tmp_path / "opened").exists()


def test_a_killed_publisher(deployment: Deployment, tmp_path: Path) -> None:
    run(deployment, 1)
    publish(deployment)
    run(deployment, 2)
    saved = tmp_path / "saved"
    for table in ("feed", "now"):
        shutil.copytree(tmp_path / table, saved / table)
    with recorded() as reached:
        publish(deployment)
    after = tables(tmp_path)
    places = [place for place in reached if "delta" in place.point]
    assert len(places) == 4
    for place in places:
        for table in ("feed", "now"):
            shutil.rmtree(tmp_path / table)
            shutil.copytree(saved / table, tmp_path / table)
        assert run_in_a_child(published, deployment, place) == -9
        publish(deployment)
        assert tables(tmp_path) == after, place
        assert len(delta_rows(tmp_path / "feed")) == 6


def test_the_package_is_missing(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    run(deployment, 1)
    monkeypatch.setitem(extras.EXTRAS, "delta", ("deltalake_that_is_not_there",))
    with pytest.raises(NotFoundError, match=r"table feed is not published: .*not installed") as refusal:
        publish(deployment)
    assert 'pip install "statelib[delta]"' in refusal.value.hint
