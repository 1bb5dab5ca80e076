"""``statelib catalog rebuild`` and gc, where a fork has files in the directory of the pipeline that it was made of."""

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from statelib.errors import ConflictError
from statelib.flows.checkpoint.steps import register
from statelib.flows.cleanup.explanation import why
from statelib.flows.cleanup.garbage import REFUSED, collect_garbage, dispose
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.cleanup.retention import retire
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.savepoints.verification.snapshots import verify_at
from tests.integration.garbage import needed, stored
from tests.integration.shop_cli import call, said
from tests.integration.test_fork import days, forked, is_whole, write
from tests.support.worlds import checkpoint_of, new_deployment, publish_here

TRUNK, BRANCH = PipelineName("trunk"), PipelineName("branch")


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    """Return a deployment with two pipelines, ``trunk`` and ``branch``. The first has three checkpoints."""
    (tmp_path / "pipelines").mkdir()
    deployment = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    write(deployment, "trunk", "heap", "canonical")
    write(deployment, "branch", "heap", "canonical")
    days(deployment, "trunk", 1, 3)
    return deployment


def rebuilt(deployment: Deployment, *options: str) -> Deployment:
    """Return the deployment with a new catalog that was rebuilt from the storage."""
    path = Path(deployment.pipelines_directory).parent / "new.db"
    again = replace(deployment, catalog_url=f"sqlite:///{path}")
    said(again, "catalog", "rebuild", "--yes", *options)
    return again


def retired(deployment: Deployment) -> None:
    retire(deployment)
    collect_garbage(deployment)


def forked_of(deployment: Deployment, number: int) -> str:
    """Fork ``branch`` of a snapshot of ``trunk``, and return the directory of the snapshot."""
    forked(deployment, "trunk", number, "branch")
    return deployment.catalog().get(TRUNK, CheckpointId(number)).directory


def saved(deployment: Deployment) -> CheckpointId:
    """Take a savepoint of ``trunk``, and return its id."""
    pipeline = deployment.pipeline("trunk")
    begun = begin_savepoint(deployment, pipeline, format="native", target=None, note="", owner="test", key="k")
    publish_here(deployment, pipeline, begun.checkpoint_id)
    return register(deployment, pipeline, begun.checkpoint_id).checkpoint_id


@pytest.mark.parametrize("gone", [False, True], ids=["the source lives", "the source is gone"])
def test_gc_deletes_files_of_a_source_that_only_its_fork_needed(deployment: Deployment, gone: bool) -> None:
    forked(deployment, "trunk", 3, "branch")
    days(deployment, "trunk", 4, 5)
    retired(deployment)
    if gone:
        (Path(deployment.pipelines_directory) / "trunk.yaml").unlink()
        said(deployment, "pipelines", "discard", "trunk", "--yes")
    again = rebuilt(deployment)
    assert again.catalog().pipelines() == ((BRANCH,) if gone else (BRANCH, TRUNK))
    days(again, "branch", 4, 5, amount=100)
    retire(again)
    file = min(uri for uri in stored(again) if "/trunk/chk-3/" in uri)
    assert why(again, file).explanation == "needed by none: the next gc deletes it"
    said(again, "gc")
    is_whole(again)
    assert stored(again) == needed(again)


def test_gc_deletes_files_of_a_savepoint_that_only_a_fork_needed(deployment: Deployment) -> None:
    forked(deployment, "trunk", saved(deployment), "branch")
    dispose(deployment, TRUNK, CheckpointId(4))
    again = rebuilt(deployment)
    file = min(uri for uri in needed(again) if "/savepoint-trunk-4/" in uri)
    days(again, "branch", 4, 5, amount=100)
    retire(again)
    assert why(again, file).explanation == "needed by none: the next gc deletes it"
    said(again, "gc")
    is_whole(again)
    assert stored(again) == needed(again)


@pytest.mark.parametrize("what", ["checkpoint", "savepoint"])
def test_gc_leaves_files_alone_that_a_snapshot_without_a_row_may_need(deployment: Deployment, what: str) -> None:
    number = 3 if what == "checkpoint" else saved(deployment)
    directory = forked_of(deployment, number)
    days(deployment, "trunk", 4, 5)
    again = rebuilt(deployment, "--leave-out", f"trunk/{number}")
    days(again, "branch", 4, 5, amount=100)
    retire(again)
    left = min(uri for uri in stored(again) if uri.startswith(directory) and not uri.endswith("_metadata"))
    assert why(again, left).explanation == f"needed by none: gc leaves it alone, {REFUSED}"
    result = call(again, "gc")
    assert (result.exit_code, f"branch: left alone, {REFUSED}: {left}" in result.stderr) == (1, True)
    assert verify_at(directory, own=True, storage_root=again.storage_root).problems == ()


def test_a_savepoint_is_not_deleted_under_a_fork_without_a_row(deployment: Deployment, tmp_path: Path) -> None:
    number = saved(deployment)
    shutil.copy(tmp_path / "catalog.db", tmp_path / "old.db")
    forked(deployment, "trunk", number, "branch")
    again = replace(deployment, catalog_url=f"sqlite:///{tmp_path}/old.db")
    with pytest.raises(ConflictError) as caught:
        dispose(again, TRUNK, number)
    assert caught.value.kind == "catalog-behind-storage"
    is_whole(deployment)


@pytest.mark.parametrize("left", ["trunk/5", "branch/1"], ids=["an own checkpoint", "that of a fork"])
def test_gc_leaves_files_alone_that_a_checkpoint_needs_which_was_left_out(deployment: Deployment, left: str) -> None:
    """Checkpoint 5 needs files of checkpoint 4, and the fork those of checkpoint 3. The newest need no older files."""
    forked(deployment, "trunk", 3, "branch")
    days(deployment, "branch", 4, 5)
    write(deployment, "trunk", "heap", "changelog")
    days(deployment, "trunk", 4, 4)
    one_shop = pa.table({"shop": ["shop-1"], "amount": pa.array([1], pa.int64())})
    checkpoint_of(deployment, "trunk", 5, one_shop)
    write(deployment, "trunk", "heap", "canonical")
    days(deployment, "trunk", 6, 7)
    name, _, number = left.partition("/")
    directory = deployment.catalog().get(PipelineName(name), CheckpointId(int(number))).directory
    again = rebuilt(deployment, "--leave-out", left)
    retire(again)
    result = call(again, "gc")
    assert (result.exit_code, f"trunk: left alone, {REFUSED}: " in result.stderr) == (1, True)
    assert verify_at(directory, own=True, storage_root=again.storage_root).problems == ()
    is_whole(again)
    said(again, "catalog", "rebuild", "--merge", "--yes", "--leave-out", left, "--give-up", left)
    said(again, "gc")
    orphans(again, dry_run=False)
    assert stored(again) == needed(again)
