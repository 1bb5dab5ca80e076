"""Tables in the format Iceberg: readers, types, two publishers at once, other writers, maintenance, a killed publisher,
a catalog or a package that is missing."""

import os
import shutil
from collections.abc import Mapping
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog, SqlCatalogBaseTable
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles

from statelib import extras
from statelib.errors import InvalidRequestError, NotFoundError, UnsupportedError
from statelib.flows.publication.steps import publish_tables, standings
from statelib.flows.wiring import Deployment
from statelib.publication.parquet import range_files
from statelib.testing.crash_points import Place, ends_at, kill, recorded
from tests.faults.crash_child import run as run_in_a_child
from tests.integration.shop import SALES, sales
from tests.integration.test_published_in_delta import WINDOWED
from tests.support.published import (
    by_identity,
    errors_together,
    folded,
    iceberg_environment,
    iceberg_rows,
    iceberg_table,
)
from tests.support.worlds import checkpoint_of, day, new_deployment

PUBLISH = """\
publish:
  feed: {target: lake.shop.feed, format: iceberg, mode: changes, state: total}
  now: {target: lake.shop.now, format: iceberg, mode: table, state: per_item}
"""
Rows = dict[tuple[Any, ...], dict[str, Any]]
ICEBERG_WINDOWED = WINDOWED.replace("format: delta", "format: iceberg").replace("{data}/", "lake.shop.")


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    for name, value in iceberg_environment(tmp_path).items():
        monkeypatch.setenv(name, value)
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


def published(deployment: Deployment, environment: Mapping[str, str], place: Place) -> None:
    os.environ |= environment
    with ends_at(place, kill):
        publish(deployment)


def tables() -> tuple[Rows, Rows]:
    """Return the rows of the folded feed and of the table."""
    return folded(iceberg_rows("shop.feed"), ["shop"]), by_identity(iceberg_rows("shop.now"), ["shop", "user_key"])


def test_independent_readers_agree(deployment: Deployment) -> None:
    for number in (1, 2, 3):
        run(deployment, number)
        publish(deployment)
    assert len(tables()[1]) == 6
    with iceberg_table("shop.feed") as feed, iceberg_table("shop.now") as now:
        newest = pl.scan_iceberg(feed, reader_override="native").sort("commit").group_by("shop").last().collect()
        assert newest["sold"].to_list() == [6, 6, 6]
        paths = now.inspect.data_files()["file_path"].to_pylist()
        assert sum(sum(pq.read_table(path)["value"].to_pylist()) for path in paths) == 18
        checkpoints = [snapshot.summary["statelib.checkpoint"] for snapshot in feed.snapshots()]
    assert checkpoints == ["1", "2", "3"]
    assert [(s.commit, s.checkpoint_id, s.behind) for s in standings(deployment, deployment.pipeline("sales"))] == [
        (3, 3, 0), (3, 3, 0),
    ]  # fmt: skip


def test_windows_lists_decimals_and_times(deployment: Deployment) -> None:
    text = ICEBERG_WINDOWED.replace("amount: long", "amount: 'decimal(9,2)'")
    change_file(deployment, text)
    for number in (1, 2):
        at = pa.array([day(number).start_ms + 23 * 3_600_000] * 6, pa.timestamp("ms", "UTC"))
        events = sales(0).append_column("at", at.cast(pa.timestamp("ns", "UTC")))
        events = events.append_column("bytes", pa.array([b"x"] * 6))
        amounts = events["amount"].cast(pa.decimal128(21, 2)).cast(pa.decimal128(9, 2))
        events = events.set_column(events.column_names.index("amount"), "amount", amounts)
        checkpoint_of(deployment, "sales", number, events)
        publish(deployment)
    identity = ["shop", "item", "window_start", "window_end"]
    rows = by_identity(iceberg_rows("shop.now"), identity)
    assert len(rows) == 6
    assert {str(row["window_start"])[:13] for row in rows.values()} == {"2013-01-02 23"}
    assert [(type(row["mean"]), row["all"]) for row in rows.values()] == [(Decimal, [b"x"])] * 6
    assert folded(iceberg_rows("shop.feed"), identity) == rows


