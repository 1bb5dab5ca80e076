"""``statelib gc | orphans | why | savepoint dispose`` on a real deployment, for people and for machines."""

import json
from pathlib import Path

import pytest

from statelib.flows.checkpoint.steps import abort, begin
from statelib.flows.wiring import Deployment
from tests.integration.garbage import days, needed, save, stored, tally
from tests.integration.shop_cli import call, refused, said
from tests.support.worlds import day, publish_here


@pytest.fixture
def here(tmp_path: Path) -> Deployment:
    made = tally(tmp_path)
    days(made, 1, 4)
    return made


def test_gc_says_what_it_would_delete_and_then_deletes_it(here: Deployment) -> None:
    before = stored(here)
    shown = said(here, "gc", "--dry-run")
    assert "Would be deleted" in shown
    assert "1, 2 " in shown
    told = json.loads(said(here, "gc", "--dry-run", "--json"))
    assert told["dry_run"] is True
    assert [(r["pipeline"], r["checkpoints"], r["policy"]["count"]) for r in told["retired"]] == [("tally", [1, 2], 2)]
    assert len(told["collected"][0]["files"]) == 4
    assert stored(here) == before
    done = json.loads(said(here, "gc", "--json", "-p", "tally"))
    assert done["collected"] == told["collected"]
    assert set(told["collected"][0]["files"]) == {uri for uri in before - stored(here) if "_meta" not in uri}
    assert stored(here) == needed(here)
    assert said(here, "gc") == "nothing to delete\n"


def test_gc_of_a_pipeline_without_a_file_says_so(here: Deployment) -> None:
    (Path(here.pipelines_directory) / "tally.yaml").unlink()
    result = call(here, "gc")
    assert (result.exit_code, result.stdout) == (0, "nothing to delete\n")
    assert "tally has no pipeline file" in result.stderr
    assert "'tully'" in refused(here, "gc", "-p", "tully")


def test_a_pipeline_that_never_ran_has_nothing_to_delete(tmp_path: Path) -> None:
    new = tally(tmp_path)
    new.catalog()
    assert said(new, "gc", "-p", "tally") == "nothing to delete\n"
    assert said(new, "gc") == "nothing to delete\n"
    assert "0 orphans" in said(new, "orphans", "-p", "tally", "--delete")


def test_orphans_are_listed_unless_delete_is_given(here: Deployment) -> None:
    pipeline = here.pipeline("tally")
    left = begin(here, pipeline, day(5), "t").checkpoint_id
    publish_here(here, pipeline, left)
    abort(here, "tally", left, "t")
    (Path(here.storage_root) / "tally" / "notes.txt").write_text("x")
    shown = call(here, "orphans")
    assert f"chk-{left}/_metadata" in shown.stdout
    assert "3 orphans" in shown.stdout
    assert "nothing was deleted" in shown.stdout
    assert shown.stderr == "left alone: 1 more file, not statelib's\n"
    (told,) = json.loads(said(here, "orphans", "--json", "--grace", "36h"))
    assert (len(told["files"]), told["deleted"]) == (3, False)
    assert "3 orphans" in said(here, "orphans", "--delete")
    assert stored(here) - {f"{here.root_uri()}/tally/notes.txt"} == needed(here)
    assert "0 orphans" in said(here, "orphans", "--delete", "--grace", "1d")


@pytest.mark.parametrize("grace", ["7", "d", "-1d", "1w", "1.5h", "99999999d"])
def test_a_grace_period_is_a_number_of_hours_or_days(here: Deployment, grace: str) -> None:
    assert "expected a number of hours or days" in refused(here, "orphans", f"--grace={grace}")


def test_a_short_grace_period_needs_force_to_delete(here: Deployment) -> None:
    assert "expected at least" in refused(here, "orphans", "--delete", "--grace", "1h")
    assert "0 orphans" in said(here, "orphans", "--delete", "--grace", "1h", "--force")


def test_why_tells_who_needs_a_file(here: Deployment) -> None:
    metadata = f"{here.storage_root}/tally/chk-4/_metadata"
    assert "needed by    tally/4\n" in said(here, "why", metadata)
    assert json.loads(said(here, "why", metadata, "--json"))["needed_by"] == ["tally/4"]
    assert "no checkpoint refers to it" in refused(here, "why", "/no/such/file")


def test_a_savepoint_is_disposed_of_by_its_id(here: Deployment) -> None:
    saved = save(here, "k")
    directory = Path(here.storage_root) / "savepoints" / f"savepoint-tally-{saved}"
    assert "Would be deleted" in said(here, "savepoint", "dispose", f"tally/{saved}", "--dry-run")
    assert directory.is_dir()
    told = json.loads(said(here, "savepoint", "dispose", f"tally/{saved}", "--json"))
    assert [(c["pipeline"], c["checkpoints"]) for c in told["collected"]] == [("tally", [saved])]
    assert not directory.exists()
    assert "only savepoints" in refused(here, "savepoint", "dispose", "tally/4")
    assert "no checkpoint 99" in refused(here, "savepoint", "dispose", "tally/99")
    assert "ids count per pipeline" in refused(here, "savepoint", "dispose", "4")
