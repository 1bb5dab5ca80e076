"""``statelib catalog rebuild``: forged snapshots do not move the head, and a snapshot that is repaired later does."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from statelib.flows.checkpoint.steps import begin
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.cleanup.retention import retire
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import CheckpointManifest
from statelib.model.ids import MAX_NUMBER, CheckpointId, Epoch, PipelineName
from statelib.savepoints.opened import open_checkpoint
from statelib.savepoints.verification.snapshots import verify_at
from statelib.storage.uris import local_path
from tests.integration.garbage import TALLY as TALLY_FILE
from tests.integration.garbage import days, events, save, tally
from tests.integration.hostile_snapshots import Change, also_naming, copied, described
from tests.integration.shop_cli import call, said
from tests.support.worlds import checkpoint_of, day, publish_here

TALLY = PipelineName("tally")


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    made = tally(tmp_path)
    file = tmp_path / "pipelines" / "tally.yaml"
    file.write_text(TALLY_FILE + "on_gap: allow\n")
    days(made, 1, 3)
    save(made, "k", str(tmp_path / "mine"))
    return made


def forgetting(deployment: Deployment, tmp_path: Path) -> Deployment:
    return replace(deployment, catalog_url=f"sqlite:///{tmp_path}/new.db")


def stranger(**fields: object) -> Change:
    return lambda manifest: replace(manifest, **fields)


FORGED: dict[str, Callable[[CheckpointManifest], CheckpointManifest]] = {
    "epoch": stranger(epoch=Epoch(MAX_NUMBER)),
    "generation": stranger(generation=999, base=None),
    "id": stranger(checkpoint_id=CheckpointId(MAX_NUMBER)),
    "base": stranger(base=CheckpointId(1), epoch=Epoch(99)),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_foreign_savepoint_does_not_change_the_head(deployment: Deployment, tmp_path: Path, what: str) -> None:
    saved = deployment.catalog().get(TALLY, CheckpointId(4))
    shutil.rmtree(tmp_path / "scratch")
    copied(saved.directory, str(tmp_path / "theirs" / "one"), FORGED[what])
    again = forgetting(deployment, tmp_path)
    done = call(again, "catalog", "rebuild", "--also", tmp_path / "theirs", "--yes")
    assert done.exit_code == (1 if what == "id" else 0), done.output
    now, before = again.catalog().head(TALLY), deployment.catalog().head(TALLY)
    assert (now.head, now.generation, now.epoch) == (before.head, before.generation, before.epoch + 1)
    number = checkpoint_of(again, "tally", 4, events(4))
    assert number < 10
    record = again.catalog().get(TALLY, number)
    assert (record.base, verify_at(record.directory, own=True).problems) == (3, ())


@pytest.mark.parametrize(("what", "number", "head"), [("epoch", 3, 2), ("id", MAX_NUMBER, 3)])
def test_a_forged_checkpoint_after_which_no_number_is_left_is_refused(
    deployment: Deployment, tmp_path: Path, what: str, number: int, head: int
) -> None:
    """It lies where only the system writes, so that its numbers count. ``head``: the newest one beside it."""
    place = f"{deployment.root_uri()}/tally/chk-{number}"
    copied(deployment.catalog().get(TALLY, CheckpointId(3)).directory, place, FORGED[what])
    again = forgetting(deployment, tmp_path)
    done = call(again, "catalog", "rebuild", "--yes", "--json")
    assert (done.exit_code, json.loads(done.stdout)["error"]) == (2, "numbers-exhausted")
    assert again.catalog().head(TALLY).head is None, "nothing of it was entered"
    shutil.rmtree(local_path(place))
    said(again, "catalog", "rebuild", "--yes")
    assert again.catalog().head(TALLY).head == head


def test_a_foreign_snapshot_in_the_savepoints_directory_hides_no_checkpoint(
    deployment: Deployment, tmp_path: Path
) -> None:
    """This also holds if the pipeline's name sorts after ``savepoints``, and if the manifest cannot be entered."""
    saved = deployment.catalog().get(TALLY, CheckpointId(4))
    victim = described(f"{deployment.root_uri()}/tally/chk-1/_metadata")
    third = stranger(checkpoint_id=CheckpointId(3), base=None)
    copied(saved.directory, f"{deployment.root_uri()}/savepoints/savepoint-tally-3", third)
    named = also_naming(victim)
    copied(saved.directory, str(tmp_path / "theirs"), lambda m: replace(named(m), checkpoint_id=CheckpointId(7)))
    again = forgetting(deployment, tmp_path)
    done = call(again, "catalog", "rebuild", "--also", tmp_path / "theirs", "--yes")
    assert done.exit_code == 1
    assert "but it is another one" in done.stderr
    assert "which this snapshot did not write" in done.stderr
    assert [r.checkpoint_id for r in again.catalog().list(TALLY)] == [3, 2, 1]
    assert again.catalog().head(TALLY).head == 3
    retire(again)
    collect_garbage(again)
    assert not verify_at(again.catalog().get(TALLY, CheckpointId(3)).directory, own=True).problems


