"""The life of a checkpoint and of a pipeline through the flows: no Spark, no Airflow."""

from dataclasses import replace
from pathlib import Path

import pytest

from statelib.definition.pipeline import Pipeline
from statelib.errors import ConflictError, InvalidRequestError
from statelib.flows.checkpoint.declining import declining
from statelib.flows.checkpoint.next_intervals import next_intervals
from statelib.flows.checkpoint.publishing import publish
from statelib.flows.checkpoint.snapshot_plan import plan_snapshot
from statelib.flows.checkpoint.steps import abort, begin, register
from statelib.flows.cleanup.garbage import collect_garbage, dispose
from statelib.flows.cleanup.retention import retire
from statelib.flows.lifecycle import suspension
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.views.validation import state_effects
from statelib.flows.wiring import Deployment
from statelib.model.failure import CheckpointFailureReason
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState, ClaimMode
from statelib.model.termination import JobStatus
from statelib.savepoints.opened import open_checkpoint
from statelib.savepoints.verification.snapshots import verify_at
from statelib.snapshots.execution import expired
from statelib.spark.snapshot.subtask.worker import Work, snapshot_subtask
from tests.integration.garbage import TALLY as TALLY_FILE
from tests.integration.garbage import days, events, save, stored, tally
from tests.integration.shop_cli import said
from tests.support.worlds import checkpoint_of, day, publish_here

TALLY = PipelineName("tally")


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return tally(tmp_path)


def write(deployment: Deployment, checkpoint: str, more: str = "") -> None:
    """Write the pipeline file again, with other settings."""
    text = TALLY_FILE.replace("checkpoint: {inline", f"checkpoint: {{{checkpoint}, inline") + more
    (Path(deployment.pipelines_directory) / "tally.yaml").write_text(text)


def test_the_first_of_two_tries_of_a_subtask_wins_and_the_other_leaves_no_file(deployment: Deployment) -> None:
    pipeline = deployment.pipeline("tally")
    checkpoint_id = begin(deployment, pipeline, day(1), "test").checkpoint_id
    plan = plan_snapshot(deployment, pipeline, checkpoint_id)
    assert plan is not None
    none = events(1).slice(0, 0)
    work = Work(deployment, pipeline, plan)
    reports = [snapshot_subtask(work, subtask, task, none) for subtask, task in ((0, 1), (1, 2), (0, 3))]
    assert len(stored(deployment)) == 3
    publish(deployment, pipeline, plan, 0, [*reports, reports[0]])
    left = {Path(uri).name for uri in stored(deployment)} - {"_metadata"}
    assert left == {Path(f.path).name for r in reports[:2] for f in r.files}
    assert verify_at(plan.record.directory, own=True).problems == ()
    assert register(deployment, pipeline, checkpoint_id).state is CheckpointState.COMPLETED


def test_a_subtask_without_state_has_no_entry_in_the_metadata(deployment: Deployment) -> None:
    """The result is null, not an empty snapshot (R147): a restore has nothing to match with it."""
    pipeline = deployment.pipeline("tally")
    plan = plan_snapshot(deployment, pipeline, begin(deployment, pipeline, day(1), "test").checkpoint_id)
    assert plan is not None
    work, none = Work(deployment, pipeline, plan), events(1).slice(0, 0)
    first, second = (snapshot_subtask(work, subtask, subtask, none) for subtask in (0, 1))
    publish(deployment, pipeline, plan, 0, [first, replace(second, keyed=None, operator=None, files=())])
    operator = open_checkpoint(plan.record.directory, storage_root=deployment.storage_root).keyed_operator()
    assert (operator.parallelism, [index for index, _ in operator.subtasks]) == (2, [0])


