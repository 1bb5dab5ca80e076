"""Pipelines whose file is gone: what is stored of them is offered by name, and deleted only by a person."""

import json
from pathlib import Path

import pytest

from statelib.cli.answers import ANSWERS
from statelib.flows.savepoint.fork import fork
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState
from statelib.savepoints.verification import verify_at
from tests.integration.garbage import TALLY, days, events, needed, save, stored, tally
from tests.integration.shop_cli import call, refused, said
from tests.support.worlds import checkpoint_of

NAME = PipelineName("tally")


@pytest.fixture
def here(tmp_path: Path) -> Deployment:
    made = tally(tmp_path)
    days(made, 1, 4)
    return made


def file_of(here: Deployment, name: str = "tally") -> Path:
    return Path(here.pipelines_directory) / f"{name}.yaml"


def test_it_is_offered_by_name_and_nothing_is_deleted_unasked(here: Deployment) -> None:
    saved, before = save(here, "kept"), stored(here)
    file_of(here).unlink()
    result = call(here, "gc")
    assert (result.exit_code, result.stdout) == (0, "nothing to delete\n")
    assert "tally has no pipeline file" in result.stderr
    assert "4 checkpoints, 8 files" in result.stderr
    assert "statelib pipelines discard tally" in result.stderr
    (offer,) = json.loads(said(here, "gc", "--json"))["without_file"]
    assert (offer["checkpoints"], offer["stays"]) == ([1, 2, 3, 4], [saved])
    assert stored(here) == before
    would = json.loads(said(here, "pipelines", "discard", "tally", "--dry-run", "--json"))
    assert would["collected"][0]["checkpoints"] == [1, 2, 3, 4]
    assert set(would) == set(ANSWERS["pipelines discard"].keys)
    assert "not confirmed" in call(here, "pipelines", "discard", "tally", "--json").stdout
    assert stored(here) == before
    said(here, "pipelines", "discard", "tally", "--yes")
    assert stored(here) == needed(here)
    (left,) = here.catalog().list(NAME, {CheckpointState.COMPLETED})
    assert (left.checkpoint_id, verify_at(left.directory, own=True).problems) == (saved, ())
    assert json.loads(said(here, "gc", "--json"))["without_file"] == []
    assert "nothing to delete" in said(here, "pipelines", "discard", "tally", "--yes"), "it may be repeated"


def test_a_pipeline_that_has_a_file_is_not_discarded(here: Deployment) -> None:
    assert "is its file" in refused(here, "pipelines", "discard", "tally", "--yes")
    text = file_of(here).read_text()
    file_of(here).write_text(text.replace("backend: heap", "backend: heep"))
    assert "may be" in refused(here, "pipelines", "discard", "tally", "--yes"), "it does not load"
    result = call(here, "gc")
    assert "does not load" in result.stderr
    assert "discard" not in result.stderr
    assert len(here.catalog().list(NAME, {CheckpointState.COMPLETED})) == 4


def test_a_renamed_pipeline_keeps_what_it_has_not_gone_on_from_yet(here: Deployment) -> None:
    text = file_of(here).read_text()
    file_of(here).unlink()
    file_of(here, "count").write_text(text.replace("name: tally", "name: count\nrenamed_from: [tally]"))
    assert "was renamed to count" in refused(here, "pipelines", "discard", "tally", "--yes")
    assert "was renamed to count" in call(here, "gc").stderr
    checkpoint_of(here, "count", 5, events(5))
    said(here, "pipelines", "discard", "tally", "--yes")
    head = here.catalog().get(PipelineName("count"), CheckpointId(here.catalog().head(PipelineName("count")).head or 0))
    assert verify_at(head.directory, own=True).problems == ()


def test_what_a_fork_needs_stays(here: Deployment) -> None:
    file_of(here, "twin").write_text(TALLY.replace("name: tally", "name: twin"))
    source = here.catalog().get(NAME, CheckpointId(4))
    forked = fork(here, here.pipeline("twin"), source, "test")
    file_of(here).unlink()
    said(here, "pipelines", "discard", "tally", "--yes")
    assert verify_at(forked.directory, own=True, storage_root=here.storage_root).problems == ()
    checkpoint_of(here, "twin", 5, events(5))
