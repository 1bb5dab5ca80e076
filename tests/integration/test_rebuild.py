"""``statelib catalog rebuild``: a lost catalog, an old one, and what was never registered."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, select

from statelib.catalog.tables.schema import CHECKPOINT, FILE, LEASE, REF
from statelib.errors import InvalidRequestError
from statelib.flows import wiring
from statelib.flows.checkpoint.steps import begin, register
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.retention import retire
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.fork import fork
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.model.record import CheckpointState, ClaimMode
from statelib.savepoints.verification.snapshots import verify_at
from statelib.storage.uris import local_path
from tests.integration.shop import SALES, TOURS, environment, open_shop, sales
from tests.integration.shop_cli import call, refused, said
from tests.integration.test_incremental_flow import TOURS as SHARING
from tests.integration.test_incremental_flow import events
from tests.support.worlds import checkpoint_of, day, new_deployment, publish_here

ONLY_IN_THE_CATALOG = (
    "note",
    "report",
    "reason",
    "deadline_ms",
    "failure",
    "completed_at_ms",
    "created_at_ms",
    "begun_by",
)


def rows(deployment: Deployment, table: Any, *without: str) -> list[dict[str, Any]]:
    with create_engine(deployment.catalog_url).connect() as connection:
        records = [dict(row._mapping) for row in connection.execute(select(table))]
    columns = [{name: value for name, value in row.items() if name not in without} for row in records]
    return sorted(columns, key=lambda row: json.dumps(row, sort_keys=True))


def forgetting(deployment: Deployment, root: Path) -> Deployment:
    """Return the deployment with an empty catalog over the same storage."""
    return replace(deployment, catalog_url=f"sqlite:///{root}/new.db")


def completed(deployment: Deployment) -> list[dict[str, Any]]:
    read_rows = rows(deployment, CHECKPOINT, *ONLY_IN_THE_CATALOG, "idempotency_key")
    return [row for row in read_rows if row.pop("state") == "COMPLETED"]


def assert_same(deployment: Deployment, again: Deployment) -> None:
    """Assert that heads, references and history are those of the lost catalog."""
    assert completed(again) == completed(deployment)
    assert rows(again, REF) == rows(deployment, REF)
    assert rows(again, FILE) == rows(deployment, FILE)
    assert heads(again) == heads(deployment)


def heads(deployment: Deployment) -> dict[str, tuple[int, int]]:
    return {row["pipeline"]: (row["head"], row["generation"]) for row in rows(deployment, LEASE)}


def test_a_lost_catalog_is_rebuilt(tmp_path: Path) -> None:
    deployment = open_shop(tmp_path)
    deployment.catalog().abort(PipelineName("sales"), 6, "its catalog is about to be lost")
    again = forgetting(deployment, tmp_path)
    planned = said(again, "catalog", "rebuild", "--dry-run")
    assert "the head of sales is sales/5, generation 1" in planned
    assert again.catalog().pipelines() == ()
    answer = json.loads(said(again, "catalog", "rebuild", "--yes", "--json"))
    assert {p["pipeline"]: p["head"]["head"] for p in answer["pipelines"]} == {"sales": 5, "tours": 1}
    assert_same(deployment, again)
    assert "already" in refused(again, "catalog", "rebuild", "--yes")
    assert json.loads(said(again, "catalog", "rebuild", "--merge", "--yes", "--json"))["pipelines"][0]["entered"] == []
    assert said(again, "verify")
    following = checkpoint_of(again, "sales", 3, sales(200))
    assert again.catalog().get(PipelineName("sales"), following).base == 5
    assert begin(again, again.pipeline("sales"), day(2), "test").already_completed


def test_a_lost_catalog_is_rebuilt_from_s3(tmp_path: Path, s3: object, bucket: str) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "sales.yaml").write_text(SALES)
    (tmp_path / "pipelines" / "tours.yaml").write_text(TOURS + "checkpoint: {inline_threshold_bytes: 1}\n")
    deployment = replace(
        new_deployment(tmp_path, tmp_path, tmp_path / "pipelines"), storage_root=f"s3://{bucket}/state"
    )
    deployment = wiring.deployment(environment(deployment))
    for name in ("sales", "tours"):
        for number in (1, 2):
            checkpoint_of(deployment, name, number, sales(6 * number))
    saved = savepoint(deployment, "sales", f"s3://{bucket}/elsewhere")
    again = forgetting(deployment, tmp_path)
    said(again, "catalog", "rebuild", "--also", f"s3://{bucket}/elsewhere", "--yes")
    assert_same(deployment, again)
    assert again.catalog().get(PipelineName("sales"), saved).directory.startswith(f"s3://{bucket}/elsewhere/")


def savepoint(deployment: Deployment, name: str, target: str | None = None) -> Any:
    pipeline = deployment.pipeline(name)
    begun = begin_savepoint(
        deployment, pipeline, format="canonical", target=target, note="", owner="test", key=str(target)
    )
    publish_here(deployment, pipeline, begun.checkpoint_id)
    return register(deployment, pipeline, begun.checkpoint_id).checkpoint_id


@pytest.fixture
def sharing(tmp_path: Path) -> Deployment:
    """Return a deployment with incremental checkpoints that share files: 1 to 4, restored to 2 at another
    parallelism, then 5 and 6."""
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "tours.yaml").write_text(SHARING)
    deployment = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    for number in (1, 2, 3, 4):
        checkpoint_of(deployment, "tours", number, events(number))
    pipeline = deployment.pipeline("tours")
    apply_restore(deployment, pipeline, plan_restore(deployment, pipeline, "2", 3, ClaimMode.NO_CLAIM), "test")
    for number in (3, 4):
        checkpoint_of(deployment, "tours", number, events(number))
    return deployment


def test_shared_files_stay_referenced_and_gc_removes_only_garbage(sharing: Deployment, tmp_path: Path) -> None:
    again = forgetting(sharing, tmp_path)
    assert "parallelism 3; the next id is 7" in said(again, "catalog", "rebuild", "--yes")
    assert_same(sharing, again)
    assert again.catalog().head(PipelineName("tours")).parallelism == 3
    (tmp_path / "pipelines" / "tours.yaml").write_text(SHARING.replace("0}", "0, retain: {count: 1}}"))
    assert [r.checkpoints for r in retire(again)] == [(1, 2, 3, 4, 5)]
    assert collect_garbage(again)[0].files
    record = again.catalog().get(PipelineName("tours"), 6)
    assert verify_at(record.directory, own=True, storage_root=again.storage_root).problems == ()
    checkpoint_of(again, "tours", 5, events(5))


def test_checkpoints_left_after_retention_are_entered_and_missing_bases_reported(
    sharing: Deployment, tmp_path: Path
) -> None:
    (tmp_path / "pipelines" / "tours.yaml").write_text(SHARING.replace("0}", "0, retain: {count: 2}}"))
    retire(sharing)
    collect_garbage(sharing)
    again = forgetting(sharing, tmp_path)
    (answer,) = json.loads(said(again, "catalog", "rebuild", "--yes", "--json"))["pipelines"]
    assert ([e["checkpoint_id"] for e in answer["entered"]], answer["missing_bases"]) == ([5, 6], [2])
    assert completed(again) == completed(sharing)
    assert rows(again, REF) == rows(sharing, REF)
    assert {row["file_id"] for row in rows(again, FILE)} == {
        row["file_id"] for row in rows(sharing, FILE) if row["state"] == "LIVE"
    }
    assert json.loads(said(again, "catalog", "check", "--json"))["faults"] == [], "bases without a row are no fault"


def test_an_early_interval_may_be_in_the_state_of_a_rebuilt_catalog(sharing: Deployment, tmp_path: Path) -> None:
    (tmp_path / "pipelines" / "tours.yaml").write_text(SHARING.replace("0}", "0, retain: {count: 2}}"))
    retire(sharing)
    collect_garbage(sharing)
    pipeline = sharing.pipeline("tours")
    assert begin(sharing, pipeline, day(1), "task", assume_ready=True).already_completed
    again = forgetting(sharing, tmp_path)
    said(again, "catalog", "rebuild", "--yes")
    with pytest.raises(InvalidRequestError, match=r"may have the interval already.*nothing to do"):
        begin(again, pipeline, day(1), "task", assume_ready=True)


def test_an_old_catalog_is_completed_from_the_storage(sharing: Deployment, tmp_path: Path) -> None:
    shutil.copy(tmp_path / "catalog.db", tmp_path / "new.db")
    checkpoint_of(sharing, "tours", 5, events(5))
    savepoint(sharing, "tours")
    again = forgetting(sharing, tmp_path)
    assert "older than the storage" in refused(again, "gc")
    output = said(again, "catalog", "rebuild", "--merge", "--yes")
    assert "the head of tours is tours/7, generation 1, parallelism 3; the next id is 9" in output
    assert_same(sharing, again)


def test_unregistered_checkpoints_are_read_or_left_out(tmp_path: Path) -> None:
    deployment = open_shop(tmp_path)
    pipeline = deployment.pipeline("sales")
    publish_here(deployment, pipeline, deployment.catalog().list(PipelineName("sales"))[0].checkpoint_id, sales(6))
    begun = begin(deployment, pipeline, day(3), "another run takes over")
    publish_here(deployment, pipeline, begun.checkpoint_id, sales(6))
    again = forgetting(deployment, tmp_path)
    (answer, _) = json.loads(said(again, "catalog", "rebuild", "--dry-run", "--json"))["pipelines"]
    assert [(e["checkpoint_id"], e["known_because"][:7]) for e in answer["entered"]] == [
        (1, "another"), (2, "nothing"), (4, "nothing"), (5, "another"), (7, "nothing"),
    ]  # fmt: skip
    assert [left["reason"] for left in answer["left_out"]] == [
        "the next one was not built on it: it was never registered"
    ]
    assert answer["head"]["head"] == 7
    said(again, "catalog", "rebuild", "--leave-out", "sales/7", "--yes")
    assert again.catalog().head(PipelineName("sales")).head == 5


def test_damaged_checkpoints_are_left_out_and_the_status_is_1(tmp_path: Path) -> None:
    deployment = open_shop(tmp_path)
    newest = Path(local_path(deployment.root_uri()), "sales", "chk-5")
    data = next(path for path in newest.iterdir() if path.name != "_metadata")
    data.write_bytes(bytes(len(data.read_bytes())))
    (newest.parent / "chk-2" / "_metadata").write_bytes(b"STATELIB")
    again = forgetting(deployment, tmp_path)
    result = call(again, "catalog", "rebuild", "--yes")
    assert result.exit_code == 1
    assert len([line for line in result.stderr.splitlines() if line.startswith("left out: ")]) == 2
    assert again.catalog().head(PipelineName("sales")).head == 1, "5 was built on it, and 5 is damaged"


def test_left_out_checkpoints_can_be_given_up_by_name_and_are_then_swept(tmp_path: Path) -> None:
    deployment = open_shop(tmp_path)
    root = Path(local_path(deployment.root_uri()), "sales")
    data = next(path for path in (root / "chk-5").iterdir() if path.name != "_metadata")
    data.write_bytes(bytes(len(data.read_bytes())))
    (root / "chk-2" / "_metadata").write_bytes(b"STATELIB")
    again = forgetting(deployment, tmp_path)
    assert call(again, "catalog", "rebuild", "--yes").exit_code == 1
    hints = call(again, "orphans").stderr
    assert re.search(r"rebuild --merge -p sales registers it; .* --give-up sales/[25]\)?$", hints, re.MULTILINE), hints
    for healthy in ("sales/1", "sales/99"):
        assert "is not given up" in refused(again, "catalog", "rebuild", "--merge", "--give-up", healthy, "--yes")
    both = ("--give-up", "sales/2", "--give-up", "sales/5")
    answer = json.loads(said(again, "catalog", "rebuild", "--merge", *both, "--yes", "--json"))
    (plan,) = [each for each in answer["pipelines"] if each["pipeline"] == "sales"]
    assert [record["checkpoint_id"] for record in plan["given_up"]] == [2, 5]
    assert (plan["left_out"], plan["head"]["head"]) == ([], 1)
    record = again.catalog().get(PipelineName("sales"), 5)
    assert (record.state, "given up" in record.reason) == (CheckpointState.ABORTED, True)
    said(again, "orphans", "--delete")
    assert not (root / "chk-5").exists(), "of an attempt that has ended"
    assert not (root / "chk-2" / "_metadata").exists()
    assert list((root / "chk-2").iterdir()), "nobody knows who wrote these: they have the grace period"
    assert not verify_at(again.catalog().get(PipelineName("sales"), 1).directory, own=True).problems


def test_copies_and_foreign_snapshots_are_not_entered(tmp_path: Path) -> None:
    deployment = open_shop(tmp_path)
    root = Path(local_path(deployment.root_uri()))
    shutil.copytree(root / "sales" / "chk-5", root / "sales" / "chk-9")
    shutil.copytree(root / "savepoints", tmp_path / "backup")
    again = forgetting(deployment, tmp_path)
    result = call(again, "catalog", "rebuild", "--also", tmp_path / "backup", "--yes")
    assert result.exit_code == 0
    assert "a copy of checkpoint sales/5" in result.stderr
    assert "the same snapshot as" in result.stderr
    assert "the next id is 10" in result.stdout
    assert completed(again) == completed(deployment)


def test_a_fork_refers_to_the_files_of_its_source_again(tmp_path: Path) -> None:
    deployment = open_shop(tmp_path)
    deployment.catalog().abort(PipelineName("sales"), 6, "its catalog is about to be lost")
    (tmp_path / "pipelines" / "branch.yaml").write_text(SALES.replace("name: sales", "name: branch"))
    source = deployment.catalog().get(PipelineName("sales"), 5)
    fork(deployment, deployment.pipeline("branch"), source, "test")
    again = forgetting(deployment, tmp_path)
    said(again, "catalog", "rebuild", "--yes")
    assert_same(deployment, again)
    assert {row["pipeline"] for row in rows(again, FILE)} == {"sales"}
    assert {row["pipeline"] for row in rows(again, REF)} == {"sales", "branch"}


def test_only_the_selected_pipeline_is_entered(tmp_path: Path) -> None:
    deployment = open_shop(tmp_path)
    again = forgetting(deployment, tmp_path)
    said(again, "catalog", "rebuild", "-p", "tours", "--yes")
    assert again.catalog().pipelines() == ("tours",)
    assert "no snapshot of pipeline sails" in refused(again, "catalog", "rebuild", "-p", "sails", "-n")