def test_an_expired_attempt_aborts_its_checkpoint_and_no_try_continues(deployment: Deployment) -> None:
    pipeline = deployment.pipeline("tally")
    checkpoint_id = begin(deployment, pipeline, day(1), "test").checkpoint_id
    plan = plan_snapshot(deployment, pipeline, checkpoint_id)
    assert plan is not None
    with pytest.raises(ConflictError), declining(deployment, plan):
        raise expired()
    record = deployment.catalog().get(TALLY, checkpoint_id)
    assert (record.state, record.failure) == (CheckpointState.ABORTED, CheckpointFailureReason.CHECKPOINT_EXPIRED)
    with pytest.raises(ConflictError, match="CHECKPOINT_EXPIRED: attempt") as refusal:
        plan_snapshot(deployment, pipeline, checkpoint_id)
    assert refusal.value.kind == "not-pending"
    shown = said(deployment, "checkpoints", "show", f"tally/{checkpoint_id}")
    assert "aborted: CHECKPOINT_EXPIRED: attempt" in shown
    assert '"failure": "CHECKPOINT_EXPIRED"' in said(deployment, "checkpoints", "list", "--all", "--json")


def test_other_errors_leave_the_checkpoint_to_the_next_try(deployment: Deployment) -> None:
    pipeline = deployment.pipeline("tally")
    plan = plan_snapshot(deployment, pipeline, begin(deployment, pipeline, day(1), "test").checkpoint_id)
    assert plan is not None
    with pytest.raises(ConflictError), declining(deployment, plan):
        raise ConflictError("x", kind="foreign-metadata")
    noted = deployment.catalog().get(TALLY, plan.record.checkpoint_id)
    declined = CheckpointFailureReason.CHECKPOINT_DECLINED
    assert (noted.state, noted.failure, noted.reason) == (CheckpointState.PENDING, declined, "foreign-metadata: x")
    given_up = abort(deployment, "tally", plan.record.checkpoint_id, "run r: snapshot failed")
    assert (given_up.failure, given_up.reason) == (declined, "run r: snapshot failed: foreign-metadata: x")


def test_the_recorded_failure_of_an_attempt_is_removed_when_another_one_completes(deployment: Deployment) -> None:
    pipeline = deployment.pipeline("tally")
    checkpoint_id = begin(deployment, pipeline, day(1), "test").checkpoint_id
    plan = plan_snapshot(deployment, pipeline, checkpoint_id)
    assert plan is not None
    with pytest.raises(ValueError, match="not mine"), declining(deployment, plan):
        raise ValueError("not mine\nmore")
    noted = deployment.catalog().get(TALLY, checkpoint_id)
    assert (noted.failure, noted.reason) == (CheckpointFailureReason.TASK_FAILURE, "ValueError: not mine")
    publish_here(deployment, pipeline, checkpoint_id, events(1))
    with pytest.raises(ValueError, match="late"), declining(deployment, plan):
        raise ValueError("late")
    done = register(deployment, pipeline, checkpoint_id)
    assert (done.state, done.failure, done.reason) == (CheckpointState.COMPLETED, None, "")


def test_the_worker_writes_nothing_beyond_the_deadline(deployment: Deployment) -> None:
    pipeline = deployment.pipeline("tally")
    plan = plan_snapshot(deployment, pipeline, begin(deployment, pipeline, day(1), "test").checkpoint_id)
    assert plan is not None
    assert plan.record.deadline_ms is not None
    late = plan.record.deadline_ms
    with pytest.raises(ConflictError) as refusal:
        snapshot_subtask(Work(deployment, pipeline, plan), 0, 1, events(1).slice(0, 0), lambda: late)
    assert refusal.value.kind == "checkpoint-expired"
    assert stored(deployment) == set()


def test_an_abort_after_the_deadline_is_recorded_as_an_expiry(deployment: Deployment) -> None:
    pipeline = deployment.pipeline("tally")
    first = begin(deployment, pipeline, day(1), "test").checkpoint_id
    declined = CheckpointFailureReason.CHECKPOINT_DECLINED
    assert abort(deployment, "tally", first, "x", declined).failure is declined
    second = begin(deployment, pipeline, day(1), "test").checkpoint_id
    deadline_ms = deployment.catalog().get(TALLY, second).deadline_ms
    assert deadline_ms is not None
    record = abort(deployment, "tally", second, "x", declined, clock=lambda: deadline_ms + 1)
    assert (record.failure, record.reason) == (CheckpointFailureReason.CHECKPOINT_EXPIRED, "x")


