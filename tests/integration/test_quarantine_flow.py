"""Checkpoints in quarantine: their files stay complete, nothing builds on them, and only a person releases or disposes
of them."""

import json
from pathlib import Path

import pytest

from statelib.coordinator.orphans import Verdict
from statelib.errors import ConflictError, CorruptStateError, InvalidRequestError
from statelib.flows.checkpoint.steps import abort, begin, check, register
from statelib.flows.cleanup.explanation import why
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.orphans import orphans, survey
from statelib.flows.cleanup.retention import retire
from statelib.flows.restore.quarantine import release
from statelib.flows.restore.steps import plan_restore
from statelib.flows.views.verification import verify_pipeline
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState, ClaimMode
from statelib.quality.facts import QualityReport
from statelib.savepoints.verification.snapshots import verify_at
from statelib.storage.uris import local_path
from tests.integration.gate_faults import FOURTH, NAME, RATINGS, fourth_day, regulars, three_days, visits
from tests.integration.shop_cli import call, refused, said
from tests.support.worlds import checkpoint_of, day, publish_here

CHEAP = """
  expectations:
    - {state: guests, expect: column_values_to_be_between, column: cheapest, min_value: 0, severity: quarantine}
"""
TEXT = RATINGS.partition("checks:")[0].replace("bytes: 1}", "bytes: 1, retain: {count: 2}}") + f"checks: {CHEAP}"


def judged(deployment: Deployment, checkpoint_id: CheckpointId = FOURTH) -> QualityReport:
    return check(deployment, deployment.pipeline(NAME), checkpoint_id)


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    """Return a deployment with three valid days, and a fourth one in quarantine: three guests paid a negative
    amount."""
    made = three_days(tmp_path, TEXT)
    fourth_day(made, visits(regulars(0, 3), price=-1.0))
    with pytest.raises(CorruptStateError, match="in quarantine: state guests: column_values_to_be_between") as caught:
        judged(made)
    assert caught.value.kind == "quarantined"
    assert "statelib checkpoints release ratings/4" in caught.value.hint
    return made


def test_the_next_run_does_not_build_on_a_checkpoint_in_quarantine(deployment: Deployment) -> None:
    pipeline, catalog = deployment.pipeline(NAME), deployment.catalog()
    with pytest.raises(CorruptStateError, match="is in quarantine"):
        judged(deployment)  # The task runs once more.
    with pytest.raises(ConflictError, match="it is QUARANTINED"):
        register(deployment, pipeline, FOURTH)
    given_up = abort(deployment, NAME, FOURTH, "run r: check_completeness failed")
    assert (given_up.state, catalog.head(NAME).head) == (CheckpointState.QUARANTINED, 3)
    for way in ("4", given_up.directory):
        with pytest.raises(InvalidRequestError) as refusal:
            plan_restore(deployment, pipeline, way, None, ClaimMode.NO_CLAIM)
        assert refusal.value.kind == "quarantined"
    assert "ratings/4 is in quarantine" in refused(deployment, "restore", NAME, "4", "--yes")
    assert checkpoint_of(deployment, NAME, 4, visits(regulars())) == 5
    assert catalog.get(NAME, CheckpointId(5)).base == 3
    with pytest.raises(ConflictError, match="head is now ratings/5") as late:
        release(deployment, NAME, FOURTH, "test", "too late")
    assert late.value.kind == "overtaken"


def test_a_checkpoint_in_quarantine_can_be_neither_forked_nor_held_nor_adopted(
    deployment: Deployment, tmp_path: Path
) -> None:
    """The attempts are a pipeline with the new name of the first one, a fork, and a reader that would hold the
    checkpoint."""
    directory = deployment.catalog().get(NAME, FOURTH).directory
    file = tmp_path / "pipelines" / "ratings.yaml"
    text = file.read_text()
    (tmp_path / "pipelines" / "branch.yaml").write_text(text.replace("name: ratings", "name: branch"))
    assert "ratings/4 is in quarantine" in refused(deployment, "pipelines", "fork", "ratings/4", "branch")
    file.write_text(text.replace("name: ratings", "name: stars\nrenamed_from: [ratings]"))
    for path in (directory, f"{directory}/_metadata"):
        with pytest.raises(InvalidRequestError) as refusal:
            plan_restore(deployment, deployment.pipeline("stars"), path, None, ClaimMode.NO_CLAIM)
        assert refusal.value.kind == "quarantined"
    third = directory.replace("chk-4", "chk-3")
    assert plan_restore(deployment, deployment.pipeline("stars"), third, None, ClaimMode.NO_CLAIM).checkpoint_id is None
    # The pipeline continues from the head of its earlier name.
    begin(deployment, deployment.pipeline("stars"), day(4), "test")
    head = deployment.catalog().head(PipelineName("stars")).head
    assert deployment.catalog().get(PipelineName("stars"), head or FOURTH).directory == third
    with pytest.raises(InvalidRequestError, match="only a COMPLETED one can be pinned"):
        deployment.catalog().cleanup.pin(NAME, FOURTH, "test", 1000)


def test_verify_includes_a_checkpoint_in_quarantine_only_by_its_id(deployment: Deployment) -> None:
    assert verify_pipeline(deployment, NAME).checkpoints == 3
    assert said(deployment, "verify", "-p", NAME).count("whole") == 3
    assert said(deployment, "verify", "ratings/4").count("whole") == 1