def test_nanoseconds_are_refused_and_leave_no_file(deployment: Deployment, tmp_path: Path) -> None:
    change_file(deployment, ICEBERG_WINDOWED)
    at = pa.array([(day(1).end_ms - 1) * 1_000_000 + 1] * 6, pa.timestamp("ns", "UTC"))
    events = sales(0).append_column("at", at).append_column("bytes", pa.array([b"x"] * 6))
    checkpoint_of(deployment, "sales", 1, events)
    with pytest.raises(UnsupportedError, match="would lose data") as refusal:
        publish_tables(deployment, deployment.pipeline("sales"), ("now",))
    assert refusal.value.kind == "iceberg-type"
    assert list(tmp_path.glob("lake/**/*.parquet")) == []


def test_files_without_a_change_stay(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_files, "FILE_BYTES", 1)
    run(deployment, 1)
    publish(deployment)
    checkpoint_of(deployment, "sales", 2, sales(0).slice(0, 1))
    publish(deployment)
    with iceberg_table("shop.now") as now:
        summary = now.current_snapshot().summary
    assert {name: summary[f"{name}-data-files"] for name in ("added", "deleted", "total")} == {
        "added": "1", "deleted": "1", "total": "3",
    }  # fmt: skip
    assert len(tables()[1]) == 6


def test_two_publishers_at_once(deployment: Deployment, tmp_path: Path) -> None:
    run(deployment, 1)
    publish(deployment)
    for number in (2, 3, 4):
        run(deployment, number)
    assert errors_together(3, partial(publish, deployment)) == []
    feed = iceberg_rows("shop.feed")
    assert len(feed) == 12, "no row twice"
    assert {(row["commit"], row["checkpoint_id"]) for row in feed.to_pylist()} == {(n, n) for n in (1, 2, 3, 4)}
    with iceberg_table("shop.feed") as table:
        assert len(table.snapshots()) == 4
    assert len(list((tmp_path / "lake" / "shop" / "feed" / "data").iterdir())) == 4, "no file is left over"


def test_two_publishers_begin_a_table_at_once(deployment: Deployment) -> None:
    run(deployment, 1)
    assert errors_together(3, partial(publish, deployment)) == []
    assert len(iceberg_rows("shop.feed")) == 3