def test_the_next_run_keeps_the_base_of_an_aborted_checkpoint(deployment: Deployment) -> None:
    pipeline = deployment.pipeline("tally")
    days(deployment, 1, 2)
    lost = begin(deployment, pipeline, day(3), "test").checkpoint_id
    abort(deployment, "tally", lost, "x")
    plan = plan_snapshot(deployment, pipeline, begin(deployment, pipeline, day(3), "test").checkpoint_id)
    assert plan is not None
    assert (plan.record.checkpoint_id, plan.record.base) == (lost + 1, 2)


def test_too_many_failures_stop_the_pipeline_and_skip_no_interval(deployment: Deployment) -> None:
    write(deployment, "tolerable_failures: 1")
    pipeline = deployment.pipeline("tally")
    days(deployment, 1, 1)
    for _ in range(2):
        abort(deployment, "tally", begin(deployment, pipeline, day(2), "test").checkpoint_id, "x")
    for number in (2, 3):
        with pytest.raises(InvalidRequestError) as refusal:
            begin(deployment, pipeline, day(number), "test")
        assert refusal.value.kind == ("too-many-failures" if number == 2 else "interval-gap")
    assert suspension.status(deployment, pipeline).status is JobStatus.FAILED
    assert "failed" in said(deployment, "pipelines", "status", "tally")
    assert "runs, its head is tally/1" in said(deployment, "pipelines", "resume", "tally")
    checkpoint_of(deployment, "tally", 2, events(2))
    status = suspension.status(deployment, pipeline)
    assert (status.status, status.failures, status.last) == (JobStatus.RUNNING, 0, day(2))


@pytest.mark.parametrize("policy", ["RETAIN_ON_CANCELLATION", "RETAIN_ON_FAILURE", None])
def test_the_policy_decides_about_the_checkpoints_of_a_cancelled_pipeline(
    deployment: Deployment, policy: str | None
) -> None:
    write(
        deployment,
        "timeout_s: 60" if policy is None else f"retain: {{count: 2, after_termination: {policy}}}, timeout_s: 60",
    )
    if policy is not None:
        file = Path(deployment.pipelines_directory) / "tally.yaml"
        file.write_text(file.read_text().replace(", retain: {count: 2}", ""))
    pipeline = deployment.pipeline("tally")
    days(deployment, 1, 2)
    saved = save(deployment, "mine")
    begin(deployment, pipeline, day(3), "test")
    assert "is cancelled" in said(deployment, "pipelines", "cancel", "tally")
    assert suspension.status(deployment, pipeline).status is JobStatus.CANCELED
    (retired,) = retire(deployment)
    collect_garbage(deployment)
    gone = policy == "RETAIN_ON_FAILURE"
    assert (retired.status, retired.checkpoints) == (JobStatus.CANCELED, (1, 2) if gone else ())
    assert any("chk-2" in uri for uri in stored(deployment)) is not gone
    with pytest.raises(InvalidRequestError) as refusal:
        begin(deployment, pipeline, day(3), "test")
    assert refusal.value.kind == ("state-discarded" if gone else "pipeline-cancelled")
    chosen = plan_restore(deployment, pipeline, str(saved), None, ClaimMode.NO_CLAIM)
    assert not apply_restore(deployment, pipeline, chosen, "test").cancelled
    assert checkpoint_of(deployment, "tally", 3, events(3)) > saved, "the savepoint outlived it"


