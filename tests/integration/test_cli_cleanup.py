"""``statelib gc | orphans | why | savepoint dispose`` on a real deployment, for people and for machines."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from statelib_airflow.hooks import StatelibHook
from statelib_airflow.runtime import cleaning

from statelib.flows.checkpoint.steps import abort, begin
from statelib.flows.wiring import Deployment
from tests.integration.garbage import days, needed, save, stored, tally
from tests.integration.shop_cli import call, refused, said
from tests.support.worlds import day, publish_here


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    made = tally(tmp_path)
    days(made, 1, 4)
    return made


def test_gc_lists_the_files_in_a_dry_run_and_then_deletes_them(deployment: Deployment) -> None:
    before = stored(deployment)
    shown = said(deployment, "gc", "--dry-run")
    assert "Would be deleted" in shown
    assert "1, 2 " in shown
    plan = json.loads(said(deployment, "gc", "--dry-run", "--json"))
    assert plan["dry_run"] is True
    assert [(r["pipeline"], r["checkpoints"], r["policy"]["count"]) for r in plan["retired"]] == [("tally", [1, 2], 2)]
    assert len(plan["collected"][0]["files"]) == 4
    assert stored(deployment) == before
    done = json.loads(said(deployment, "gc", "--json", "-p", "tally"))
    assert done["collected"] == plan["collected"]
    assert set(plan["collected"][0]["files"]) == {uri for uri in before - stored(deployment) if "_meta" not in uri}
    assert stored(deployment) == needed(deployment)
    assert said(deployment, "gc") == "nothing to delete\n"


def test_gc_warns_about_a_pipeline_without_a_file(deployment: Deployment) -> None:
    (Path(deployment.pipelines_directory) / "tally.yaml").unlink()
    result = call(deployment, "gc")
    assert (result.exit_code, result.stdout) == (0, "nothing to delete\n")
    assert "tally has no pipeline file" in result.stderr
    assert "'tully'" in refused(deployment, "gc", "-p", "tully")


@pytest.fixture
def of_one_checkpoint(tmp_path: Path) -> Deployment:
    """Return a deployment with one checkpoint, whose pipeline has no file any more."""
    made = tally(tmp_path)
    days(made, 1, 1)
    (Path(made.pipelines_directory) / "tally.yaml").unlink()
    return made


def test_gc_counts_the_only_checkpoint_of_a_pipeline_without_a_file_in_the_singular(
    of_one_checkpoint: Deployment,
) -> None:
    assert ": 1 checkpoint, " in call(of_one_checkpoint, "gc").stderr


def test_the_log_of_the_task_counts_one_checkpoint_in_the_singular(
    of_one_checkpoint: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    hook = cast("StatelibHook", SimpleNamespace(deployment=lambda: of_one_checkpoint))
    cleaning.retention(hook)
    assert "tally has no pipeline file: 1 checkpoint, " in caplog.text


def test_the_log_of_a_verification_counts_one_checkpoint_in_the_singular(
    of_one_checkpoint: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    hook = cast("StatelibHook", SimpleNamespace(deployment=lambda: of_one_checkpoint))
    caplog.set_level("INFO")
    cleaning.verify(hook, "tally", "100%", "")
    assert "tally: 1 checkpoint, " in caplog.text


def test_gc_of_a_pipeline_that_never_ran_has_nothing_to_delete(tmp_path: Path) -> None:
    new = tally(tmp_path)
    new.catalog()
    assert said(new, "gc", "-p", "tally") == "nothing to delete\n"
    assert said(new, "gc") == "nothing to delete\n"
    assert "0 orphans" in said(new, "orphans", "-p", "tally", "--delete")


def test_orphans_are_listed_unless_delete_is_given(deployment: Deployment) -> None:
    pipeline = deployment.pipeline("tally")
    left = begin(deployment, pipeline, day(5), "t").checkpoint_id
    publish_here(deployment, pipeline, left)
    abort(deployment, "tally", left, "t")
    (Path(deployment.storage_root) / "tally" / "notes.txt").write_text("x")
    shown = call(deployment, "orphans")
    assert f"chk-{left}/_metadata" in shown.stdout
    assert "3 orphans" in shown.stdout
    assert "nothing was deleted" in shown.stdout
    assert shown.stderr == "left alone: 1 more file, not statelib's\n"
    (plan,) = json.loads(said(deployment, "orphans", "--json", "--grace", "36h"))
    assert (len(plan["files"]), plan["deleted"]) == (3, False)
    assert "3 orphans" in said(deployment, "orphans", "--delete")
    assert stored(deployment) - {f"{deployment.root_uri()}/tally/notes.txt"} == needed(deployment)
    assert "0 orphans" in said(deployment, "orphans", "--delete", "--grace", "1d")


@pytest.mark.parametrize("grace", ["7", "d", "-1d", "1w", "1.5h", "99999999d"])
def test_a_grace_period_is_a_number_of_hours_or_days(deployment: Deployment, grace: str) -> None:
    assert "expected a number of hours or days" in refused(deployment, "orphans", f"--grace={grace}")


def test_a_short_grace_period_needs_force_to_delete(deployment: Deployment) -> None:
    assert "expected at least" in refused(deployment, "orphans", "--delete", "--grace", "1h")
    assert "0 orphans" in said(deployment, "orphans", "--delete", "--grace", "1h", "--force")


def test_why_prints_the_checkpoints_that_need_a_file(deployment: Deployment) -> None:
    metadata = f"{deployment.storage_root}/tally/chk-4/_metadata"
    assert "needed by    tally/4\n" in said(deployment, "why", metadata)
    assert json.loads(said(deployment, "why", metadata, "--json"))["needed_by"] == ["tally/4"]
    assert "no checkpoint refers to it" in refused(deployment, "why", "/no/such/file")


def test_a_savepoint_is_disposed_of_by_its_id(deployment: Deployment) -> None:
    saved = save(deployment, "k")
    directory = Path(deployment.storage_root) / "savepoints" / f"savepoint-tally-{saved}"
    assert "Would be deleted" in said(deployment, "savepoint", "dispose", f"tally/{saved}", "--dry-run")
    assert directory.is_dir()
    plan = json.loads(said(deployment, "savepoint", "dispose", f"tally/{saved}", "--json"))
    assert [(c["pipeline"], c["checkpoints"]) for c in plan["collected"]] == [("tally", [saved])]
    assert not directory.exists()
    assert "only savepoints" in refused(deployment, "savepoint", "dispose", "tally/4")
    assert "no checkpoint 99" in refused(deployment, "savepoint", "dispose", "tally/99")
    assert "ids count per pipeline" in refused(deployment, "savepoint", "dispose", "4")
