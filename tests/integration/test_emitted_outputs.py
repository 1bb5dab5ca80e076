"""Rows that functions emit: files of their checkpoint, published once as a feed, taken back after a restore, kept until
they are published, and readable without a table."""

import dataclasses
import json
import shutil
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from statelib.backends.operator.state import OperatorStateBackend
from statelib.errors import ConflictError, CorruptStateError, InvalidRequestError
from statelib.flows.checkpoint.steps import abort, begin, check, register
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.retention import retire
from statelib.flows.publication.steps import PublishedCommit, publish_tables, standings
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.fork import fork
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import ClaimMode
from statelib.model.termination import StopMode
from statelib.savepoints.emitted_outputs import emitted_rows, output_name, outputs_of
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.verification.snapshots import verify
from tests.integration.shop_cli import said
from tests.support import emitting
from tests.support.emitting import COUNTS, events_of, expected_alerts, found_alerts
from tests.support.published import (
    delta_rows,
    errors_together,
    feed_rows,
    folded,
    iceberg_environment,
    iceberg_rows,
)
from tests.support.worlds import checkpoint_of, day, new_deployment, publish_here

PUBLISH = """\
publish:
  feed: {target: "{data}/feed", mode: changes, output: alerts}
  closed: {target: "{data}/closed", mode: changes, output: closed, columns: {key: k, sum: total}}
  delta: {target: "{data}/delta", format: delta, mode: changes, output: alerts}
  ice: {target: lake.counts.alerts, format: iceberg, mode: changes, output: alerts}
"""
FEED = 'publish: {feed: {target: "{data}/feed", mode: changes, output: alerts}}\n'
IDENTITY = ["checkpoint_id", "row_number"]
Rows = list[tuple[int, int]]
DAYS: dict[int, Rows] = {
    1: [(1, 10), (2, 11), (3, 1)],
    2: [(1, 20), (2, 2)],
    3: [(3, 30), (4, 31), (4, 3)],
    4: [(9, 9)],
}


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    for name, value in iceberg_environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    made = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    change_file(made, PUBLISH)
    return made


def change_file(deployment: Deployment, publish: str, name: str = "counts", **changes: str) -> None:
    text = COUNTS.replace("BACKEND", "heap").replace("STRATEGY", "canonical").replace("name: counts", f"name: {name}")
    for old, new in changes.items():
        text = text.replace(old, new)
    (Path(deployment.pipelines_directory) / f"{name}.yaml").write_text(text + publish)


def run(deployment: Deployment, number: int) -> CheckpointId:
    return checkpoint_of(deployment, "counts", number, events_of(DAYS[number], day(number).end_ms - 1000))


def publish(deployment: Deployment) -> list[PublishedCommit]:
    return publish_tables(deployment, deployment.pipeline("counts"))


def restore(deployment: Deployment, snapshot: int) -> None:
    pipeline = deployment.pipeline("counts")
    apply_restore(
        deployment, pipeline, plan_restore(deployment, pipeline, str(snapshot), None, ClaimMode.NO_CLAIM), "t"
    )


def clean(deployment: Deployment) -> None:
    retire(deployment)
    collect_garbage(deployment)


def opened(deployment: Deployment, number: int, pipeline: str = "counts") -> Checkpoint:
    return deployment.open(deployment.catalog().get(PipelineName(pipeline), CheckpointId(number)))


def alerts(deployment: Deployment, number: int, pipeline: str = "counts") -> list[tuple[object, ...]]:
    return found_alerts(pa.concat_tables(emitted_rows(opened(deployment, number, pipeline), "alerts")))


def feeds(deployment: Deployment) -> list[pa.Table]:
    return [feed_rows(Path(deployment.data) / "feed"), delta_rows(Path(deployment.data) / "delta"),
            iceberg_rows("counts.alerts")]  # fmt: skip


def of_days(*days: int) -> list[tuple[object, ...]]:
    return expected_alerts([row for number in days for row in DAYS[number]])


