"""``statelib mend``: what it plans, shows, refuses and registers."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession

from statelib.cli.answers import ANSWERS
from statelib.flows.checkpoint.steps import abort, begin
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from tests.integration.shop_cli import call, refused, said
from tests.integration.test_looking_changes_nothing import catalog_files, contents
from tests.support.worlds import day, new_deployment

PIPELINE = """\
name: NAME
schedule: {cron: "@daily", start: 2013-01-01}
source:
  path: "{data}/{start:%Y-%m-%d}.parquet"
  columns: {shop: string, amount: long, at: instant}
key: shop
states:
  total: {kind: value, fields: {n: {agg: count}, sum: {agg: sum, of: amount}}}
  most: {kind: value, value: {agg: max, of: amount}}
backend: rocksdb
parallelism: 2
publish:
  feed: {state: total, target: "{data}/NAME-feed", format: parquet, mode: changes}
checkpoint: {strategy: incremental, mendable: 3d}
"""
DAYS = [[("a", 1), ("b", 2)], [("a", 10), ("c", 20)], [("a", 100), ("b", 50)], [("d", 5)]]


def write_day(deployment: Deployment, number: int, rows: list[tuple[str, int]]) -> None:
    at = pl.datetime(2013, 1, number, 12, time_zone="UTC")
    events = pl.DataFrame(rows, schema={"shop": pl.String, "amount": pl.Int64}, orient="row").with_columns(at=at)
    events.write_parquet(Path(deployment.data) / f"2013-01-{number:02}.parquet")


def totals(deployment: Deployment, name: str) -> dict[str, tuple[int, int, int]]:
    """Return (number, sum, greatest amount) per shop."""
    record = head(deployment, name)
    total = deployment.open(record).to_arrow("total").to_pylist()
    most = {row["key"]: row["value"] for row in deployment.open(record).to_arrow("most").to_pylist()}
    return {row["key"]: (row["value"]["n"], row["value"]["sum"], most[row["key"]]) for row in total}


def head(deployment: Deployment, name: str) -> Any:
    catalog, pipeline = deployment.catalog(), PipelineName(name)
    number = catalog.head(pipeline).head
    assert number is not None
    return catalog.get(pipeline, number)


def of_feed(deployment: Deployment, name: str) -> dict[str, tuple[int, int]]:
    """Return the rows that folding the feed gives: number and sum per shop."""
    files = sorted(Path(f"{deployment.data}/{name}-feed").rglob("*.parquet"))
    feed = pl.concat([pl.read_parquet(file) for file in files], how="diagonal_relaxed")
    rows: dict[str, tuple[int, int]] = {}
    for change in feed.sort("commit").to_dicts():
        rows.pop(change["shop"], None) if change["change"] == "delete" else rows.update(
            {change["shop"]: (change["n"], change["sum"])}
        )
    return rows


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    deployment = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    (tmp_path / "pipelines" / "sales.yaml").write_text(PIPELINE.replace("NAME", "sales"))
    for number, rows in enumerate(DAYS, start=1):
        write_day(deployment, number, rows)
    said(deployment, "run", "sales", "--start", "2013-01-01", "--end", "2013-01-05")
    return deployment


def test_a_day_is_mended_and_the_next_run_continues(shop: Deployment) -> None:
    assert of_feed(shop, "sales") == {key: row[:2] for key, row in totals(shop, "sales").items()}
    write_day(shop, 2, [("a", 11), ("e", 7)])
    places = (Path(shop.storage_root), Path(shop.pipelines_directory))
    before = contents(*places), contents(*catalog_files(shop))
    command = ("mend", "sales", "--interval", "2013-01-02")
    answer = json.loads(said(shop, *command, "--dry-run", "--json"))
    assert set(answer) == set(ANSWERS["mend"].keys)
    assert (answer["plan"]["later"], answer["plan"]["checkpoint_id"], answer["checkpoint"]) == (2, 4, None)
    assert [{word: state[word] for word in ("name", "added", "removed", "changed")} for state in answer["states"]] == [
        {"name": "total", "added": 1, "removed": 1, "changed": 1},
        {"name": "most", "added": 1, "removed": 1, "changed": 0},
    ]
    assert {row["key"]: row["change"] for row in answer["states"][0]["sample"]} == {
        '"a"': "changed",
        '"c"': "removed",
        '"e"': "added",
    }
    assert "removed" in said(shop, *command, "--dry-run")
    assert (contents(*places), contents(*catalog_files(shop))) == before
    assert "not confirmed: nothing was changed" in call(shop, *command).stderr

    for number in (1, 3, 4):  # other days are not read
        (Path(shop.data) / f"2013-01-{number:02}.parquet").unlink()
    said(shop, *command, "--yes")
    mended = f"mends {command[-1]}"
    assert mended in said(shop, "checkpoints", "list", "--pipeline", "sales")
    assert mended in " ".join(said(shop, "checkpoints", "show", "sales/head").split())
    listed = json.loads(said(shop, "checkpoints", "list", "--pipeline", "sales", "--json"))
    mends = {row["checkpoint_id"]: row["mends"] for row in listed if row["mends"]}
    assert mends == {5: {"start_ms": day(2).start_ms, "end_ms": day(2).end_ms}}
    assert mended in said(shop, "history")
    (feed,) = json.loads(said(shop, "publish", "sales", "--dry-run", "--json"))["tables"]
    assert (feed["checkpoint_id"], feed["interval"], feed["mends"]) == (5, None, mends[5])
    record = head(shop, "sales")
    assert (record.checkpoint_id, record.base, record.mends) == (5, 4, day(2))
    expected = {"a": (3, 112, 100), "b": (2, 52, 50), "d": (1, 5, 5), "e": (1, 7, 7)}
    assert totals(shop, "sales") == expected
    assert of_feed(shop, "sales") == {key: row[:2] for key, row in expected.items()}

    write_day(shop, 5, [("e", 1)])
    said(shop, "run", "sales")
    assert totals(shop, "sales") == expected | {"e": (2, 8, 7)}
    repeated = call(shop, "run", "sales", "--end", "2013-01-06")
    assert (repeated.exit_code, "nothing to apply" in repeated.stderr) == (0, True)
    assert of_feed(shop, "sales") == {key: row[:2] for key, row in totals(shop, "sales").items()}
    assert json.loads(said(shop, "inspect", "sales@2013-01-05", "--json"))["checkpoint_id"] == 5


def test_days_that_cannot_be_mended_are_refused_with_the_replay(shop: Deployment) -> None:
    def refusal(*words: str) -> str:
        result = call(shop, "mend", "sales", *words)
        assert result.exit_code == 2
        return result.stderr

    too_old = refusal("--interval", "2013-01-01", "--yes")
    assert "keeps no delta of interval [2013-01-01" in too_old
    assert "replay: statelib restore sales with a savepoint from before" in too_old
    (Path(shop.pipelines_directory) / "new.yaml").write_text(PIPELINE.replace("NAME", "new"))
    assert "pipeline new has no state to mend" in refused(shop, "mend", "new", "-i", "2013-01-03")
    assert "no interval in the history of its state begins at 2013-02-01" in refusal("--interval", "2013-02-01")
    file = Path(shop.pipelines_directory) / "sales.yaml"
    file.write_text(PIPELINE.replace("NAME", "sales").replace(", mendable: 3d", ""))
    unset = refusal("--interval", "2013-01-03")
    assert "checkpoint.mendable is not set" in unset
    assert "replay: statelib restore sales 2, then statelib run sales --end 2013-01-05T00:00:00+00:00" in unset
    file.write_text(
        PIPELINE.replace("NAME", "sales").replace("of: amount}}}", "of: amount}, mean: {agg: avg, of: amount}}}")
    )
    assert "changed in the pipeline file" in refusal("--interval", "2013-01-03")
    file.write_text(PIPELINE.replace("NAME", "sales"))
    begun = begin(shop, shop.pipeline("sales"), day(5), "test", assume_ready=True)
    assert "checkpoint 5 of sales is under way" in refused(shop, "mend", "sales", "-i", "2013-01-03")
    abort(shop, "sales", CheckpointId(begun.checkpoint_id), "by the test")


def test_a_mended_checkpoint_survives_the_loss_of_the_catalog(shop: Deployment) -> None:
    write_day(shop, 3, [("b", 3)])
    said(shop, "mend", "sales", "--interval", "2013-01-03", "--yes")
    before = head(shop, "sales")
    for file in catalog_files(shop):
        file.unlink()
    said(shop, "catalog", "rebuild", "--yes")
    after = head(shop, "sales")
    assert (after.checkpoint_id, after.interval, after.mends) == (before.checkpoint_id, None, day(3))
    write_day(shop, 4, [("d", 6)])
    said(shop, "mend", "sales", "--interval", "2013-01-04", "--yes")
    assert totals(shop, "sales")["d"] == (1, 6, 6)


def test_intervals_before_a_change_of_a_state_are_refused_by_the_plan(shop: Deployment) -> None:
    file = Path(shop.pipelines_directory) / "sales.yaml"
    file.write_text(
        PIPELINE.replace("of: amount}}}", "of: amount}, mean: {agg: avg, of: amount}}}")
        .replace("state: total, target", "state: most, target")
        .replace("NAME-feed", "most-feed")
        .replace("NAME", "sales")
        .replace("3d", "30d")
    )
    write_day(shop, 5, [("e", 1)])
    said(shop, "run", "sales")
    answer = call(shop, "mend", "sales", "--interval", "2013-01-04", "--yes")
    assert answer.exit_code == 2
    assert "keeps no delta of interval [2013-01-04" in answer.stderr
    assert "it keeps those in [2013-01-05" in answer.stderr
    assert "up to a change of a state" in answer.stderr
    assert "replay: statelib restore sales 3, then statelib run sales" in answer.stderr
    assert len(shop.catalog().list(PipelineName("sales"))) == 5
    write_day(shop, 5, [("e", 2)])
    said(shop, "mend", "sales", "--interval", "2013-01-05", "--yes")
    assert totals(shop, "sales")["e"] == (1, 2, 2)


def test_a_fork_mends_the_intervals_whose_deltas_it_shares(shop: Deployment) -> None:
    file = Path(shop.pipelines_directory) / "other.yaml"
    file.write_text(PIPELINE.replace("NAME", "other"))
    assert "a fork of sales/4" in said(shop, "pipelines", "fork", "sales/head", "other")
    write_day(shop, 3, [("b", 3)])
    said(shop, "mend", "other", "--interval", "2013-01-03", "--yes")
    assert totals(shop, "other") == {"a": (2, 11, 10), "b": (2, 5, 3), "c": (1, 20, 20), "d": (1, 5, 5)}
    assert totals(shop, "sales")["a"] == (3, 111, 100)


def test_a_restore_names_the_corrections_that_it_undoes(shop: Deployment) -> None:
    write_day(shop, 2, [("a", 11)])
    said(shop, "mend", "sales", "--interval", "2013-01-02", "--yes")
    write_day(shop, 4, [("d", 6)])
    said(shop, "mend", "sales", "--interval", "2013-01-04", "--yes")
    again = "statelib mend sales --interval 2013-01-02T00:00:00+00:00"
    plan = said(shop, "restore", "sales", "3", "--dry-run")
    assert f"undoes       a correction that no replay repeats: {again}" in plan
    assert f"to correct again: {again}" in plan
    assert "2013-01-04T00:00:00+00:00" not in plan.replace("--from-date 2013-01-04", "").split("to correct again:")[1]
    assert f"to correct again: {again}" not in said(shop, "restore", "sales", "5", "--dry-run")
    assert json.loads(said(shop, "restore", "sales", "3", "--dry-run", "--json"))["plan"]["lost_corrections"] == [
        day(2).start_ms
    ]
    file = Path(shop.pipelines_directory) / "sales.yaml"
    file.write_text(PIPELINE.replace("NAME", "sales").replace(", mendable: 3d", ""))
    refusal = call(shop, "mend", "sales", "--interval", "2013-01-04").stderr
    assert "replay: statelib restore sales 1, then statelib run sales --end 2013-01-05" in refusal
