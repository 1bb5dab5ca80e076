"""Stopping with a savepoint, and draining: the timers that fire, the content of the savepoint, and how the pipeline
continues."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from statelib.errors import InvalidRequestError
from statelib.flows.checkpoint.steps import abort, begin, check, register
from statelib.flows.lifecycle import suspension
from statelib.flows.restore.plan import RestorePlan
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId
from statelib.model.record import ClaimMode
from statelib.model.termination import JobStatus, StopMode
from statelib.savepoints.opened import Checkpoint
from tests.integration.shop_cli import said
from tests.integration.test_windows_flow import BACKENDS, FIRST, HOUR, counts, deployment_with, passes, run_day
from tests.support.worlds import day, publish_here


def stop(deployment: Deployment, mode: StopMode, form: str = "canonical", target: str | None = None) -> CheckpointId:
    pipeline = deployment.pipeline("toll")
    return begin_savepoint(
        deployment, pipeline, format=form, target=target, note="", owner="test", key=f"{mode} {form}", stop=mode
    ).checkpoint_id


def finish(deployment: Deployment, number: CheckpointId) -> Checkpoint:
    pipeline = deployment.pipeline("toll")
    publish_here(deployment, pipeline, number)
    register(deployment, pipeline, number, check(deployment, pipeline, number).report_uri)
    return resolve(deployment, f"toll/{number}")


@pytest.mark.parametrize(("backend", "strategy"), BACKENDS)
def test_suspending_keeps_windows_and_draining_closes_them(backend: str, strategy: str, tmp_path: Path) -> None:
    deployment = deployment_with(tmp_path, backend, strategy)
    pipeline = deployment.pipeline("toll")
    one = run_day(deployment, 1, passes(("a", "N", 23), ("b", "S", 23.5)))
    assert counts(one, "hourly")

    saved = finish(deployment, stop(deployment, StopMode.SUSPEND))
    assert counts(saved, "hourly") == counts(one, "hourly")
    assert saved.manifest is not None
    assert not saved.manifest.drained
    assert suspension.status(deployment, pipeline).status is JobStatus.CANCELED
    with pytest.raises(InvalidRequestError, match="is cancelled"):
        begin(deployment, pipeline, day(2), "test")
    suspension.resume(deployment, "toll", "test")

    form = "native" if strategy == "full" else "canonical"
    drained = finish(deployment, stop(deployment, StopMode.DRAIN, form))
    assert drained.manifest is not None
    assert drained.manifest.drained
    assert counts(drained, "hourly") == counts(drained, "moving") == {}
    for timers in ("_timer_state/event_hourly", "_timer_state/event_moving"):
        assert drained.to_arrow(timers).num_rows == 0
    assert drained.to_arrow("total").sort_by("key").to_pydict()["key"] == ["a", "b"]
    assert drained.position() == one.position(), "events that may follow a restore are not late"


def test_a_restored_pipeline_continues_where_the_savepoint_ended(tmp_path: Path) -> None:
    """After suspending, the windows of the evening become complete. After draining, late events open them anew."""
    deployment = deployment_with(tmp_path, "rocksdb", "incremental")
    pipeline = deployment.pipeline("toll")
    run_day(deployment, 1, passes(("a", "N", 23.1)))
    suspended = stop(deployment, StopMode.SUSPEND)
    finish(deployment, suspended)
    suspension.resume(deployment, "toll", "test")
    drained = stop(deployment, StopMode.DRAIN)
    finish(deployment, drained)
    for number, of_the_evening in ((suspended, 2), (drained, 1)):
        apply_restore(
            deployment, pipeline, plan_restore(deployment, pipeline, str(number), None, ClaimMode.NO_CLAIM), "test"
        )
        assert suspension.status(deployment, pipeline).status is JobStatus.RUNNING
        checkpoint_id = begin(deployment, pipeline, replace(day(2), end_ms=FIRST + 41 * HOUR), "test").checkpoint_id
        publish_here(deployment, pipeline, checkpoint_id, passes(("a", "N", 23.2), ("a", "N", 40)))
        snapshot = resolve(deployment, register(deployment, pipeline, checkpoint_id).directory)
        assert counts(snapshot, "hourly") == {("a", 23, 24): of_the_evening, ("a", 40, 41): 1}


def test_the_plan_of_a_restore_states_that_the_savepoint_is_drained(tmp_path: Path) -> None:
    deployment = deployment_with(tmp_path, "rocksdb", "incremental")
    pipeline = deployment.pipeline("toll")
    run_day(deployment, 1, passes(("a", "N", 23.1)))
    sentence = "later events of these windows begin them again, empty"
    for mode in (StopMode.SUSPEND, StopMode.DRAIN):
        number, drained = stop(deployment, mode), mode is StopMode.DRAIN
        finish(deployment, number)
        for snapshot in (str(number), resolve(deployment, f"toll/{number}").directory):
            plan = plan_restore(deployment, pipeline, snapshot, None, ClaimMode.NO_CLAIM)
            assert (RestorePlan.from_json(plan.to_json()).drained, sentence in plan.describe()) == (drained, drained)
        printed = " ".join(said(deployment, "restore", "toll", str(number), "--dry-run").split())
        assert (sentence in printed) is drained
        as_json = json.loads(said(deployment, "restore", "toll", str(number), "--dry-run", "--json"))
        assert as_json["plan"]["drained"] is drained
        suspension.resume(deployment, "toll", "test")


def test_after_a_failed_stop_the_pipeline_continues(tmp_path: Path) -> None:
    deployment = deployment_with(tmp_path, "heap", "canonical")
    run_day(deployment, 1, passes(("a", "N", 23)))
    abort(deployment, "toll", stop(deployment, StopMode.SUSPEND), "the target is full")
    assert suspension.status(deployment, deployment.pipeline("toll")).status is JobStatus.RUNNING
    run_day(deployment, 2, passes(("a", "N", 40)))


def test_a_target_that_is_a_file_is_named_and_the_pipeline_continues(tmp_path: Path) -> None:
    deployment = deployment_with(tmp_path, "heap", "canonical")
    run_day(deployment, 1, passes(("a", "N", 23)))
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InvalidRequestError, match=f"^{file}: expected a directory, found a file ") as caught:
        stop(deployment, StopMode.SUSPEND, target=str(file))
    assert caught.value.kind == "not-a-directory"
    assert suspension.status(deployment, deployment.pipeline("toll")).status is JobStatus.RUNNING
    run_day(deployment, 2, passes(("a", "N", 40)))