def check_feeds(deployment: Deployment, *days: int) -> None:
    for feed in feeds(deployment):
        rows = list(folded(feed, IDENTITY).values())
        assert found_alerts(pa.Table.from_pylist(rows, feed.schema)) == of_days(*days)


def test_each_run_is_published_once_to_every_target(deployment: Deployment, tmp_path: Path) -> None:
    for number in (1, 2):
        run(deployment, number)
        assert [commit.commit for commit in publish(deployment)] == [number] * 4
        check_feeds(deployment, *range(1, number + 1))
    run(deployment, 3)
    run(deployment, 4)
    assert {
        table.table: table.behind for table in standings(deployment, deployment.pipeline("counts"))
    } == dict.fromkeys(("feed", "closed", "delta", "ice"), 2)
    publish(deployment)
    assert publish(deployment) == []
    check_feeds(deployment, 1, 2, 3)
    for feed in feeds(deployment):
        runs = {(row["checkpoint_id"], row["commit"], str(row["interval_start"])[:10]) for row in feed.to_pylist()}
        assert runs == {(number, number, f"2013-01-0{number}") for number in (1, 2, 3)}
    closed = folded(feed_rows(tmp_path / "closed"), IDENTITY).values()
    assert sorted((row["key"], row["sum"]) for row in closed) == [(1, 30), (2, 13), (3, 1), (3, 30), (4, 34)]


def test_rows_of_abandoned_runs_are_taken_back(deployment: Deployment) -> None:
    for number in (1, 2, 3):
        run(deployment, number)
    publish(deployment)
    restore(deployment, 1)
    assert run(deployment, 2) == 4
    publish(deployment)
    check_feeds(deployment, 1, 2)
    feed = feeds(deployment)[0]
    back = [row for row in feed.to_pylist() if row["change"] == "delete"]
    assert [(row["checkpoint_id"], row["row_number"], row["k"]) for row in back] == [
        (2, 1, None),
        (3, 1, None),
        (3, 2, None),
    ]
    restore(deployment, 3)
    publish(deployment)
    check_feeds(deployment, 1, 2, 3)
    restore(deployment, 1)
    publish(deployment)
    check_feeds(deployment, 1)


def test_rows_of_a_deleted_checkpoint_are_added_again_from_the_feed(deployment: Deployment) -> None:
    for number in (1, 2, 3):
        run(deployment, number)
    publish(deployment)
    restore(deployment, 1)
    publish(deployment)
    restore(deployment, 3)
    deployment.catalog().cleanup.subsume(PipelineName("counts"), [CheckpointId(2)], head_epoch(deployment))
    collect_garbage(deployment)
    assert [commit.lost for commit in publish(deployment)] == [()] * 4
    check_feeds(deployment, 1, 2, 3)


def head_epoch(deployment: Deployment) -> int:
    return deployment.catalog().head(PipelineName("counts")).epoch


def test_retention_keeps_rows_until_they_are_published(deployment: Deployment, tmp_path: Path) -> None:
    foreign = tmp_path / "feed" / "commit-00000001"
    foreign.mkdir(parents=True)
    (foreign / "_manifest.json").write_text("{}")
    for number in (1, 2, 3, 4):
        run(deployment, number)
    change_file(deployment, FEED)
    (retired,) = retire(deployment)
    reasons = {each.checkpoint_id: each.because for each in retired.kept}
    assert reasons.keys() == {1, 2, 3, 4}
    assert "its rows of output alerts may not be published: table feed cannot be read: " in reasons[CheckpointId(2)]
    shutil.rmtree(tmp_path / "feed")
    (retired,) = retire(deployment, dry_run=True)
    assert {each.checkpoint_id: each.because for each in retired.kept}[CheckpointId(2)] == (
        "its rows of output alerts are not published to table feed: statelib publish counts"
    )
    clean(deployment)
    publish(deployment)
    assert found_alerts(feed_rows(tmp_path / "feed")) == of_days(1, 2, 3)
    clean(deployment)
    states = {record.checkpoint_id: record.state for record in deployment.catalog().list(PipelineName("counts"))}
    assert [number for number, state in states.items() if state == "COMPLETED"] == [4]
    manifest = opened(deployment, 4).manifest
    assert manifest is not None
    needed = {file.path.rpartition("/")[2] for file in manifest.files}
    task_owned = tmp_path / "state" / "counts" / "taskowned"
    assert {path.name for path in task_owned.glob("*")} <= needed, "the rows go with their checkpoint"


