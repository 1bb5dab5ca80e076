"""The tasks of the checkpoint and savepoint DAGs. Each reads the run's context and runs one step."""

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException
from airflow.sdk import BaseSensorOperator, get_current_context, task

from statelib_airflow.hooks import StatelibHook, hook_of_run
from statelib_airflow.runtime import runs, steps

if TYPE_CHECKING:
    from airflow.sdk import Context

CHECKPOINT_ID = "checkpoint_id"
"""The XCom key of the id that ``begin`` allocated, or of the completed checkpoint that it found."""
CHECKPOINT_ID_TEMPLATE = "{{ ti.xcom_pull(task_ids='begin', key='checkpoint_id') }}"
LOOKS_AGAIN_S = 15.0
log = logging.getLogger(__name__)


class BeginOperator(BaseSensorOperator):
    """The task that allocates the checkpoint of the run's data interval. It is skipped if the state has the interval
    already, and so are the tasks after it, except those that still have to publish or to send the event.

    It waits, without a worker's slot, while an earlier run is under way. So a backfill is applied in order, even if
    Airflow starts many of its runs at once. It waits, too, for the end of the interval that an update of an asset or
    the form names: otherwise the later events of the interval would never be applied."""

    template_fields: Sequence[str] = ("pipeline_file",)

    def __init__(self, *, pipeline_file: str, **kwargs: Any) -> None:
        wait = {"poke_interval": LOOKS_AGAIN_S, "exponential_backoff": True, "max_wait": timedelta(minutes=1)}
        longest = {"timeout": timedelta(days=400)}  # a year's partition may be updated in January
        super().__init__(mode="reschedule", **{**wait, **longest, **kwargs})
        self.pipeline_file = pipeline_file

    def poke(self, context: "Context") -> bool:
        try:
            begun = steps.begin_checkpoint(hook_of_run(), self.pipeline_file, context, assume_ready=True)
        except steps.NotYetError as reason:
            log.info("waiting: %s", reason)
            return False
        context["ti"].xcom_push(CHECKPOINT_ID, int(begun.checkpoint_id))
        if begun.already_completed:
            raise AirflowSkipException(f"checkpoint {begun.checkpoint_id} holds this interval already: nothing to do")
        return True


@task(task_id="begin")
def begin_savepoint(pipeline_file: str) -> None:
    """Allocate the savepoint that the run's params ask for; skipped, and with it the rest, if it is written already."""
    context = get_current_context()
    begun = steps.begin_savepoint(hook_of_run(), pipeline_file, context["params"], context)
    context["ti"].xcom_push(CHECKPOINT_ID, int(begun.checkpoint_id))
    if begun.already_completed:
        raise AirflowSkipException(f"savepoint {begun.checkpoint_id} is written already: nothing to do")


@task(task_id="check_completeness")
def check_completeness(pipeline_file: str) -> str:
    """Prove from the storage that the checkpoint is complete, and apply the pipeline's checks. Return the report's URI.

    A checkpoint that a check of severity quarantine refuses goes into quarantine, and the run fails without retries,
    because a retry would have the same result. The next run of the interval begins a new checkpoint."""
    return steps.check(hook_of_run(), pipeline_file, _checkpoint_id(get_current_context()))


@task(task_id="register")
def register(pipeline_file: str) -> dict[str, int | None]:
    """Commit the checkpoint. Return its id, bytes, keys and duration, which the asset event has too.

    If the tasks before were skipped, nothing is committed. The event is sent again if an earlier try of this
    run committed a checkpoint, because that try may have failed before the event was sent. Otherwise the task is
    skipped."""
    context, hook = get_current_context(), hook_of_run()
    if "check_completeness" not in runs.tasks_in_state(context, "skipped"):
        report_uri = context["ti"].xcom_pull(task_ids="check_completeness")
        return steps.register(hook, pipeline_file, _checkpoint_id(context), report_uri, context)
    return _announce_completed(hook, pipeline_file, context, "this run has nothing to register")


@task(task_id="publish")
def publish(pipeline_file: str) -> None:
    """Publish the checkpoint, and those that earlier runs could not publish, to the tables of the pipeline file. Then
    send the asset event. The checkpoint is registered whether this succeeds or fails; a retry, the next run or
    ``statelib publish`` resumes.

    If another run has committed the interval of this one, no event is sent: the task is skipped after publishing."""
    context, hook = get_current_context(), hook_of_run()
    steps.publish(hook, pipeline_file)
    skipped = "this run has registered no checkpoint: what was left to publish is published"
    _announce_completed(hook, pipeline_file, context, skipped)


@task(task_id="abort", retries=2)
def abort(pipeline: str) -> str:
    """Abort the run's checkpoint. The task is skipped if the checkpoint is complete."""
    from statelib.model.record import CheckpointState, why

    context, hook = get_current_context(), hook_of_run()
    checkpoint_id = _pulled_id(context) or steps.pending_of_run(hook, pipeline, context)
    if checkpoint_id is None:
        raise AirflowSkipException("no checkpoint was begun: nothing to abort")
    record = steps.abort(hook, pipeline, checkpoint_id, runs.tasks_in_state(context, "failed"), context)
    if record.state is CheckpointState.COMPLETED:
        raise AirflowSkipException(f"checkpoint {checkpoint_id} is complete: nothing to abort")
    return f"checkpoint {checkpoint_id} is {record.state}: {why(record)}"


def _announce_completed(
    hook: StatelibHook, pipeline_file: str, context: "Context", reason: str
) -> dict[str, int | None]:
    """Send the asset event of the checkpoint that this run has committed, now or in an earlier try. Raise
    AirflowSkipException with the reason if it has committed none."""
    name = hook.pipeline(pipeline_file).name
    completed = steps.completed_by_run(hook, name, context)
    if completed is None:
        raise AirflowSkipException(reason)
    return steps.announce_again(hook, name, completed, context)


def _pulled_id(context: "Context") -> Any:
    return context["ti"].xcom_pull(task_ids="begin", key=CHECKPOINT_ID)


def _checkpoint_id(context: "Context") -> Any:
    pulled = _pulled_id(context)
    if pulled is None:
        raise AirflowFailException("task begin left no checkpoint id: clear the whole run, begin included")
    return pulled
