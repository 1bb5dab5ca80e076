"""Published tables: the command, targets to which something else wrote, two publishers at once, windows, lists and
changed pipeline files."""

import dataclasses
import json
from functools import partial
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from statelib.errors import CorruptStateError, InvalidRequestError, NotFoundError, UnsupportedError
from statelib.flows.publication.steps import publish_tables, standings
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.model.record import ClaimMode
from statelib.publication.parquet import range_files
from tests.integration.shop import SALES, sales
from tests.integration.shop_cli import call, refused, said
from tests.support.published import errors_together, feed_rows, folded, table_rows
from tests.support.worlds import checkpoint_of, day, new_deployment

PUBLISH = """\
publish:
  feed: {target: "{data}/feed", mode: changes, state: total}
  now: {target: "{data}/now", mode: table, state: total, columns: {revenue: amount}}
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


def behind(deployment: Deployment) -> dict[str, int]:
    return {s.table: s.behind for s in standings(deployment, deployment.pipeline("sales"))}


def test_the_command_publishes_what_is_missing(deployment: Deployment, tmp_path: Path) -> None:
    run(deployment, 1)
    run(deployment, 2)
    status = json.loads(said(deployment, "pipelines", "status", "sales", "--json"))
    assert [(t["table"], t["checkpoint_id"], t["behind"]) for t in status["tables"]] == [
        ("feed", None, 1),
        ("now", None, 1),
    ]
    only = json.loads(said(deployment, "publish", "sales", "--table", "feed", "--json"))
    assert [(c["table"], c["commit"], c["checkpoint_id"], c["rows"]) for c in only["commits"]] == [("feed", 1, 2, 3)]
    assert "Published tables" in said(deployment, "pipelines", "status", "sales")
    run(deployment, 3)
    run(deployment, 4)
    assert behind(deployment) == {"feed": 2, "now": 1}
    text = said(deployment, "publish", "sales")
    assert "feed: commit 2 has checkpoint 3, 3 rows written" in text
    assert "feed: commit 3 has checkpoint 4" in text
    assert "now: commit 1 has checkpoint 4" in text
    assert json.loads(said(deployment, "publish", "sales", "--json"))["commits"] == []
    assert behind(deployment) == {"feed": 0, "now": 0}
    rows = table_rows(tmp_path / "now", ["shop"])
    assert rows[("shop-0",)] == {"shop": "shop-0", "revenue": sum(n for d in range(1, 5) for n in (3 * d, 3 * d + 3))}
    for more in ([], ["--dry-run"]):
        line = refused(deployment, "publish", "sales", "--table", "fed", *more)
        assert line.startswith("statelib: sales publishes no table 'fed'")


def test_independent_readers_fold_the_feed(deployment: Deployment, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        run(deployment, number)
        publish(deployment)
    by_polars = (
        pl.scan_parquet(tmp_path / "feed" / "commit-*" / "*.parquet")
        .sort("commit").group_by("shop").last().filter(pl.col("change") != "delete").sort("shop").collect()
    )  # fmt: skip
    assert by_polars["sold"].to_list() == [6, 6, 6]
    assert by_polars["checkpoint_id"].to_list() == [3, 3, 3]
    assert ds.dataset(tmp_path / "feed").count_rows() == 9, "names with an underscore are not read"
    assert {str(t) for t in feed_rows(tmp_path / "feed")["interval_start"].unique().to_pylist()} == {
        f"2013-01-0{number} 00:00:00+00:00" for number in (1, 2, 3)
    }


def test_files_without_a_change_are_used_again(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_files, "FILE_BYTES", 1)
    run(deployment, 1)
    publish(deployment)
    one = sales(0).slice(0, 1)
    checkpoint_of(deployment, "sales", 2, one)
    publish(deployment)
    manifest = json.loads((tmp_path / "now" / "commit-00000002" / "_manifest.json").read_text())
    commits = [file["path"].partition("/")[0] for file in manifest["files"]]
    assert (commits.count("commit-00000001"), commits.count("commit-00000002")) == (127, 1)
    assert len(table_rows(tmp_path / "now", ["shop"])) == 3


def stray_file(target: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), target / "part-0.parquet")


def stray_in_a_commit(target: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), target / "commit-00000001" / "mine.parquet")


def file_removed(target: Path) -> None:
    next((target / "commit-00000002").glob("*.parquet")).unlink()


def file_rewritten(target: Path) -> None:
    path = next((target / "commit-00000002").glob("*.parquet"))
    pq.write_table(pq.read_table(path).slice(1), path)


def manifest_damaged(target: Path) -> None:
    (target / "commit-00000002" / "_manifest.json").write_text("{}")


def commit_removed(target: Path) -> None:
    (target / "commit-00000001").rename(target.parent / "elsewhere")


def manifest_removed(target: Path) -> None:
    (target / "commit-00000002" / "_manifest.json").unlink()


def another_table(target: Path) -> None:
    path = target / "commit-00000002" / "_manifest.json"
    path.write_text(path.read_text().replace('"sales"', '"tours"'))


@pytest.mark.parametrize(
    "write",
    [
        stray_file,
        stray_in_a_commit,
        file_removed,
        file_rewritten,
        manifest_damaged,
        manifest_removed,
        commit_removed,
        another_table,
    ],
)
def test_a_target_that_another_program_wrote_to_is_refused(deployment: Deployment, tmp_path: Path, write) -> None:
    for number in (1, 2):
        run(deployment, number)
        publish(deployment)
    write(tmp_path / "feed")
    before = sorted((tmp_path / "feed").rglob("*"))
    run(deployment, 3)
    with pytest.raises(InvalidRequestError, match="sales: table feed is not published") as refusal:
        publish(deployment)
    assert refusal.value.kind == "foreign-target"
    assert "statelib publish sales" in refusal.value.hint
    assert sorted((tmp_path / "feed").rglob("*")) == before
    assert behind(deployment)["now"] == 0, "the other table is published"
    (tmp_path / "feed").rename(tmp_path / "moved")
    publish(deployment)
    assert len(folded(feed_rows(tmp_path / "feed"), ["shop"])) == 3


def test_two_publishers_at_once_make_one_commit_per_number(deployment: Deployment, tmp_path: Path) -> None:
    run(deployment, 1)
    publish(deployment)
    for number in (2, 3, 4):
        run(deployment, number)
    assert errors_together(4, partial(publish, deployment)) == []
    feed = feed_rows(tmp_path / "feed")
    pairs = {(row["commit"], row["checkpoint_id"]) for row in feed.to_pylist()}
    assert pairs == {(number, number) for number in (1, 2, 3, 4)}
    assert len(feed) == 12
    assert [row["sold"] for row in folded(feed, ["shop"]).values()] == [8, 8, 8]
    assert not list((tmp_path / "feed" / "_staging").iterdir())


def test_other_columns_than_the_table_has_are_refused(deployment: Deployment) -> None:
    run(deployment, 1)
    publish(deployment)
    run(deployment, 2)
    change_file(deployment, SALES + PUBLISH.replace("state: total}", "state: total, columns: [sold]}"))
    with pytest.raises(
        InvalidRequestError, match=r"the table has the columns commit: int64, .*amount: int64"
    ) as refusal:
        publish(deployment)
    assert refusal.value.kind == "columns-changed"
    change_file(deployment, SALES + PUBLISH)
    publish(deployment)
    assert behind(deployment) == {"feed": 0, "now": 0}


def test_a_state_that_the_checkpoint_has_in_another_form_is_refused(deployment: Deployment, tmp_path: Path) -> None:
    run(deployment, 1)
    change_file(
        deployment, SALES.replace("sold: {agg: count}", "sold: {agg: count}, most: {agg: max, of: amount}") + PUBLISH
    )
    with pytest.raises(InvalidRequestError) as refusal:
        publish_tables(deployment, deployment.pipeline("sales"), ("feed",))
    assert refusal.value.kind == "other-state"
    run(deployment, 2)
    publish(deployment)
    assert folded(feed_rows(tmp_path / "feed"), ["shop"])[("shop-0",)]["most"] == 9


def test_a_state_with_a_new_field_is_published_whole(deployment: Deployment, tmp_path: Path) -> None:
    """The two checkpoints cannot be compared entry by entry, and the published columns are the same."""
    text = SALES + PUBLISH.replace("state: total}", "state: total, columns: [sold]}")
    change_file(deployment, text)
    run(deployment, 1)
    publish(deployment)
    change_file(deployment, text.replace("sold: {agg: count}", "sold: {agg: count}, most: {agg: max, of: amount}"))
    run(deployment, 2)
    publish(deployment)
    feed = feed_rows(tmp_path / "feed")
    assert [row["change"] for row in feed.to_pylist()] == ["insert"] * 3 + ["update"] * 3
    assert [row["sold"] for row in folded(feed, ["shop"]).values()] == [4, 4, 4]


def damage(directory: Path, metadata: bool) -> None:
    """Change the last bytes of the metadata of a checkpoint, or of all other files that its run wrote."""
    damaged = [directory / "_metadata"]
    if not metadata:
        own = [path for path in directory.iterdir() if path.name != "_metadata"]
        attempts = {path.name[:24] for path in own}
        changes = directory.parent.glob("taskowned/*")
        damaged = own + [path for path in changes if path.name[:24] in attempts]
    assert damaged
    for path in damaged:
        path.write_bytes(path.read_bytes()[:-9] + b"?" * 9)


@pytest.mark.parametrize("damages_metadata", [False, True])
def test_damage_of_the_checkpoint_of_the_newest_commit_is_passed_over(
    deployment: Deployment, tmp_path: Path, damages_metadata: bool
) -> None:
    for number in (1, 2):
        run(deployment, number)
        publish(deployment)
    damage(tmp_path / "state" / "sales" / "chk-2", damages_metadata)
    pipeline = deployment.pipeline("sales")
    apply_restore(deployment, pipeline, plan_restore(deployment, pipeline, "1", None, ClaimMode.NO_CLAIM), "t")
    publish(deployment)
    feed = folded(feed_rows(tmp_path / "feed"), ["shop"])
    assert sorted((row["sold"], row["amount"]) for row in feed.values()) == [(2, 9), (2, 11), (2, 13)]
    assert behind(deployment) == {"feed": 0, "now": 0}


@pytest.mark.parametrize("damages_metadata", [False, True])
@pytest.mark.parametrize("format_", ["parquet", "delta"])
def test_a_damaged_checkpoint_before_the_head_is_left_out(
    deployment: Deployment, tmp_path: Path, damages_metadata: bool, format_: str
) -> None:
    change_file(deployment, SALES + PUBLISH.replace("state: total", f"state: total, format: {format_}"))
    run(deployment, 1)
    publish(deployment)
    for number in (2, 3, 4):
        run(deployment, number)
    damage(tmp_path / "state" / "sales" / "chk-2", damages_metadata)
    published = publish_tables(deployment, deployment.pipeline("sales"), ("feed",))
    assert [commit.checkpoint_id for commit in published] == [3, 4]
    damage(tmp_path / "state" / "sales" / "chk-4", damages_metadata)
    with pytest.raises((CorruptStateError, NotFoundError), match="table now is not published"):
        publish(deployment)


WINDOWED = """\
name: sales
source: {path: "{data}/{start}-{end}", columns: {shop: string, item: string, amount: long, at: instant}}
key: [shop, item]
states:
  hourly: {kind: value, value: {agg: avg, of: amount}, window: {time: at, tumbling: 1h, retain: 1h}}