def test_a_checkpoint_without_rows_waits_for_no_feed(deployment: Deployment) -> None:
    change_file(deployment, FEED)
    for number in (4, 5, 6):
        checkpoint_of(deployment, "counts", number, events_of(DAYS[4], day(number).end_ms - 1000))
    assert [each.checkpoint_id for each in retire(deployment)[0].kept] == [3]


def test_rows_that_were_deleted_unpublished_are_named(deployment: Deployment) -> None:
    run(deployment, 1)
    publish(deployment)
    for number in (2, 3):
        run(deployment, number)
    deployment.catalog().cleanup.subsume(PipelineName("counts"), [CheckpointId(2)], head_epoch(deployment))
    text = said(deployment, "publish", "counts", "--table", "feed", "--json")
    assert [commit["lost"] for commit in json.loads(text)["commits"]] == [[2]]
    publish(deployment)
    check_feeds(deployment, 1, 3)


def test_a_repeated_run_emits_once(deployment: Deployment) -> None:
    pipeline = deployment.pipeline("counts")
    events = events_of(DAYS[1], day(1).end_ms - 1000)
    begun = begin(deployment, pipeline, day(1), "test")
    publish_here(deployment, pipeline, begun.checkpoint_id, events)
    abort(deployment, "counts", begun.checkpoint_id, "test")
    with pytest.raises(ConflictError):
        register(deployment, pipeline, begun.checkpoint_id)
    run(deployment, 1)
    assert begin(deployment, pipeline, day(1), "test").already_completed
    publish(deployment)
    check_feeds(deployment, 1)
    assert set(feeds(deployment)[0]["checkpoint_id"].to_pylist()) == {2}


def test_the_gate_verifies_emitted_rows_and_damage_is_named(deployment: Deployment, tmp_path: Path) -> None:
    pipeline = deployment.pipeline("counts")
    begun = begin(deployment, pipeline, day(1), "test")
    publish_here(deployment, pipeline, begun.checkpoint_id, events_of(DAYS[1], day(1).end_ms - 1000))
    assert check(deployment, pipeline, begun.checkpoint_id).passed
    register(deployment, pipeline, begun.checkpoint_id)
    assert outputs_of(opened(deployment, 1)) == ("alerts",)
    file = next((tmp_path / "state" / "counts" / "taskowned").iterdir())
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(CorruptStateError, match=r"table feed is not published: .*taskowned"):
        publish_tables(deployment, pipeline, ("feed",))
    assert verify(opened(deployment, 1), scratch=deployment.work_directory).problems


