"""Checkpoints that the gate kept aside: refused wherever somebody would build on them, until a person releases them."""

from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState
from statelib.savepoints.opened import open_checkpoint


def set_aside(record: CheckpointRecord) -> CorruptStateError:
    """What the run is told whose checkpoint the gate kept aside."""
    return CorruptStateError(_told(record), kind="quarantined", hint=_hint(record))


def check_not_quarantined(record: CheckpointRecord) -> None:
    """Raise InvalidRequestError (``quarantined``) that names the ways out."""
    if record.state is CheckpointState.QUARANTINED:
        raise InvalidRequestError(_told(record), kind="quarantined", hint=_hint(record))


def release(
    deployment: Deployment, pipeline: PipelineName, checkpoint_id: CheckpointId, owner: str, note: str
) -> CheckpointRecord:
    """Take what is in quarantine as good: it becomes the head, and what is pending is given up.

    Raises as :meth:`statelib.catalog.commit.gate.Gate.release`, and what :func:`open_checkpoint` raises if it is not
    there any more as it was."""
    catalog = deployment.catalog()
    record = catalog.get(pipeline, checkpoint_id)
    if record.state is CheckpointState.QUARANTINED:
        open_checkpoint(record.directory, own=True, storage_root=deployment.storage_root)
    return catalog.gate.release(pipeline, checkpoint_id, owner, note)


def _told(record: CheckpointRecord) -> str:
    return f"checkpoint {record.pipeline}/{record.checkpoint_id} is in quarantine: {record.reason}"


def _hint(record: CheckpointRecord) -> str:
    name = f"{record.pipeline}/{record.checkpoint_id}"
    return (
        f"look at it: statelib checkpoints show {name}; then statelib checkpoints release {name} --note WHY, or "
        f"statelib checkpoints dispose {name}"
    )
