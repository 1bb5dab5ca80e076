"""``statelib catalog rebuild`` with a checkpoint that the gate had refused: it never becomes the base of a pipeline."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statelib.errors import CorruptStateError
from statelib.flows import wiring
from statelib.flows.checkpoint.steps import abort, begin, check, register
from statelib.flows.wiring import Deployment
from statelib.model.record import CheckpointState
from tests.integration.gate_faults import FOURTH, NAME, RATINGS, fourth_day, regulars, three_days, visits
from tests.integration.shop import environment
from tests.integration.shop_cli import refused, said
from tests.support.worlds import checkpoint_of, day, new_deployment

LEVELS = ("quarantine", "fail")
REBUILD = ("catalog", "rebuild")


def text(severity: str) -> str:
    expected = "state: guests, expect: column_values_to_be_between, column: cheapest, min_value: 0"
    return f"{RATINGS.partition('checks:')[0]}checks:\n  expectations:\n    - {{{expected}, severity: {severity}}}\n"


def refused_head(deployment: Deployment) -> None:
    """Run a fourth day that does not pass the gate, and end it as the DAG would."""
    fourth_day(deployment, visits(regulars(0, 3), price=-1.0))
    with pytest.raises(CorruptStateError):
        check(deployment, deployment.pipeline(NAME), FOURTH)
    abort(deployment, NAME, FOURTH, "run r: check_completeness failed")


def forgetting(deployment: Deployment) -> Deployment:
    """Return the deployment with an empty catalog over the same storage."""
    return replace(deployment, catalog_url=deployment.catalog_url.replace("catalog.db", "new.db"))


def planned(deployment: Deployment, *more: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(said(deployment, *REBUILD, "--json", *more))["pipelines"][0]
    return answer


def states(answer: dict[str, Any]) -> dict[int, str]:
    return {entry["checkpoint_id"]: entry["state"] for entry in answer["entered"]}


def assert_kept_aside(again: Deployment, reason: str) -> None:
    """Assert that the checkpoint is in quarantine: in the plan with the reason, then in the catalog. The pipeline
    continues from the third day."""
    plan = said(again, *REBUILD, "--dry-run")
    assert "the head of ratings is ratings/3" in plan
    assert again.catalog().pipelines() == ()
    answer = planned(again, "--yes")
    assert states(answer)[4] == "QUARANTINED"
    assert reason in answer["entered"][3]["reason"]
    record, catalog = again.catalog().get(NAME, FOURTH), again.catalog()
    assert (record.state, record.completed_at_ms, catalog.head(NAME).head) == (CheckpointState.QUARANTINED, None, 3)
    assert reason in record.reason
    assert "ratings/4 is in quarantine" in refused(again, "restore", NAME, "4", "--yes")


@pytest.mark.parametrize("severity", LEVELS)
def test_a_checkpoint_that_the_gate_had_refused_is_put_into_quarantine(tmp_path: Path, severity: str) -> None:
    deployment = three_days(tmp_path, text(severity))
    refused_head(deployment)
    again = forgetting(deployment)
    assert_kept_aside(again, "column_values_to_be_between(column=cheapest, min_value=0)")
    assert "in quarantine" in said(again, "checkpoints", "show", "ratings/4") or severity == "fail"
    assert "guest 'guest-0000'" in said(again, "checkpoints", "show", "ratings/4")
    assert begin(again, again.pipeline(NAME), day(4), "test").checkpoint_id == 5
    output = said(again, "checkpoints", "release", "ratings/4", "--note", "refunds")
    assert "is completed" in output
    assert again.catalog().head(NAME).head == 4
    assert checkpoint_of(again, NAME, 5, visits(regulars())) == 6


def test_such_a_checkpoint_can_be_disposed_of(tmp_path: Path) -> None:
    deployment = three_days(tmp_path, text("quarantine"))
    refused_head(deployment)
    again = forgetting(deployment)
    planned(again, "--yes")
    said(again, "checkpoints", "dispose", "ratings/4")
    assert not (tmp_path / "state" / NAME / "chk-4").exists()
    assert said(again, "verify").count("whole") == 3


def test_a_checkpoint_that_passes_the_gate_becomes_the_head_even_if_it_was_not_registered(tmp_path: Path) -> None:
    deployment = three_days(tmp_path, RATINGS.replace("rehearse_every: 4", "rehearse_every: 1"))
    fourth_day(deployment)
    answer = planned(forgetting(deployment), "--dry-run")
    assert (set(states(answer).values()), answer["head"]["head"]) == ({"COMPLETED"}, 4)
    because = [entered["state_because"] for entered in answer["entered"]]
    assert because == [*["another one was built on it"] * 3, "all of it was read, and it passes the gate"]
    check(deployment, deployment.pipeline(NAME), FOURTH)
    register(deployment, deployment.pipeline(NAME), FOURTH)
    again = forgetting(deployment)
    assert "it passes the gate" in " ".join(said(again, *REBUILD, "--yes").split())
    catalog = again.catalog()
    assert (catalog.get(NAME, FOURTH).state, catalog.head(NAME).head) == (CheckpointState.COMPLETED, 4)
    assert catalog.gate.results(NAME, FOURTH) == deployment.catalog().gate.results(NAME, FOURTH)
    assert not any(tmp_path.joinpath("scratch").iterdir())


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda file: file.unlink(), "could not be judged: "),
        (lambda file: file.write_text("name: ["), "has no valid file of pipeline ratings"),
        (lambda file: file.write_text(file.read_text().replace("  texts:", "  words:")), "has other states now"),
    ],
)
def test_a_checkpoint_that_cannot_be_judged_is_reported_and_entered_only_by_an_option(
    tmp_path: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    deployment = three_days(tmp_path, text("fail"))
    spoil(tmp_path / "pipelines" / "ratings.yaml")
    again = forgetting(deployment)
    plan = planned(again, "--dry-run")
    assert (states(plan)[3], plan["head"]["head"]) == ("QUARANTINED", 2)
    assert reason in plan["entered"][2]["reason"]
    assert planned(again, "--dry-run", "--leave-out", "ratings/3")["head"]["head"] == 2
    assert "ratings/2 is not one of the checkpoints" in refused(again, *REBUILD, "-n", "--take", "ratings/2")
    taken = planned(again, "--yes", "--take", "ratings/3")
    assert (states(taken)[3], taken["head"]["head"]) == ("COMPLETED", 3)
    assert reason in again.catalog().get(NAME, again.catalog().head(NAME).head or FOURTH).note


def test_a_checkpoint_without_its_base_is_judged_without_comparisons(tmp_path: Path) -> None:
    """The base was removed, for example because retention kept only the newest checkpoint."""
    deployment = three_days(tmp_path)
    for number in (1, 2):
        (tmp_path / "state" / NAME / f"chk-{number}" / "_metadata").unlink()
    answer = planned(forgetting(deployment), "--dry-run")
    assert (states(answer), answer["head"]["head"], answer["missing_bases"]) == ({3: "COMPLETED"}, 3, [2])


def test_an_old_catalog_also_gets_the_refused_checkpoint_in_quarantine(tmp_path: Path) -> None:
    deployment = three_days(tmp_path, text("quarantine"))
    (tmp_path / "new.db").write_bytes((tmp_path / "catalog.db").read_bytes())
    refused_head(deployment)
    again = forgetting(deployment)
    answer = planned(again, "--merge", "--yes")
    assert (states(answer), answer["head"]["head"]) == ({4: "QUARANTINED"}, 3)
    again_known = planned(again, "--merge", "--yes")
    assert (again_known["entered"], again_known["already_known"]) == ([], [1, 2, 3, 4])


@pytest.mark.parametrize("severity", LEVELS)
def test_a_refused_checkpoint_on_s3_is_put_into_quarantine(
    tmp_path: Path, s3: object, bucket: str, severity: str
) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "ratings.yaml").write_text(text(severity))
    deployment = replace(
        new_deployment(tmp_path, tmp_path, tmp_path / "pipelines"), storage_root=f"s3://{bucket}/state"
    )
    deployment = wiring.deployment(environment(deployment))
    for number in (1, 2, 3):
        checkpoint_of(deployment, NAME, number, few(5.0))
    fourth_day(deployment, few(-1.0))
    with pytest.raises(CorruptStateError):
        check(deployment, deployment.pipeline(NAME), FOURTH)
    assert_kept_aside(forgetting(deployment), "column_values_to_be_between")


def few(price: float) -> pa.Table:
    return visits(regulars(0, 20), price=price)