def test_a_discarded_pipeline_starts_without_state_only_on_request(deployment: Deployment) -> None:
    write(deployment, "timeout_s: 60")
    file = Path(deployment.pipelines_directory) / "tally.yaml"
    file.write_text(file.read_text().replace("{count: 2}", "{after_termination: NEVER_RETAIN_AFTER_TERMINATION}"))
    days(deployment, 1, 2)
    suspension.cancel(deployment, "tally", "test")
    retire(deployment)
    collect_garbage(deployment)
    assert stored(deployment) == set()
    assert retire(deployment)[0].checkpoints == (), "and nothing is removed twice"
    assert "runs, it has no head" in said(deployment, "pipelines", "resume", "tally", "--from-nothing")
    checkpoint_of(deployment, "tally", 1, events(1))


def renamed(deployment: Deployment, more: str = "") -> Pipeline:
    """Give the pipeline the name ``count``, with other settings, and return it."""
    text = TALLY_FILE.replace("name: tally", "name: count\nrenamed_from: [tally]") + more
    (Path(deployment.pipelines_directory) / "tally.yaml").unlink(missing_ok=True)
    (Path(deployment.pipelines_directory) / "count.yaml").write_text(text)
    return deployment.pipeline("count")


def test_a_renamed_pipeline_without_state_does_not_begin_with_that_of_its_former_name(deployment: Deployment) -> None:
    days(deployment, 1, 2)
    renamed(deployment)
    checkpoint_of(deployment, "count", 3, events(3))
    name, catalog = PipelineName("count"), deployment.catalog()
    suspension.cancel(deployment, name, "test")
    head = catalog.head(name)
    assert head.head is not None
    catalog.cleanup.subsume(name, [head.head], head.epoch, terminated=True)
    suspension.resume(deployment, name, "test", from_nothing=True)
    assert state_effects(deployment, [deployment.pipeline(name)]) == ([], [])
    assert catalog.get(name, checkpoint_of(deployment, "count", 4, events(4))).base is None


def test_the_first_run_after_a_renaming_begins_where_the_state_ends(deployment: Deployment) -> None:
    days(deployment, 1, 2)
    pipeline = renamed(deployment, 'schedule: {cron: "@daily", start: 2013-01-01}\n')
    assert next_intervals(deployment, pipeline, None, None) == [day(3)]
    former = deployment.catalog().head(TALLY)
    deployment.catalog().cleanup.subsume(TALLY, [CheckpointId(2)], former.epoch, terminated=True)
    with pytest.raises(InvalidRequestError) as refusal:
        next_intervals(deployment, pipeline, None, None)
    assert refusal.value.kind == "state-discarded"


def test_a_snapshot_is_restored_by_its_path_again_after_its_second_row_was_disposed_of(deployment: Deployment) -> None:
    days(deployment, 1, 2)
    pipeline, catalog = renamed(deployment), deployment.catalog()
    directory = catalog.get(TALLY, CheckpointId(2)).directory
    checkpoint_of(deployment, "count", 3, events(3))
    dispose(deployment, PipelineName("count"), CheckpointId(1))
    plan = plan_restore(deployment, pipeline, directory, None, ClaimMode.NO_CLAIM)
    assert apply_restore(deployment, pipeline, plan, "test").head == 3
    checkpoint_of(deployment, "count", 3, events(3))


def test_a_finished_schedule_ends_the_pipeline(deployment: Deployment) -> None:
    write(deployment, "timeout_s: 60", 'schedule: {cron: "@daily", start: 2013-01-01, end: 2013-01-02}\n')
    file = Path(deployment.pipelines_directory) / "tally.yaml"
    file.write_text(file.read_text().replace("{count: 2}", "{count: 9, after_termination: RETAIN_ON_CANCELLATION}"))
    days(deployment, 1, 1)
    assert retire(deployment)[0].status is JobStatus.RUNNING
    days(deployment, 2, 2)
    (retired,) = retire(deployment)
    assert (retired.status, retired.checkpoints) == (JobStatus.FINISHED, (CheckpointId(1), CheckpointId(2)))
