"""``pipelines plan``: what the next run reads of the state, subtask by subtask, is what it then reads."""

from pathlib import Path

import pytest

from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.views.next_run import ALL, NOTHING, TOUCHED, NextRun, next_run
from statelib.flows.wiring import Deployment
from statelib.model.record import ClaimMode
from statelib.restore import costs
from tests.integration.test_touched_state import FILE, SHOPS, deployment_in, run

PUBLISHED = 'publish: {feed: {state: total, target: "{data}/feed", format: parquet, mode: changes}}\n'
BLIND = FILE.replace(PUBLISHED, "").replace(
    "strategy: changelog,", "strategy: changelog, blind: true, materialize_after_checkpoints: 1,"
)


def planned(deployment: Deployment) -> NextRun:
    return next_run(deployment, deployment.pipeline("sales"))


def readings(deployment: Deployment) -> list[tuple[str, str]]:
    return [(each.reads, each.because) for each in planned(deployment).subtasks]


def test_a_pipeline_without_state_reads_nothing(tmp_path: Path) -> None:
    plan = planned(deployment_in(tmp_path))
    assert (plan.base, plan.strategy) == (None, "changelog")
    assert [(each.reads, str(each.key_groups)) for each in plan.subtasks] == [(NOTHING, "0-3"), (NOTHING, "4-7")]


def test_the_limit_of_touched_keys_is_that_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "REQUEST_BYTES", 10_000)
    deployment = deployment_in(tmp_path)
    run(deployment, 1)
    first = planned(deployment)
    assert [(each.reads, each.because) for each in first.subtasks] == [
        (TOUCHED, "they cost less than half of everything")
    ] * 2
    limits = [each.fewer_keys_than for each in first.subtasks]
    assert all(limit is not None and 1 < limit < SHOPS / 8 for limit in limits)
    assert all(each.size_bytes > 100_000 for each in first.subtasks)
    assert set(run(deployment, 2, 1, 2, 3, 4).restored_from) == {"touched"}
    assert "touched" not in run(deployment, 3, *range(4 * max(limit or 0 for limit in limits))).restored_from


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (", reads: whole", (ALL, "checkpoint.reads is whole")),
        (", reads: touched", (TOUCHED, "checkpoint.reads is touched")),
        (", local_recovery: true", (ALL, "local_recovery makes copies of the whole state")),
        (", materialize_after_bytes: 1", (ALL, "single entries would not cost less than half")),
    ],
)
def test_the_plan_names_the_setting_that_decides(tmp_path: Path, settings: str, expected: tuple[str, str]) -> None:
    deployment = deployment_in(tmp_path, settings)
    run(deployment, 1, *range(50))
    assert readings(deployment) == [expected] * 2


def test_a_blind_run_reads_nothing_until_its_log_has_reached_the_limit(tmp_path: Path) -> None:
    deployment = deployment_in(tmp_path, file=BLIND)
    run(deployment, 1, *range(20))
    blind = (NOTHING, "checkpoint.blind: it adds a delta to the change log")
    assert readings(deployment) == [blind] * 2
    assert set(run(deployment, 2, *range(20)).restored_from) == {"blind"}
    full = (ALL, "its change log has 1 parts (materialize_after_checkpoints)")
    assert readings(deployment) == [full] * 2
    assert "blind" not in run(deployment, 3, 1).restored_from


def test_the_plan_has_the_parallelism_of_the_last_restore(tmp_path: Path) -> None:
    deployment = deployment_in(tmp_path)
    run(deployment, 1, *range(20))
    pipeline = deployment.pipeline("sales")
    apply_restore(deployment, pipeline, plan_restore(deployment, pipeline, "1", 1, ClaimMode.NO_CLAIM), "test")
    assert [str(each.key_groups) for each in planned(deployment).subtasks] == ["0-7"]
    assert len(run(deployment, 2, 1).restored_from) == 1
