"""The changes that a run records for a feed: they are part of the checkpoint and verified by the gate, but never
restored and not required."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from statelib.backends.wrappers import changed_entries
from statelib.errors import CorruptStateError, InvalidRequestError, NotFoundError
from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.publication.steps import publish_tables
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.fork import fork
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import ClaimMode
from statelib.savepoints.diff.states import Diff
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.recorded_changes import changes_name, recorded_changes
from statelib.savepoints.verification.snapshots import verify
from tests.integration.shop import SALES, sales
from tests.support.published import feed_rows, folded
from tests.support.worlds import checkpoint_of, day, new_deployment, publish_here

PUBLISH = 'publish:\n  feed: {target: "{data}/feed", mode: changes, state: total}\n'


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "sales.yaml").write_text(SALES + PUBLISH)
    made = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    checkpoint_of(made, "sales", 1, sales(0))
    publish_tables(made, made.pipeline("sales"))
    return made


def opened(deployment: Deployment, number: int, pipeline: str = "sales") -> Checkpoint:
    return deployment.open(deployment.catalog().get(PipelineName(pipeline), CheckpointId(number)))


def names(checkpoint: Checkpoint) -> set[str]:
    assert checkpoint.manifest is not None
    return {record.name for record in checkpoint.manifest.side_data}


def test_the_gate_verifies_recorded_changes_and_a_savepoint_has_none(deployment: Deployment) -> None:
    pipeline = deployment.pipeline("sales")
    begun = begin(deployment, pipeline, day(2), "test")
    publish_here(deployment, pipeline, begun.checkpoint_id, sales(1).slice(0, 1))
    assert check(deployment, pipeline, begun.checkpoint_id).passed
    register(deployment, pipeline, begun.checkpoint_id)
    second = opened(deployment, 2)
    assert names(opened(deployment, 1)) == set(), "a first run has no base"
    assert names(second) == {changes_name("total")}, "per_item and items have no feed"
    assert verify(second, scratch=deployment.work_directory).problems == ()
    tables = list(recorded_changes(second, "total") or [])
    assert pa.concat_tables(tables)["key"].to_pylist() == ["shop-1"]
    saved = begin_savepoint(deployment, pipeline, format="canonical", target=None, note="", owner="test", key="k")
    publish_here(deployment, pipeline, saved.checkpoint_id)
    register(deployment, pipeline, saved.checkpoint_id)
    assert names(opened(deployment, 3)) == set()


def test_a_damaged_file_of_changes_is_named_and_nothing_is_published(deployment: Deployment, tmp_path: Path) -> None:
    checkpoint_of(deployment, "sales", 2, sales(6))
    file = next((tmp_path / "state" / "sales" / "taskowned").iterdir())
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(CorruptStateError, match=r"table feed is not published: .*taskowned"):
        publish_tables(deployment, deployment.pipeline("sales"))
    assert [path.name for path in (tmp_path / "feed").glob("commit-*")] == ["commit-00000001"]
    assert verify(opened(deployment, 2), scratch=deployment.work_directory).problems


@pytest.mark.parametrize(
    ("table", "recorded"),
    [
        ("target: '{data}/t', mode: table", False),
        ("target: '{data}/t', mode: table, format: delta", True),
        ("target: lake.a.t, mode: table, format: iceberg", False),
        ("target: lake.a.t, mode: changes, format: iceberg", True),
    ],
)
def test_a_run_records_changes_only_for_tables_that_are_made_from_them(
    deployment: Deployment, table: str, recorded: bool
) -> None:
    file = Path(deployment.pipelines_directory) / "sales.yaml"
    file.write_text(f"{SALES}publish: {{t: {{{table}, state: total}}}}\n")
    checkpoint_of(deployment, "sales", 2, sales(1))
    assert names(opened(deployment, 2)) == ({changes_name("total")} if recorded else set())


def test_recorded_changes_are_never_restored(deployment: Deployment, tmp_path: Path) -> None:
    checkpoint_of(deployment, "sales", 2, sales(6))
    (tmp_path / "pipelines" / "sales.yaml").write_text(SALES)
    pipeline = deployment.pipeline("sales")
    apply_restore(deployment, pipeline, plan_restore(deployment, pipeline, "2", 1, ClaimMode.NO_CLAIM), "test")
    checkpoint_of(deployment, "sales", 3, sales(12))
    assert names(opened(deployment, 3)) == set()


@pytest.mark.parametrize("copy", [False, True])
def test_a_fork_begins_a_feed_of_its_own(deployment: Deployment, tmp_path: Path, copy: bool) -> None:
    checkpoint_of(deployment, "sales", 2, sales(6))
    text = (SALES + PUBLISH).replace("name: sales", "name: branch").replace("{data}/feed", "{data}/branch_feed")
    (tmp_path / "pipelines" / "branch.yaml").write_text(text)
    branch = deployment.pipeline("branch")
    source = deployment.catalog().get(PipelineName("sales"), CheckpointId(2))
    fork(deployment, branch, source, "test", read_data=True, copy=copy)
    publish_tables(deployment, branch)
    checkpoint_of(deployment, "branch", 3, sales(0))
    publish_tables(deployment, branch)
    rows = folded(feed_rows(tmp_path / "branch_feed"), ["shop"])
    assert [row["sold"] for row in rows.values()] == [6, 6, 6]


def test_too_many_changes_are_not_recorded(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed_entries, "LIMIT_BYTES", 8)
    checkpoint_of(deployment, "sales", 2, sales(6))
    assert names(opened(deployment, 2)) == set()
    publish_tables(deployment, deployment.pipeline("sales"))
    assert [row["sold"] for row in folded(feed_rows(tmp_path / "feed"), ["shop"]).values()] == [4, 4, 4]


def test_a_pipeline_file_cannot_use_the_names_of_recorded_changes(tmp_path: Path, deployment: Deployment) -> None:
    hooks = "hooks: {initialize_state: 'a.b:c'}\nside_data: [statelib.changes.total]\n"
    (tmp_path / "pipelines" / "sales.yaml").write_text(SALES + hooks)
    with pytest.raises(
        InvalidRequestError, match=r"side_data\.0: expected a name that does not start with 'statelib\.'"
    ):
        deployment.pipeline("sales")


def test_a_comparison_with_the_base_reads_the_recorded_changes(deployment: Deployment, tmp_path: Path) -> None:
    checkpoint_of(deployment, "sales", 2, sales(6))
    before, after = opened(deployment, 1), opened(deployment, 2)
    assert after.manifest is not None
    whole = Diff(before, replace(after, manifest=replace(after.manifest, side_data=()))).to_arrow("total")
    assert len(whole)
    assert Diff(before, after).to_arrow("total").equals(whole)
    directory = tmp_path / "state" / "sales" / "chk-2"
    for file in directory.iterdir():
        if file.name != "_metadata":
            file.unlink()
    assert Diff(before, after).to_arrow("total").equals(whole)
    with pytest.raises(NotFoundError):
        Diff(before, after).to_arrow("per_item")
    with pytest.raises(NotFoundError):
        Diff(after, before).to_arrow("total")


def test_changes_from_the_base_of_another_deployment_are_not_read(deployment: Deployment, tmp_path: Path) -> None:
    other = new_deployment(tmp_path / "other", tmp_path / "other", tmp_path / "pipelines")
    checkpoint_of(other, "sales", 1, sales(0).slice(0, 2))
    checkpoint_of(other, "sales", 2, sales(0).slice(0, 1))
    (total,) = Diff(opened(deployment, 1), opened(other, 2)).read(("total",))
    assert (total.entries_before, total.entries_after) == (3, 2)
    assert (total.added, total.removed, total.changed) == (0, 1, 2)