def test_rows_that_are_no_arrow_stream_are_named(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    def update(_: pa.Table, state: pa.Table, operator: OperatorStateBackend) -> pa.Table:
        operator.side_data(output_name("alerts")).write(b"no stream")
        return state

    monkeypatch.setattr(emitting, "update", update)
    run(deployment, 1)
    with pytest.raises(CorruptStateError, match="chk-1: output alerts: not an Arrow stream") as refusal:
        publish_tables(deployment, deployment.pipeline("counts"), ("feed",))
    assert refusal.value.kind == "bad-output"


def test_a_query_reads_the_rows_of_one_run(deployment: Deployment) -> None:
    for number in (1, 2, 3):
        run(deployment, number)

    def rows(snapshot: str, sql: str) -> list[list[object]]:
        result: list[list[object]] = json.loads(said(deployment, "query", snapshot, sql, "--json"))["rows"]
        return result

    assert rows("counts", "SELECT k, n, price FROM alerts ORDER BY n") == [[3, 30, "30.00"], [4, 31, "31.00"]]
    assert rows("counts/2", "SELECT min(row_number), max(row_number), count(*) FROM closed") == [[1, 3, 3]]
    assert rows("counts/1", "SELECT count(*) FROM closed") == [[0]], "the run emitted none"
    assert rows(opened(deployment, 1).directory, "SELECT sum(n) FROM alerts") == [[21]]
    assert rows("counts", "DESCRIBE closed")[0][0] == "row_number"


def test_a_fork_has_no_rows_of_its_origin(deployment: Deployment, tmp_path: Path) -> None:
    run(deployment, 1)
    for number, copy in enumerate((False, True)):
        name = f"branch{number}"
        change_file(deployment, FEED.replace("/feed", f"/{name}"), name)
        source = deployment.catalog().get(PipelineName("counts"), CheckpointId(1))
        fork(deployment, deployment.pipeline(name), source, "test", read_data=True, copy=copy)
        assert outputs_of(opened(deployment, 1, name)) == ()
        assert verify(opened(deployment, 1, name), scratch=deployment.work_directory).problems == ()
        checkpoint_of(deployment, name, 2, events_of(DAYS[2], day(2).end_ms - 1000))
        publish_tables(deployment, deployment.pipeline(name))
        assert found_alerts(feed_rows(tmp_path / name)) == of_days(2)


def test_rows_of_a_drained_savepoint_are_published_once_it_is_the_head(deployment: Deployment, tmp_path: Path) -> None:
    run(deployment, 1)
    publish(deployment)
    pipeline = deployment.pipeline("counts")
    saved = begin_savepoint(
        deployment, pipeline, format="canonical", target=None, note="", owner="t", key="k", stop=StopMode.DRAIN
    )
    publish_here(deployment, pipeline, saved.checkpoint_id)
    register(deployment, pipeline, saved.checkpoint_id)
    assert outputs_of(opened(deployment, 2)) == ("closed",)
    assert publish(deployment) == []
    deployment.catalog().suspension.resume(PipelineName("counts"), "t")
    restore(deployment, 2)
    publish(deployment)
    closed = folded(feed_rows(tmp_path / "closed"), IDENTITY)
    assert sorted((key[0], row["sum"]) for key, row in closed.items()) == [(2, 1), (2, 10), (2, 11)]


def test_earlier_rows_have_the_columns_that_are_declared_now(deployment: Deployment, tmp_path: Path) -> None:
    change_file(deployment, "")
    run(deployment, 1)
    more = {"n: long, text: string": "n: double, note: string"}
    change_file(deployment, FEED, **more)
    publish(deployment)
    assert feed_rows(tmp_path / "feed").sort_by("k").select(["n", "note", "price"]).to_pylist()[0] == {
        "n": 10.0, "note": None, "price": 10,
    }  # fmt: skip
    change_file(deployment, FEED.replace("/feed", "/other"), **{"text: string": "text: long"})
    with pytest.raises(
        InvalidRequestError, match=r"chk-1: output alerts: .*the checkpoint has the columns k: int64"
    ) as refusal:
        publish(deployment)
    assert refusal.value.kind == "other-output"


def test_two_publishers_at_once_add_each_row_once(deployment: Deployment) -> None:
    for number in (1, 2, 3):
        run(deployment, number)
        if number == 1:
            publish(deployment)
    assert errors_together(3, partial(publish, deployment)) == []
    check_feeds(deployment, 1, 2, 3)


def test_rows_are_taken_back_after_the_catalog_was_rebuilt(deployment: Deployment, tmp_path: Path) -> None:
    """The catalog then knows only the checkpoints that are left; older rows of the feed stay."""
    for number in (1, 2, 3):
        run(deployment, number)
        publish(deployment)
    deployment.catalog().cleanup.subsume(PipelineName("counts"), [CheckpointId(1)], head_epoch(deployment))
    collect_garbage(deployment)
    again = dataclasses.replace(deployment, catalog_url=f"sqlite:///{tmp_path}/again.db")
    said(again, "catalog", "rebuild", "--yes")
    restore(again, 2)
    publish(again)
    check_feeds(again, 1, 2)


def test_functions_of_the_test_emit_what_is_expected() -> None:
    assert expected_alerts([(1, emitting.LIMIT - 1)]) == []
    assert len(of_days(1, 2, 3)) == 5
