"""The declaration of operator state is changed: every command treats this in the same way, by the names of states,
before it writes."""

import sys
from pathlib import Path

import pytest

from statelib.errors import InvalidRequestError
from statelib.flows.checkpoint.steps import begin
from statelib.flows.restore.layout import lay_out
from statelib.flows.restore.steps import plan_restore
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.model.record import ClaimMode
from statelib.savepoints.opened import Checkpoint
from tests.integration.shop_cli import call
from tests.integration.test_operator_state_flow import VISITS, deployment, events, held, rescale
from tests.support.worlds import checkpoint_of, day

__all__ = ["deployment"]

WEIGHTS = "  weights: {mode: broadcast, key: string, value: double}\n"
CHANGES = {
    "taken out": ("", "stored operator state 'weights'", "non-restored-state"),
    "another type": (WEIGHTS.replace("double", "long"), "operator state 'weights'", "state-schema-changed"),
    "another key": (WEIGHTS.replace("key: string", "key: long"), "operator state 'weights'", "state-schema-changed"),
    "another mode": ("  weights: {mode: list, element: double}\n", "operator state 'weights'", "state-schema-changed"),
}  # fmt: skip


def opened(deployment: Deployment, number: int = 1) -> Checkpoint:
    return resolve(deployment, f"visits/{number}")


def change(deployment: Deployment, text: str, more: str = "") -> None:
    written = VISITS.replace("THRESHOLD", "0").replace(WEIGHTS, text).replace(":update", ":quiet") + more
    Path(deployment.pipelines_directory, "visits.yaml").write_text(written)


def written(deployment: Deployment) -> tuple[list[Path], int]:
    """Return all files, and the number of rows of checkpoints."""
    files = sorted(Path(deployment.storage_root).rglob("*"))
    return files, len(deployment.catalog().list(PipelineName("visits")))


@pytest.fixture(autouse=True)
def _a_function_without_operator_state(deployment: Deployment) -> None:
    def quiet(_: object, state: object) -> object:
        return state

    sys.modules["statelib_test_operator_functions"].quiet = quiet  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", CHANGES)
def test_every_command_refuses_a_declaration_that_would_lose_state(deployment: Deployment, name: str) -> None:
    text, message, kind = CHANGES[name]
    checkpoint_of(deployment, "visits", 1, events(1))
    change(deployment, text)
    pipeline = deployment.pipeline("visits")
    ways = {
        "begin": lambda: begin(deployment, pipeline, day(2), "test"),
        "savepoint": lambda: begin_savepoint(
            deployment, pipeline, format="native", target=None, note="", owner="test", key="k"
        ),
        "restore by id": lambda: plan_restore(deployment, pipeline, "1", None, ClaimMode.NO_CLAIM),
        "restore by path": lambda: plan_restore(
            deployment, pipeline, opened(deployment).directory, 3, ClaimMode.NO_CLAIM
        ),
        "layout": lambda: lay_out(opened(deployment), 2, pipeline),
    }
    before = written(deployment)
    for way, judge in ways.items():
        with pytest.raises(InvalidRequestError) as caught:
            judge()
        assert (caught.value.kind, message in caught.value.message) == (kind, True), way
        assert "allow_non_restored_state: true" in caught.value.hint, way
    result = call(deployment, "pipelines", "validate", "--state")
    assert result.exit_code == 1
    assert "operator state 'weights'" in result.stderr
    assert written(deployment) == before


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_dropped_state_is_left_out_if_allowed_and_the_others_continue(
    deployment: Deployment, name: str, parallelism: int
) -> None:
    checkpoint_of(deployment, "visits", 1, events(1))
    before = held(opened(deployment))
    change(deployment, CHANGES[name][0], "allow_non_restored_state: true\n")
    validated = call(deployment, "pipelines", "validate", "--state")
    assert validated.exit_code == 0
    assert "visits: not restored: operator state 'weights' (broadcast<string, double>)" in validated.stdout
    assert ": COMPATIBLE_AS_IS" in validated.stdout
    plan = plan_restore(deployment, deployment.pipeline("visits"), "1", None, ClaimMode.NO_CLAIM)
    assert [line for line in plan.non_restored if "operator state 'weights' (broadcast<string, double>)" in line]
    rescale(deployment, "1", parallelism)
    moved = checkpoint_of(deployment, "visits", 2, events(2))
    after = held(opened(deployment, moved))
    assert sorted(after["guests"]) == sorted(before["guests"])
    assert after.get("weights", []) == []