def test_a_checkpoint_in_quarantine_can_be_inspected_and_keeps_its_files(deployment: Deployment) -> None:
    record = deployment.catalog().get(NAME, FOURTH)
    retire(deployment)
    collect_garbage(deployment)
    assert verify_at(record.directory, own=True).problems == ()
    verdicts = {each.verdict for each in survey(deployment, NAME, 0, looks_only=True)}
    assert verdicts == {Verdict.LIVE}
    metadata = why(deployment, f"{record.directory}/_metadata")
    assert (metadata.state, metadata.needed_by) == ("QUARANTINED", ("ratings/4",))
    files = Path(local_path(record.directory)).glob("*-*")
    assert {why(deployment, str(file)).needed_by for file in files} == {("ratings/4",)}
    assert [each.files for each in orphans(deployment, NAME, grace_ms=0, dry_run=False, force=True)] == [()]
    assert "-1.0" in said(deployment, "export", "ratings/4", "--state", "guests")
    assert "quarantine" in said(deployment, "checkpoints", "list")
    shown = said(deployment, "checkpoints", "show", "ratings/4")
    assert "quarantined: FINALIZE_CHECKPOINT_FAILURE: state guests" in shown
    assert "in quarantine" in shown
    assert "guest 'guest-0000'" in shown
    results = json.loads(said(deployment, "checkpoints", "show", "ratings/4", "--json"))["quality"]
    (bad,) = [r for r in results if not r["passed"]]
    assert (bad["group"], bad["severity"], bad["checked"], bad["failed"]) == ("state_guests", "QUARANTINE", 200, 3)
    rows = {r["checkpoint_id"]: r for r in json.loads(said(deployment, "checkpoints", "list", "--json"))}
    assert rows[4]["gate"] == {"checked": len(results), "failed": 1, "warned": 0, "passed": False}
    assert rows[3]["gate"] is None, "nobody judged it"
    pages = deployment.catalog().get(NAME, FOURTH).report
    assert "in quarantine" in Path(pages.removeprefix("file://")).read_text()


def test_a_released_checkpoint_becomes_the_head(deployment: Deployment) -> None:
    pipeline = deployment.pipeline(NAME)
    again = begin(deployment, pipeline, day(4), "a second run").checkpoint_id
    output = said(deployment, "checkpoints", "release", "ratings/4", "--note", "refunds")
    assert output == "ratings/4 is completed: the next run builds on it\n"
    record = deployment.catalog().get(NAME, FOURTH)
    assert (record.state, deployment.catalog().head(NAME).head) == (CheckpointState.COMPLETED, 4)
    assert "refunds; was in quarantine for: FINALIZE_CHECKPOINT_FAILURE" in record.note
    assert deployment.catalog().get(NAME, again).state is CheckpointState.ABORTED
    assert begin(deployment, pipeline, day(4), "a third run").already_completed
    assert checkpoint_of(deployment, NAME, 5, visits(regulars())) == 6
    assert "released" in said(deployment, "checkpoints", "list")
    with pytest.raises(InvalidRequestError) as refusal:
        release(deployment, NAME, FOURTH, "test", "")
    assert refusal.value.kind == "not-quarantined"


def test_a_disposed_checkpoint_leaves_no_file(deployment: Deployment) -> None:
    record = deployment.catalog().get(NAME, FOURTH)
    assert "Would be deleted" in said(deployment, "checkpoints", "dispose", "ratings/4", "--dry-run")
    assert Path(record.directory.removeprefix("file:").replace("//", "/")).exists()
    assert "Deleted" in said(deployment, "checkpoints", "dispose", "ratings/4")
    assert not Path(record.directory.removeprefix("file:").replace("//", "/")).exists()
    assert deployment.catalog().get(NAME, FOURTH).state is CheckpointState.DELETED
    assert call(deployment, "checkpoints", "dispose", "ratings/3").exit_code == 2, "a completed one is retention's"
    checkpoint_of(deployment, NAME, 4, visits(regulars()))


def test_retention_removes_a_checkpoint_in_quarantine_that_is_older_than_everything_kept(
    deployment: Deployment,
) -> None:
    for number in (4, 5):
        assert FOURTH not in retire(deployment, dry_run=True)[0].checkpoints
        checkpoint_of(deployment, NAME, number, visits(regulars()))
    assert FOURTH in retire(deployment)[0].checkpoints, "the newest two are younger"
    collect_garbage(deployment)
    assert deployment.catalog().get(NAME, FOURTH).state is CheckpointState.DELETED


def test_a_checkpoint_in_quarantine_counts_as_a_failure_until_one_completes(deployment: Deployment) -> None:
    assert deployment.catalog().suspension.failures(NAME) == 1
    said(deployment, "checkpoints", "dispose", "ratings/4")
    assert deployment.catalog().suspension.failures(NAME) == 1
    checkpoint_of(deployment, NAME, 4, visits(regulars()))
    assert deployment.catalog().suspension.failures(NAME) == 0


def test_the_newest_run_of_the_gate_is_the_verdict(tmp_path: Path) -> None:
    deployment = three_days(tmp_path, TEXT)
    pipeline = deployment.pipeline(NAME)
    number = begin(deployment, pipeline, day(4), "test").checkpoint_id
    publish_here(deployment, pipeline, number, visits(regulars()))
    file = next(p for p in (tmp_path / "state" / NAME / "chk-4").iterdir() if p.name != "_metadata")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(CorruptStateError, match="is not complete"):
        judged(deployment)
    assert not deployment.catalog().gate.summaries(NAME)[NAME, FOURTH].passed
    with pytest.raises(CorruptStateError, match="was refused by the gate"):
        register(deployment, pipeline, FOURTH)  # This is the effect if somebody marks the task as successful.
    file.write_bytes(whole)
    assert judged(deployment).verdict is None
    assert deployment.catalog().gate.summaries()[NAME, FOURTH].passed
    assert all(r.passed for r in deployment.catalog().gate.results(NAME, FOURTH))
