"""Record in the catalog why an attempt at a checkpoint or savepoint failed."""

from collections.abc import Iterator
from contextlib import contextmanager

from statelib.errors import StatelibError
from statelib.flows.checkpoint.snapshot_plan import SnapshotPlan
from statelib.flows.wiring import Deployment
from statelib.model.failure import CheckpointFailureReason
from statelib.model.task_error import failure_in, task_error_in
from statelib.snapshots.execution import EXPIRED


@contextmanager
def declining(deployment: Deployment, plan: SnapshotPlan) -> Iterator[None]:
    """Record in the catalog why the block failed, for whoever aborts the checkpoint later. The next attempt may still
    complete the checkpoint. If its deadline has passed, it is aborted at once."""
    try:
        yield
    except Exception as error:
        try:
            _record(deployment, plan, error)
        except StatelibError as second:
            error.add_note(f"recording the failure in the catalog failed too: {second}")
        raise


def _record(deployment: Deployment, plan: SnapshotPlan, error: Exception) -> None:
    catalog, record = deployment.catalog(), plan.record
    failure, text = failure_in(error, plan.attempt)
    if isinstance(error, StatelibError) and task_error_in(error, plan.attempt) is None:
        failure, text = CheckpointFailureReason.CHECKPOINT_DECLINED, f"{error.kind}: {error.message}"
        if error.kind == EXPIRED:
            failure, text = CheckpointFailureReason.CHECKPOINT_EXPIRED, f"attempt {plan.attempt}: {error.message}"
            catalog.abort(record.pipeline, record.checkpoint_id, text, failure)
            return
    catalog.note_failure(record.pipeline, record.checkpoint_id, plan.attempt, failure, text)