backend: heap
publish:
  feed: {target: "{data}/feed", mode: changes}
  now: {target: "{data}/now", mode: table}
"""


def test_windows_are_columns_and_are_deleted_when_they_are_cleared(deployment: Deployment, tmp_path: Path) -> None:
    change_file(deployment, WINDOWED)
    for number in (1, 2):
        at = pa.array([day(number).start_ms + 23 * 3_600_000] * 6, pa.timestamp("ms", "UTC"))
        checkpoint_of(deployment, "sales", number, sales(0).append_column("at", at.cast(pa.timestamp("ns", "UTC"))))
        publish(deployment)
    identity = ["shop", "item", "window_start", "window_end"]
    rows = folded(feed_rows(tmp_path / "feed"), identity)
    assert {str(row["window_start"]) for row in rows.values()} == {"2013-01-02 23:00:00+00:00"}
    assert [type(row["value"]) for row in rows.values()] == [float] * 6
    assert table_rows(tmp_path / "now", identity) == rows
    changes = [row["change"] for row in feed_rows(tmp_path / "feed").to_pylist()]
    assert sorted(changes) == ["delete"] * 6 + ["insert"] * 12


def test_a_target_that_is_no_storage_is_refused(deployment: Deployment) -> None:
    change_file(deployment, SALES + PUBLISH.replace("{data}/feed", "s3a://tables/feed"))
    run(deployment, 1)
    with pytest.raises(UnsupportedError, match="that is Hadoop's name of it"):
        publish(deployment)
    assert standings(deployment, deployment.pipeline("sales"))[0].error
    with pytest.raises(NotFoundError, match="sales publishes no table 'x'"):
        publish_tables(deployment, deployment.pipeline("sales"), ("x",))


def test_the_command_shows_what_became_of_the_other_tables_if_one_fails(deployment: Deployment) -> None:
    change_file(deployment, SALES + PUBLISH.replace("{data}/feed", "s3a://tables/feed"))
    run(deployment, 1)
    result = call(deployment, "publish", "sales")
    assert (result.exit_code, "table feed is not published" in result.stderr) == (2, True)
    (now,) = [line for line in result.stdout.splitlines() if line.split()[:1] == ["now"]]
    assert now.split()[1:6] == ["table", "1", "1", "0", "checkpoints"]
    answer = json.loads(call(deployment, "publish", "sales", "--json").stdout)
    assert [(table["table"], table["checkpoint_id"]) for table in answer["tables"]] == [("feed", None), ("now", 1)]


def test_a_pipeline_without_tables_publishes_nothing(deployment: Deployment) -> None:
    change_file(deployment, SALES)
    run(deployment, 1)
    result = call(deployment, "publish", "sales")
    assert (result.exit_code, "there is no table: the pipeline file has no `publish`" in result.stderr) == (0, True)


def test_an_unreachable_target_is_an_error_and_keeps_the_checkpoint(deployment: Deployment, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    moved = dataclasses.replace(deployment, data=str(tmp_path / "file"))
    run(moved, 1)
    with pytest.raises(InvalidRequestError, match="expected a directory, found a file") as refusal:
        publish(moved)
    assert "statelib publish sales" in refusal.value.hint
    head = deployment.catalog().head(PipelineName("sales")).head
    assert head == 1
    publish(deployment)
