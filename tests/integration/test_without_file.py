"""Pipelines without a file: their stored data are listed by name, and only a person deletes them."""

import json
from pathlib import Path

import pytest

from statelib.cli.answers import ANSWERS
from statelib.flows.checkpoint.steps import begin
from statelib.flows.cleanup.explanation import why
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.cleanup.without_file import discard
from statelib.flows.lifecycle.renaming import head_after_renaming
from statelib.flows.savepoint.fork import fork
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState
from statelib.savepoints.verification.snapshots import verify_at
from tests.integration.garbage import TALLY, days, events, needed, save, stored, tally
from tests.integration.shop_cli import call, refused, said
from tests.support.worlds import checkpoint_of, day

NAME = PipelineName("tally")


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    made = tally(tmp_path)
    days(made, 1, 4)
    return made


def file_of(deployment: Deployment, name: str = "tally") -> Path:
    return Path(deployment.pipelines_directory) / f"{name}.yaml"


def test_a_pipeline_without_a_file_is_named_and_deleted_only_on_request(deployment: Deployment) -> None:
    saved, before = save(deployment, "kept"), stored(deployment)
    file_of(deployment).unlink()
    result = call(deployment, "gc")
    assert (result.exit_code, result.stdout) == (0, "nothing to delete\n")
    assert "tally has no pipeline file" in result.stderr
    assert "4 checkpoints, 12 files" in result.stderr
    assert "statelib pipelines discard tally" in result.stderr
    (offer,) = json.loads(said(deployment, "gc", "--json"))["without_file"]
    assert (offer["checkpoints"], offer["stays"]) == ([1, 2, 3, 4], [saved])
    assert stored(deployment) == before
    would = json.loads(said(deployment, "pipelines", "discard", "tally", "--dry-run", "--json"))
    assert would["collected"][0]["checkpoints"] == [1, 2, 3, 4]
    assert set(would) == set(ANSWERS["pipelines discard"].keys)
    assert "not confirmed" in call(deployment, "pipelines", "discard", "tally", "--json").stdout
    assert stored(deployment) == before
    said(deployment, "pipelines", "discard", "tally", "--yes")
    assert stored(deployment) == needed(deployment)
    (left,) = deployment.catalog().list(NAME, {CheckpointState.COMPLETED})
    assert (left.checkpoint_id, verify_at(left.directory, own=True).problems) == (saved, ())
    assert json.loads(said(deployment, "gc", "--json"))["without_file"] == []
    assert "nothing to delete" in said(deployment, "pipelines", "discard", "tally", "--yes"), "it may be repeated"


def test_a_dry_run_names_the_base_of_a_run_that_is_aborted(deployment: Deployment) -> None:
    begin(deployment, deployment.pipeline("tally"), day(5), "test")
    file_of(deployment).unlink()
    (would,) = json.loads(said(deployment, "pipelines", "discard", "tally", "--dry-run", "--json"))["collected"]
    (offer,) = json.loads(said(deployment, "gc", "--json"))["without_file"]
    (done,) = json.loads(said(deployment, "pipelines", "discard", "tally", "--yes", "--json"))["collected"]
    assert (would["checkpoints"], would["size_bytes"]) == ([1, 2, 3, 4], done["size_bytes"])
    assert would == done
    assert (offer["checkpoints"], offer["size_bytes"]) == (done["checkpoints"], done["size_bytes"])


def test_a_pipeline_that_has_a_file_is_not_discarded(deployment: Deployment) -> None:
    assert "is its file" in refused(deployment, "pipelines", "discard", "tally", "--yes")
    text = file_of(deployment).read_text()
    file_of(deployment).write_text(text.replace("backend: heap", "backend: heep"))
    assert "may be" in refused(deployment, "pipelines", "discard", "tally", "--yes"), "it does not load"
    result = call(deployment, "gc")
    assert "does not load" in result.stderr
    assert "discard" not in result.stderr
    assert len(deployment.catalog().list(NAME, {CheckpointState.COMPLETED})) == 4


def test_the_state_under_the_earlier_name_is_kept_until_the_renamed_pipeline_has_run(deployment: Deployment) -> None:
    text = file_of(deployment).read_text()
    file_of(deployment).unlink()
    file_of(deployment, "count").write_text(text.replace("name: tally", "name: count\nrenamed_from: [tally]"))
    assert "was renamed to count" in refused(deployment, "pipelines", "discard", "tally", "--yes")
    assert "was renamed to count" in call(deployment, "gc").stderr
    checkpoint_of(deployment, "count", 5, events(5))
    notes = call(deployment, "pipelines", "discard", "tally", "--yes").stderr
    assert "files of tally stay, which are needed by count/1" in notes
    assert "statelib savepoint dispose count/1 gives it up" in notes
    head = deployment.catalog().get(
        PipelineName("count"), CheckpointId(deployment.catalog().head(PipelineName("count")).head or 0)
    )
    assert verify_at(head.directory, own=True).problems == ()


def test_a_snapshot_that_the_renamed_pipeline_continues_from_is_no_orphan(deployment: Deployment) -> None:
    text = file_of(deployment).read_text()
    file_of(deployment).unlink()
    file_of(deployment, "zeta").write_text(text.replace("name: tally", "name: zeta\nrenamed_from: [tally]"))
    head = head_after_renaming(deployment, deployment.pipeline("zeta"), "test")
    assert (head.head, discard(deployment, NAME, "test").checkpoints) == (1, (1, 2, 3, 4))
    assert [swept.files for swept in orphans(deployment, dry_run=False)] == [(), ()]
    directory = deployment.catalog().get(PipelineName("zeta"), CheckpointId(1)).directory
    assert why(deployment, f"{directory}/_metadata").needed_by == ("zeta/1",), "tally/4 is in the same directory"
    checkpoint_of(deployment, "zeta", 5, events(5))


def test_files_that_a_fork_needs_are_kept(deployment: Deployment) -> None:
    file_of(deployment, "twin").write_text(TALLY.replace("name: tally", "name: twin"))
    source = deployment.catalog().get(NAME, CheckpointId(4))
    forked = fork(deployment, deployment.pipeline("twin"), source, "test")
    file_of(deployment).unlink()
    notes = call(deployment, "pipelines", "discard", "tally", "--yes").stderr
    assert "files of tally stay, which are needed by twin/1\n" in notes
    assert verify_at(forked.directory, own=True, storage_root=deployment.storage_root).problems == ()
    checkpoint_of(deployment, "twin", 5, events(5))
