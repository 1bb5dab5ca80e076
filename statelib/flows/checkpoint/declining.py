"""Record in the catalog why an attempt at a checkpoint or savepoint failed."""

from collections.abc import Iterator
from contextlib import contextmanager

from statelib.errors import StatelibError
from statelib.flows.checkpoint.snapshot_plan import SnapshotPlan
from statelib.flows.wiring import Deployment
from statelib.model.failure import CheckpointFailureReason, failure_in
from statelib.snapshots.execution import EXPIRED


@contextmanager
def declining(deployment: Deployment, plan: SnapshotPlan) -> Iterator[None]:
    """What ends the attempt here is noted in the catalog, for whoever gives the checkpoint up: the next attempt
    may still complete it. Beyond its deadline it is aborted: no attempt may go on with it."""
    try:
        yield
    except Exception as error:
        try:
            _note(deployment, plan, error)
        except StatelibError as second:
            error.add_note(f"also while noting the failure: {second}")
        raise


def _note(deployment: Deployment, plan: SnapshotPlan, error: Exception) -> None:
    catalog, record = deployment.catalog(), plan.record
    failure, text = failure_in(error, plan.attempt)
    if isinstance(error, StatelibError):
        failure, text = CheckpointFailureReason.CHECKPOINT_DECLINED, f"{error.kind}: {error.message}"
        if error.kind == EXPIRED:
            failure, text = CheckpointFailureReason.CHECKPOINT_EXPIRED, f"attempt {plan.attempt}: {error.message}"
            catalog.abort(record.pipeline, record.checkpoint_id, text, failure)
            return
    catalog.note_failure(record.pipeline, record.checkpoint_id, plan.attempt, failure, text)
