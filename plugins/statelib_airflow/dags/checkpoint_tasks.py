"""Tasks of the checkpoint and savepoint DAGs: each reads the run's context, makes one step, publishes what it says."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException
from airflow.sdk import BaseSensorOperator, get_current_context, task

from statelib_airflow.hooks import hook_of_run
from statelib_airflow.runtime import runs, steps

if TYPE_CHECKING:
    from airflow.sdk import Context

CHECKPOINT_ID = "checkpoint_id"
"""XCom key under which ``begin`` leaves the id; also when there is nothing left to do."""
CHECKPOINT_ID_TEMPLATE = "{{ ti.xcom_pull(task_ids='begin', key='checkpoint_id') }}"
LOOKS_AGAIN_S = 15.0


class BeginOperator(BaseSensorOperator):
    """Allocate the checkpoint of the run's data interval; skipped, and the rest with it, if the state holds it.

    It waits, without a worker's slot, while a run before this one is under way: so a backfill is applied in
    order, however many of its runs Airflow starts at once."""

    template_fields: Sequence[str] = ("pipeline_file",)

    def __init__(self, *, pipeline_file: str, **kwargs: Any) -> None:
        wait = {"poke_interval": LOOKS_AGAIN_S, "exponential_backoff": True, "max_wait": timedelta(minutes=1)}
        super().__init__(mode="reschedule", **{**wait, **kwargs})
        self.pipeline_file = pipeline_file

    def poke(self, context: "Context") -> bool:
        begun = steps.begin_checkpoint(hook_of_run(), self.pipeline_file, context, assume_ready=True)
        if begun is None:
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
    """Prove the checkpoint complete from storage, and judge it by the pipeline's checks; returns the report's URI.

    What a check of severity quarantine refuses is kept aside, and the run fails here for good: trying again would
    find the same. The next run of the interval begins a new checkpoint."""
    return steps.check(hook_of_run(), pipeline_file, _checkpoint_id(get_current_context()))


@task(task_id="register")
def register(pipeline_file: str, report_uri: str) -> dict[str, int | None]:
    """The commit point. Returns id, bytes, keys and duration, and sends them along with the asset event."""
    context = get_current_context()
    return steps.register(hook_of_run(), pipeline_file, _checkpoint_id(context), report_uri, context)


@task(task_id="abort", retries=2)
def abort(pipeline: str) -> str:
    """Give up the run's checkpoint unless it is complete: then this task is skipped."""
    from statelib.model.record import CheckpointState, why

    context = get_current_context()
    checkpoint_id = _pulled_id(context)
    if checkpoint_id is None:
        raise AirflowSkipException("no checkpoint was begun: nothing to abort")
    record = steps.abort(hook_of_run(), pipeline, checkpoint_id, runs.failed_tasks(context), context)
    if record.state is CheckpointState.COMPLETED:
        raise AirflowSkipException(f"checkpoint {checkpoint_id} is complete: nothing to abort")
    return f"checkpoint {checkpoint_id} is {record.state}: {why(record)}"


def _pulled_id(context: "Context") -> Any:
    return context["ti"].xcom_pull(task_ids="begin", key=CHECKPOINT_ID)


def _checkpoint_id(context: "Context") -> Any:
    pulled = _pulled_id(context)
    if pulled is None:
        raise AirflowFailException("task begin left no checkpoint id: clear the whole run, begin included")
    return pulled
