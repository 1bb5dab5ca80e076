"""Incremental sources with Spark and the command line: each commit is applied once; what is refused; what is stored."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config
from pyspark.sql import SparkSession

from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import TableVersion
from tests.integration.shop import environment
from tests.integration.shop_cli import call, refused, said
from tests.support.delta_histories import append, commit_at, content
from tests.support.extent import large
from tests.support.published import iceberg_environment
from tests.support.worlds import new_deployment

DAY, FIRST = 86_400_000, 1_767_225_600_000
"""The milliseconds of a day; 2026-01-01."""
COLUMNS = {"shop": "string", "amount": "long"}


@pytest.fixture
def deployment(tmp_path: Path, spark: SparkSession) -> Deployment:
    for name in ("pipelines", "data"):
        (tmp_path / name).mkdir()
    made = new_deployment(tmp_path, tmp_path / "data", tmp_path / "pipelines")
    write_pipeline(made)
    return made


def write_pipeline(deployment: Deployment, **more: Any) -> None:
    source = {"format": "delta", "path": "{data}/orders", "incremental": True, "columns": COLUMNS, **more}
    total = {"kind": "value", "fields": {"n": {"agg": "count"}, "sum": {"agg": "sum", "of": "amount"}}}
    content = {
        "name": "orders", "schedule": {"cron": "@daily", "start": "2026-01-01T00:00:00"}, "source": source,
        "key": "shop", "states": {"total": total},
        "backend": "heap", "parallelism": 2,
    }  # fmt: skip
    (Path(deployment.pipelines_directory) / "orders.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


def table(deployment: Deployment) -> Path:
    return Path(deployment.data) / "orders"


def order(deployment: Deployment, day: int, **amounts: int) -> int:
    """Commit orders at noon of a day."""
    rows: dict[str, list[Any]] = {"shop": list(amounts), "amount": list(amounts.values())}
    return append(table(deployment), rows, FIRST + (day - 1) * DAY + DAY // 2, feed=True)


def run(deployment: Deployment, *more: str) -> int:
    """Run the next interval, and return the number of events that it read."""
    (done,) = json.loads(said(deployment, "run", "orders", "--json", *more))["checkpoints"]
    read: int = done["events"]["read"]
    return read


def totals(deployment: Deployment, snapshot: str = "orders/head") -> dict[str, tuple[int, int]]:
    rows = resolve(deployment, snapshot).to_arrow("total").to_pylist()
    return {row["key"]: (row["value"]["n"], row["value"]["sum"]) for row in rows}


def versions(deployment: Deployment, snapshot: str = "orders/head") -> tuple[TableVersion, ...]:
    position = resolve(deployment, snapshot).position()
    return position.versions if position else ()


def test_each_commit_is_applied_once_whenever_it_arrives(deployment: Deployment) -> None:
    order(deployment, 1, a=1, b=2)
    order(deployment, 1, a=3)
    order(deployment, 2, a=10)
    assert run(deployment) == 3, "the first run reads the whole table as of the end of its interval"
    assert totals(deployment) == {"a": (2, 4), "b": (1, 2)}
    order(deployment, 1, b=20)
    assert run(deployment) == 2, "a commit that arrives late is read by the next run"
    assert totals(deployment) == {"a": (3, 14), "b": (2, 22)}
    DeltaTable(str(table(deployment))).optimize.compact()
    assert run(deployment) == 0, "rows that were only rewritten are no events"
    (stored,) = versions(deployment)
    assert (stored.source, stored.table) == ("source", str(DeltaTable(str(table(deployment))).metadata().id))


def test_a_source_of_another_name_continues_with_the_version_of_its_table(deployment: Deployment) -> None:
    order(deployment, 1, a=1)
    assert run(deployment) == 1
    order(deployment, 1, b=20)
    file = Path(deployment.pipelines_directory) / "orders.yaml"
    content = yaml.safe_load(file.read_text())
    content["sources"] = {"orders": content.pop("source")}
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    order(deployment, 2, a=2)
    assert run(deployment) == 2, "the late commit, too"
    assert [version.source for version in versions(deployment)] == ["sources.orders"]


def test_runs_continue_from_the_version_of_a_restored_checkpoint(deployment: Deployment) -> None:
    for day in (1, 2, 3):
        order(deployment, day, a=day)
        run(deployment)
    assert totals(deployment) == {"a": (3, 6)}
    said(deployment, "restore", "orders", "1", "--yes")
    order(deployment, 2, a=100)
    assert run(deployment) == 1, "the second day; the commit behind the third day's belongs to a later run"
    assert totals(deployment) == {"a": (2, 3)}
    assert run(deployment) == 2
    assert totals(deployment) == {"a": (4, 106)}


def test_a_savepoint_has_the_version_too(deployment: Deployment, tmp_path: Path) -> None:
    order(deployment, 1, a=1)
    run(deployment)
    said(deployment, "savepoint", "create", "orders")
    order(deployment, 2, a=2)
    run(deployment)
    assert versions(deployment, "orders/2") == versions(deployment, "orders/1")
    said(deployment, "restore", "orders", "2", "--yes")
    assert run(deployment) == 1
    assert totals(deployment) == {"a": (2, 3)}
    states = json.loads(said(deployment, "inspect", "orders/head", "--json"))
    assert "statelib.table-versions" in json.dumps(states)


@pytest.mark.parametrize("feed", [True, False])
def test_updates_and_deletes_are_taken_back(deployment: Deployment, feed: bool) -> None:
    write_pipeline(deployment, changes="_change_type")
    rows: dict[str, list[Any]] = {"shop": ["a", "a", "b", "c"], "amount": [1, 2, 3, 4]}
    append(table(deployment), rows, FIRST + 1, feed=feed)
    run(deployment)
    delta = DeltaTable(str(table(deployment)))
    delta.update(updates={"amount": "amount + 10"}, predicate="shop = 'a'")
    commit_at(table(deployment), FIRST + DAY + 1)
    delta.delete("shop = 'c'")
    commit_at(table(deployment), FIRST + DAY + 2)
    run(deployment)
    assert totals(deployment) == {"a": (2, 23), "b": (1, 3)}
    assert content(table(deployment)) == {(11, "a"): 1, (12, "a"): 1, (3, "b"): 1}


def test_a_deleted_row_is_refused_unless_the_file_has_a_rule_for_it(deployment: Deployment) -> None:
    order(deployment, 1, a=1, b=2)
    run(deployment)
    DeltaTable(str(table(deployment))).delete("shop = 'b'")
    commit_at(table(deployment), FIRST + DAY)
    answer = call(deployment, "run", "orders", "--json")
    assert json.loads(answer.stdout)["error"] == "source-not-append-only"
    assert "version 1 has a row with the change 'delete'" in refused(deployment, "run", "orders")
    write_pipeline(deployment, delete_when="_change_type = 'delete'", columns=COLUMNS | {"_commit_version": "long"})
    pipeline = Path(deployment.pipelines_directory) / "orders.yaml"
    pipeline.write_text(pipeline.read_text() + "order_by: _commit_version\n")
    assert run(deployment) == 1
    assert totals(deployment) == {"a": (1, 1)}


def test_rows_that_a_delete_has_written_again_stay_if_deletes_come_first(deployment: Deployment) -> None:
    added = {"expr": "CAST(_change_type <> 'delete' AS int)", "type": "int"}
    columns = COLUMNS | {"_commit_version": "long", "added": added}
    write_pipeline(deployment, delete_when="_change_type = 'delete'", columns=columns)
    pipeline = Path(deployment.pipelines_directory) / "orders.yaml"
    text = pipeline.read_text()
    pipeline.write_text(text + "order_by: _commit_version\n")
    append(table(deployment), {"shop": ["a", "b"], "amount": [1, 2]}, FIRST, feed=False)
    assert run(deployment) == 2
    DeltaTable(str(table(deployment))).delete("shop = 'b'")
    commit_at(table(deployment), FIRST + DAY)
    answer = json.loads(call(deployment, "run", "orders", "--json").stdout)
    assert (answer["error"], "the opposite if they come first" in answer["hint"]) == ("delete-order", True)
    pipeline.write_text(text + "order_by: [_commit_version, added]\n")
    assert run(deployment) == 3, "both deletes, and the row that was written again"
    assert totals(deployment) == {"a": (1, 1)}


def test_another_table_at_the_same_place_is_refused(deployment: Deployment) -> None:
    order(deployment, 1, a=1)
    run(deployment)
    table(deployment).rename(table(deployment).with_name("old"))
    assert "there is no Delta table" in refused(deployment, "run", "orders")
    order(deployment, 2, a=1)
    assert "was replaced" in refused(deployment, "run", "orders")


def test_commits_that_are_gone_from_the_log_are_refused(deployment: Deployment) -> None:
    order(deployment, 1, a=1)
    run(deployment)
    for day in (2, 2, 2):
        order(deployment, day, a=1)
    delta = DeltaTable(str(table(deployment)))
    delta.create_checkpoint()
    for version in (0, 1, 2):
        (table(deployment) / "_delta_log" / f"{version:020}.json").unlink()
    assert "commits since the last applied one cannot be read" in refused(deployment, "run", "orders")
    assert totals(deployment) == {"a": (1, 1)}


def test_a_table_may_come_later(deployment: Deployment) -> None:
    write_pipeline(deployment, on_missing="empty")
    assert run(deployment) == 0
    assert versions(deployment) == (TableVersion.none("source"),)
    order(deployment, 1, a=7)
    order(deployment, 2, a=5)
    assert run(deployment) == 2, "the first commits of a table may arrive late, too"
    assert totals(deployment) == {"a": (2, 12)}


def test_a_pipeline_of_dated_directories_continues_with_the_commits_of_a_table(deployment: Deployment) -> None:
    source = {"format": "json", "path": "{data}/{start:%Y-%m-%d}.json", "incremental": False}
    write_pipeline(deployment, **source)
    (Path(deployment.data) / "2026-01-01.json").write_text('{"shop": "a", "amount": 1}\n')
    assert run(deployment) == 1
    order(deployment, 1, a=1)
    order(deployment, 2, a=50)
    write_pipeline(deployment)
    assert run(deployment) == 1, "commits before the interval are those that the directories had"
    assert totals(deployment) == {"a": (2, 51)}


@pytest.mark.parametrize("feed", [True, False])
def test_partitions_and_new_columns_are_read(deployment: Deployment, feed: bool) -> None:
    rows: dict[str, list[Any]] = {"shop": ["a", "b"], "amount": [1, 2]}
    append(table(deployment), rows, FIRST + 1, partition="shop", feed=feed)
    assert run(deployment) == 2
    more = {"shop": ["a"], "amount": [5], "note": ["x"]}
    write_deltalake(str(table(deployment)), pa.table(more), mode="append", schema_mode="merge")
    commit_at(table(deployment), FIRST + DAY + 1)
    if not feed:
        assert "while it had no change data feed" in refused(deployment, "run", "orders")
        return
    assert run(deployment) == 1
    assert totals(deployment) == {"a": (2, 6), "b": (1, 2)}


def test_a_deep_validation_reads_the_commits(deployment: Deployment) -> None:
    order(deployment, 1, a=1, b=2)
    (tried,) = json.loads(said(deployment, "pipelines", "validate", "--deep", "--json"))["tried"]
    assert tried["events"] == 2


@large("make test has a recipe of the cookbook that does the same")
@pytest.mark.timeout(600)
def test_a_run_reads_the_new_snapshots_of_an_iceberg_table(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pipeline(deployment, format="iceberg", path=None, table="lake.shop.orders", changes="_change_type")
    path = Path(deployment.pipelines_directory) / "orders.yaml"
    path.write_text(path.read_text().replace("  path: null\n", "").replace("2026-01-01T00:00:00", FROM))
    variables = iceberg_environment(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with load_catalog("lake", **(Config().get_catalog_config("lake") or {})) as catalog:
        catalog.create_namespace("shop")
        lake = catalog.create_table("shop.orders", pa.schema([("shop", pa.string()), ("amount", pa.int64())]))
        for amount in (1, 2):
            lake.append(pa.table({"shop": ["a", "b"], "amount": [amount, 10]}))
        assert run_in_a_process(deployment, variables) == 4
        lake.delete("amount = 2")
        assert run_in_a_process(deployment, variables) == 3, "the row of its file that remains is written again"
    assert totals(deployment) == {"a": (1, 1), "b": (2, 20)}


FROM = "2100-01-01T00:00:00"
"""The start of a schedule whose intervals end after all snapshots that a test makes."""


def run_in_a_process(deployment: Deployment, variables: dict[str, str]) -> int:
    """Run the next interval in a process whose workers have the variables, and return the number of its events."""
    command = [sys.executable, "-m", "statelib", "run", "orders", "--json"]
    env = os.environ | environment(deployment) | variables
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    read: int = json.loads(done.stdout)["checkpoints"][0]["events"]["read"]
    return read


def test_after_a_seed_the_commits_since_its_end_are_read(deployment: Deployment) -> None:
    order(deployment, 1, a=1, b=2)
    order(deployment, 2, a=10)
    pq.write_table(pa.table({"shop": ["a", "b"], "n": [1, 1], "sum": [1, 2]}), Path(deployment.data) / "totals.parquet")
    place = f"{deployment.data}/totals.parquet"
    said(deployment, "pipelines", "seed", "orders", "--from", place, "--until", "2026-01-02", "--yes")
    order(deployment, 3, c=100)
    said(deployment, "run", "orders", "--end", "2026-01-04")
    assert totals(deployment) == {"a": (2, 11), "b": (1, 2), "c": (1, 100)}
