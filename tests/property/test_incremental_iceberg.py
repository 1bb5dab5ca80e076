"""Random histories of Iceberg tables: what runs read, added up, is the table as of the last run, from whichever
checkpoint a run continues."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, UUIDType
from pyiceberg.utils.config import Config

from statelib.definition.pipeline import Pipeline, load_pipeline
from statelib.errors import ConflictError, StatelibError
from statelib.model.checkpoint import NOTHING_APPLIED, DataInterval, SourcePosition
from statelib.spark.dataframe.arrow_types import spark_schema
from statelib.spark.events.tables.iceberg_log import IcebergLog
from statelib.spark.events.tables.incremental import table_reads
from tests.support.extent import examples
from tests.support.incremental_reads import Rows, applied
from tests.support.published import iceberg_environment

FILE = """\
name: orders
source:
  format: iceberg
  table: lake.shop.orders
  incremental: true
  on_missing: empty
  changes: _change_type
  columns: {shop: string, amount: long}
key: shop
states:
  total: {kind: value, value: {agg: sum, of: amount}}
backend: heap
"""
STEPS = st.one_of(
    st.tuples(
        st.just("append"), st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc")), min_size=1, max_size=4)
    ),
    st.tuples(st.just("delete"), st.integers(0, 3)),
    st.tuples(st.just("overwrite"), st.integers(0, 3)),
    st.tuples(st.just("run"), st.integers(0, 2)),
    st.tuples(st.just("restore"), st.integers(0, 5)),
)


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    with made_catalog(tmp_path, monkeypatch) as made:
        yield made


def made_catalog(root: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    for name, value in iceberg_environment(root).items():
        monkeypatch.setenv(name, value)
    made = load_catalog("lake", **(Config().get_catalog_config("lake") or {}))
    made.create_namespace("shop")
    return made


def pipeline_in(root: Path) -> Pipeline:
    (root / "orders.yaml").write_text(FILE)
    return load_pipeline(root / "orders.yaml")


def rows(pairs: list[tuple[int, str]]) -> pa.Table:
    amounts, shops = [amount for amount, _ in pairs], [shop for _, shop in pairs]
    return pa.table({"amount": pa.array(amounts, pa.int64()), "shop": pa.array(shops, pa.string())})


def commit(catalog: Catalog, kind: str, argument: Any) -> None:
    time.sleep(0.002)  # two snapshots have different times
    table = catalog.create_table_if_not_exists("shop.orders", rows([]).schema)
    if kind == "append":
        table.append(rows(argument))
    elif table.current_snapshot() is None:
        table.append(rows([(argument, "a")]))
    elif kind == "delete":
        table.delete(f"amount = {argument}")
    else:
        table.overwrite(rows([(argument, "z"), (argument + 1, "z")]), overwrite_filter=f"amount = {argument}")


def content(table: Table, snapshot: int) -> Rows:
    stored = table.scan(snapshot_id=snapshot).to_arrow()
    return Counter(zip(stored["amount"].to_pylist(), stored["shop"].to_pylist(), strict=True))


@pytest.mark.slow
@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, min_size=3, max_size=9), tasks=st.integers(1, 3))
def test_reads_of_iceberg_add_up_to_the_table(steps: list[tuple[str, Any]], tasks: int) -> None:
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as monkeypatch:
        root = Path(directory)
        with made_catalog(root, monkeypatch) as catalog:
            states: list[tuple[SourcePosition, Rows]] = [(NOTHING_APPLIED, Counter())]
            head = 0
            for kind, argument in steps:
                if kind == "restore":
                    head = argument % len(states)
                elif kind == "run":
                    states.append(run(catalog, pipeline_in(root), states[head], argument, tasks))
                    head = len(states) - 1
                else:
                    commit(catalog, kind, argument)


def run(
    catalog: Catalog, pipeline: Pipeline, before: tuple[SourcePosition, Rows], later: int, tasks: int
) -> tuple[SourcePosition, Rows]:
    """Apply an interval that ends before the last ``later`` commits; compare the rows with the table."""
    position, rows_before = before
    snapshots: list[Any] = []
    try:
        table = catalog.load_table("shop.orders")
        snapshots = sorted(table.snapshots(), key=lambda snapshot: snapshot.timestamp_ms)
    except NoSuchTableError:
        pass
    end_ms = snapshots[-later].timestamp_ms if later and len(snapshots) >= later else time.time_ns() // 1_000_000 + 1
    end_ms = max(end_ms, position.interval.end_ms if position.interval else 0)
    interval = DataInterval(min(end_ms - 1, position.interval.end_ms if position.interval else 0), end_ms)
    reads = table_reads(pipeline, "/data", interval, position, "token")
    read = reads.of["source"]
    after = applied(rows_before, read, tasks)
    if read is not None:
        assert after == content(table, read.upto)
        assert read.upto == [each.snapshot_id for each in snapshots if each.timestamp_ms < end_ms][-1]
    return SourcePosition(interval, end_ms - 1, reads.versions(position)), after


def test_a_table_that_was_rolled_back_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    for number in (1, 2):
        commit(catalog, "append", [(number, "a")])
    pipeline = pipeline_in(tmp_path)
    first = table_reads(pipeline, "/data", DataInterval(0, 2**45), NOTHING_APPLIED, "token")
    position = SourcePosition(DataInterval(0, 2**45), 0, first.versions(NOTHING_APPLIED))
    table = catalog.load_table("shop.orders")
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()
    commit(catalog, "append", [(3, "a")])
    with pytest.raises(ConflictError, match="the present one does not follow from it") as refusal:
        table_reads(pipeline, "/data", DataInterval(2**45, 2**46), position, "token")
    assert refusal.value.kind == "source-history-gone"


def test_expired_snapshots_are_refused(catalog: Catalog, tmp_path: Path) -> None:
    for number in range(4):
        commit(catalog, "append", [(number, "a")])
    table = catalog.load_table("shop.orders")
    first, second, third, _ = table.snapshots()
    pipeline, moment = pipeline_in(tmp_path), second.timestamp_ms
    reads = table_reads(pipeline, "/data", DataInterval(0, moment), NOTHING_APPLIED, "token")
    position = SourcePosition(DataInterval(0, moment), 0, reads.versions(NOTHING_APPLIED))
    for snapshot in (first, second):
        table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    with pytest.raises(ConflictError, match="does not follow"):
        table_reads(pipeline, "/data", DataInterval(moment, 2**45), position, "token")
    name_parent(table.refresh(), third.snapshot_id, second.snapshot_id)
    with pytest.raises(ConflictError, match="has expired"):
        table_reads(pipeline, "/data", DataInterval(0, third.timestamp_ms), NOTHING_APPLIED, "token")


def name_parent(table: Table, snapshot: int, parent: int) -> None:
    """Let a snapshot name a parent that has expired, as the snapshots of other writers than pyiceberg do."""
    path = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    for each in metadata["snapshots"]:
        if each["snapshot-id"] == snapshot:
            each["parent-snapshot-id"] = parent
    path.write_text(json.dumps(metadata))


def test_a_catalog_that_is_not_configured_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in iceberg_environment(tmp_path):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(StatelibError, match="no Iceberg catalog 'lake' is configured"):
        table_reads(pipeline_in(tmp_path), "/data", DataInterval(0, 1), NOTHING_APPLIED, "token")


@pytest.mark.parametrize("format_version", ["1", "2"])
def test_later_commits_have_greater_versions(catalog: Catalog, format_version: str) -> None:
    """The ids of snapshots are random. In format version 1, snapshots have no sequence number."""
    properties = {"format-version": format_version}
    table = catalog.create_table("shop.orders", rows([]).schema, properties=properties)
    for number in range(6):
        table.append(rows([(number, "a")]))
        if number == 3:
            with table.transaction() as change:
                change.upgrade_table_version(2)
    read = IcebergLog("lake.shop.orders")
    (whole,) = {row for batch in read.rows(0, 1) for row in batch["_commit_version"].to_pylist()}
    versions = [
        row["_commit_version"]
        for batch in read.changes(read.commits(None, 2**45))
        for row in sorted(batch.to_pylist(), key=lambda row: row["amount"])
    ]
    assert versions == sorted(set(versions))
    assert (len(versions), whole) == (6, versions[-1])


def test_uuids_are_read_as_texts(catalog: Catalog) -> None:
    ids = [UUID(int=2**127 + 5), None, UUID(int=7)]
    table = catalog.create_table(
        "shop.carts", Schema(NestedField(1, "id", UUIDType()), NestedField(2, "n", LongType()))
    )
    stored = pa.array([each and each.bytes for each in ids], pa.binary(16))
    table.append(pa.table({"id": stored, "n": pa.array([1, 2, 3], pa.int64())}))
    read = IcebergLog("lake.shop.carts")
    assert spark_schema(read.columns())["id"].dataType.simpleString() == "string"
    (batch,) = read.rows(0, 1)
    assert batch["id"].to_pylist() == [each and str(each) for each in ids]