def test_the_attempt_of_a_foreign_snapshot_makes_no_file_an_orphan(deployment: Deployment, tmp_path: Path) -> None:
    """A run is in progress that is not in the rebuilt catalog: its files have the grace period, whatever a savepoint
    contains."""
    saved = deployment.catalog().get(TALLY, CheckpointId(4))
    begun = begin(deployment, deployment.pipeline("tally"), day(4), "test").checkpoint_id
    publish_here(deployment, deployment.pipeline("tally"), begun, events(4))
    place = f"{deployment.root_uri()}/tally/chk-{begun}"
    attempt = deployment.catalog().get(TALLY, begun).attempt
    assert attempt is not None
    files = sorted(Path(local_path(place)).iterdir())
    (Path(local_path(place)) / "_metadata").unlink()
    opened = open_checkpoint(saved.directory)
    assert opened.manifest is not None
    copied(saved.directory, str(tmp_path / "theirs"), stranger(attempt=attempt, files=()))
    again = forgetting(deployment, tmp_path)
    call(again, "catalog", "rebuild", "--also", tmp_path / "theirs", "--yes")
    orphans(again, dry_run=False)
    assert [file for file in files if not file.exists()] == [file for file in files if file.name == "_metadata"]


@pytest.mark.parametrize("began", [False, True])
def test_the_newest_checkpoint_becomes_the_head_once_it_is_repaired(
    deployment: Deployment, tmp_path: Path, began: bool
) -> None:
    newest = Path(local_path(deployment.root_uri()), "tally", "chk-3")
    data = next(path for path in sorted(newest.iterdir()) if path.name != "_metadata")
    good = data.read_bytes()
    data.write_bytes(good[:-1])
    again = forgetting(deployment, tmp_path)
    assert call(again, "catalog", "rebuild", "--yes").exit_code == 1
    assert again.catalog().head(TALLY).head == 2
    if began:
        again.catalog().restore(TALLY, CheckpointId(2), None, "to the same one")
    data.write_bytes(good)
    output = said(again, "catalog", "rebuild", "--merge", "--yes")
    expected = 2 if began else 3
    assert f"the head of tally is tally/{expected}, generation {int(began)}" in output
    assert again.catalog().head(TALLY).head == expected
    assert begin(again, again.pipeline("tally"), day(3), "test").already_completed is not began


def test_a_checkpoint_that_an_earlier_listing_missed_becomes_the_head(deployment: Deployment, tmp_path: Path) -> None:
    place = Path(local_path(deployment.root_uri()), "tally", "chk-3")
    hidden = place.rename(tmp_path / "hidden")
    again = forgetting(deployment, tmp_path)
    said(again, "catalog", "rebuild", "--yes")
    before = again.catalog().head(TALLY)
    assert before.head == 2
    again.catalog().suspension.cancel(TALLY, "test")
    hidden.rename(place)
    assert "the head of tally is tally/3, generation 0" in said(again, "catalog", "rebuild", "--merge", "--yes")
    assert again.catalog().head(TALLY).epoch > before.epoch, "what was begun on the old one is not registered"