def test_tables_and_a_namespace_that_another_publisher_creates_meanwhile_are_used(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(deployment, 1)
    create_tables, namespace_exists = SqlCatalog.create_tables, SqlCatalog.namespace_exists
    late: list[str] = []

    def each_table_appears_after_the_check(catalog: SqlCatalog) -> None:
        for table in SqlCatalogBaseTable.metadata.sorted_tables:
            if table.name not in late:
                late.append(table.name)
                table.create(catalog.engine)
                table.create(catalog.engine)
        create_tables(catalog)

    def namespace_appears_after_the_check(catalog: SqlCatalog, name: str) -> bool:
        if "namespace" in late:
            return namespace_exists(catalog, name)
        late.append("namespace")
        catalog.create_namespace(name)
        return False

    monkeypatch.setattr(SqlCatalog, "create_tables", each_table_appears_after_the_check)
    monkeypatch.setattr(SqlCatalog, "namespace_exists", namespace_appears_after_the_check)
    publish(deployment)
    assert sorted(late) == ["iceberg_namespace_properties", "iceberg_tables", "namespace"]
    assert len(iceberg_rows("shop.feed")) == 3


def appended(table: Table) -> None:
    table.append(table.scan().to_arrow().slice(0, 1))


def deleted(table: Table) -> None:
    table.delete("shop = 'shop-1'")


def rolled_back(table: Table) -> None:
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()


@pytest.mark.parametrize("write", [appended, deleted, rolled_back])
@pytest.mark.parametrize("name", ["feed", "now"])
def test_a_table_that_something_else_wrote_to(deployment: Deployment, write, name: str) -> None:
    for number in (1, 2):
        run(deployment, number)
        publish(deployment)
    with iceberg_table(f"shop.{name}") as table:
        write(table)
        before = table.current_snapshot()
    run(deployment, 3)
    with pytest.raises(InvalidRequestError, match=r"was written by something else|set back") as refusal:
        publish(deployment)
    assert refusal.value.kind == "foreign-target"
    with iceberg_table(f"shop.{name}") as table:
        assert table.current_snapshot() == before
        assert {s.table: bool(s.error) for s in standings(deployment, deployment.pipeline("sales"))}[name]
        table.catalog.rename_table(f"shop.{name}", "shop.moved")
    publish(deployment)
    assert len(iceberg_rows(f"shop.{name}")) == {"feed": 3, "now": 6}[name]


class Compaction(_OverwriteFiles):
    """A snapshot as that of Spark's rewrite_data_files, which pyiceberg reads and does not write."""

    def _summary(self, snapshot_properties: Mapping[str, str] = {}) -> Summary:
        return Summary(Operation.REPLACE, **super()._summary(snapshot_properties).additional_properties)


def compacted(table: Table) -> None:
    """Replace all files of a table by one."""
    rows = table.scan().to_arrow()
    with table.transaction() as transaction:
        snapshot = Compaction(Operation.OVERWRITE, transaction, table.io)
        path = f"{table.location()}/data/compacted-{table.current_snapshot().snapshot_id}.parquet"
        with table.io.new_output(path).create() as stored:
            pq.write_table(rows.cast(table.schema().as_arrow()), stored)
        with snapshot:
            for task in table.scan().plan_files():
                snapshot.delete_data_file(task.file)
            snapshot.append_data_file(parquet_file_to_data_file(table.io, table.metadata, path))


def test_maintenance_is_no_foreign_writer(deployment: Deployment) -> None:
    for number in (1, 2):
        run(deployment, number)
        publish(deployment)
    for name in ("feed", "now"):
        with iceberg_table(f"shop.{name}") as table:
            compacted(table)
            older = [snapshot.snapshot_id for snapshot in table.snapshots()[:-1]]
            table.maintenance.expire_snapshots().by_ids(older).commit()
    assert all((s.commit, s.error) == (2, "") for s in standings(deployment, deployment.pipeline("sales")))
    run(deployment, 3)
    publish(deployment)
    feed, now = tables()
    assert [row["sold"] for row in feed.values()] == [6, 6, 6]
    assert sum(row["value"] for row in now.values()) == 18


def test_a_table_of_somebody_else(deployment: Deployment) -> None:
    run(deployment, 1)
    publish_tables(deployment, deployment.pipeline("sales"), ("now",))
    with iceberg_table("shop.now") as table:
        table.catalog.create_table("shop.feed", pa.schema([("x", pa.int64())]))
    with pytest.raises(InvalidRequestError, match="an Iceberg table that is not table 'feed'") as refusal:
        publish(deployment)
    assert refusal.value.kind == "foreign-target"
    assert len(iceberg_rows("shop.feed")) == 0


def test_other_columns_than_the_table_has(deployment: Deployment) -> None:
    run(deployment, 1)
    publish(deployment)
    run(deployment, 2)
    change_file(deployment, SALES + PUBLISH.replace("state: total}", "state: total, columns: [sold]}"))
    with pytest.raises(InvalidRequestError, match="the table has the columns") as refusal:
        publish(deployment)
    assert refusal.value.kind == "columns-changed"


def test_a_killed_publisher(deployment: Deployment, tmp_path: Path) -> None:
    run(deployment, 1)
    publish(deployment)
    run(deployment, 2)
    saved = tmp_path / "saved"
    shutil.copytree(tmp_path / "lake", saved)
    shutil.copy(tmp_path / "lake.db", tmp_path / "saved.db")
    before = tables()
    with recorded() as reached:
        publish(deployment)
    after = tables()
    places = [place for place in reached if "iceberg" in place.point]
    assert len(places) == 6
    for place in places:
        shutil.rmtree(tmp_path / "lake")
        shutil.copytree(saved, tmp_path / "lake")
        shutil.copy(tmp_path / "saved.db", tmp_path / "lake.db")
        assert run_in_a_child(published, deployment, iceberg_environment(tmp_path), place) == -9
        for now, expected in zip(tables(), zip(before, after, strict=True), strict=True):
            assert now in expected, place
        publish(deployment)
        assert tables() == after, place
        assert len(iceberg_rows("shop.feed")) == 6


def test_a_catalog_that_is_not_configured(deployment: Deployment) -> None:
    run(deployment, 1)
    change_file(deployment, SALES + PUBLISH.replace("lake.", "sea."))
    with pytest.raises(InvalidRequestError, match="no Iceberg catalog 'sea' is configured") as refusal:
        publish_tables(deployment, deployment.pipeline("sales"), ("feed",))
    assert "PYICEBERG_CATALOG__SEA__URI" in refusal.value.hint
    assert standings(deployment, deployment.pipeline("sales"))[0].error


def test_the_package_is_missing(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    run(deployment, 1)
    monkeypatch.setitem(extras.EXTRAS, "iceberg", ("pyiceberg_that_is_not_there",))
    with pytest.raises(NotFoundError, match=r"table feed is not published: .*not installed") as refusal:
        publish(deployment)
    assert 'pip install "statelib[iceberg]"' in refusal.value.hint
