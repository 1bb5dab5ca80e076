"""Each kind of fault is caught by the check that should catch it, by no other one, and by none where there is none."""

from pathlib import Path

import pytest

from statelib.definition.checks.names import MAX_NAME_BYTES
from statelib.errors import CorruptStateError
from statelib.flows.checkpoint.steps import check, register
from statelib.model.record import CheckpointState
from statelib.quality.expected import MAX_NAME
from statelib.storage.uris import local_path
from tests.integration.gate_faults import FAULTS, FOURTH, NAME, RATINGS, Fault, fourth_day, three_days
from tests.support.worlds import CHECKOUT

AFTER = {"": "registered", "WARN": "registered, shown", "QUARANTINE": "quarantine", "FAIL": "aborted"}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_fault_is_detected_by_its_check_and_by_no_other(fault: Fault, tmp_path: Path) -> None:
    deployment = three_days(tmp_path)
    fault.spoil(deployment)
    pipeline = deployment.pipeline(NAME)
    kind = ""
    try:
        check(deployment, pipeline, FOURTH)
    except CorruptStateError as error:
        kind = error.kind
    results = deployment.catalog().gate.results(NAME, FOURTH)
    caught = [(r.group, r.name, r.severity) for r in results if not r.passed]
    expected = [] if fault.group is None else [(fault.group, fault.check, fault.severity)]
    assert caught == expected, [r.sentences for r in results if not r.passed]
    assert all(r.sentences for r in results if not r.passed)
    assert kind == {"": "", "WARN": "", "QUARANTINE": "quarantined", "FAIL": "gate-failed"}[fault.severity]
    record = deployment.catalog().get(NAME, FOURTH)
    if fault.severity in ("", "WARN"):
        assert register(deployment, pipeline, FOURTH).state is CheckpointState.COMPLETED
    else:
        aside = fault.severity == "QUARANTINE"
        assert record.state is (CheckpointState.QUARANTINED if aside else CheckpointState.PENDING)
        assert deployment.catalog().head(NAME).head == 3, "and nothing builds on it"


def test_the_document_has_the_table_of_faults() -> None:
    rows = [f"| {f.name} | {f.check or 'none'} | {AFTER[f.severity]} |" for f in FAULTS]
    table = "\n".join(["| fault | check that catches it | what follows |", "|---|---|---|", *rows])
    assert table in (CHECKOUT / "docs" / "gate.md").read_text()


def test_a_state_with_the_longest_name_that_is_allowed_has_a_page(tmp_path: Path) -> None:
    deployment = three_days(tmp_path, RATINGS.replace("guests", "g" * MAX_NAME_BYTES))
    fourth_day(deployment)
    report = check(deployment, deployment.pipeline(NAME), FOURTH)
    assert report.passed
    (page,) = Path(local_path(report.report_uri)).parent.rglob(f"*{'g' * MAX_NAME}*.html")
    assert "cheapest" in page.read_text()
