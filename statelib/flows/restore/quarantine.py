"""Checkpoints in quarantine: nothing may continue from them until a person releases them."""

from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState


def set_aside(record: CheckpointRecord) -> CorruptStateError:
    """Return the error that ends the run whose checkpoint the gate put into quarantine."""
    return CorruptStateError(_message(record), kind="quarantined", hint=_hint(record))


def check_not_quarantined(record: CheckpointRecord) -> None:
    """Raise InvalidRequestError (``quarantined``) if the checkpoint is in quarantine. Its hint says what can be
    done."""
    if record.state is CheckpointState.QUARANTINED:
        raise InvalidRequestError(_message(record), kind="quarantined", hint=_hint(record))


def release(
    deployment: Deployment, pipeline: PipelineName, checkpoint_id: CheckpointId, owner: str, note: str
) -> CheckpointRecord:
    """Release a checkpoint from quarantine: it becomes the pipeline's head, and the pending checkpoint is aborted.

    Raises as :meth:`statelib.catalog.commit.gate.Gate.release`, and as :meth:`Deployment.open` if the checkpoint is no
    longer whole on storage."""
    catalog = deployment.catalog()
    record = catalog.get(pipeline, checkpoint_id)
    if record.state is CheckpointState.QUARANTINED:
        deployment.open(record)
    return catalog.gate.release(pipeline, checkpoint_id, owner, note)


def _message(record: CheckpointRecord) -> str:
    return f"checkpoint {record.pipeline}/{record.checkpoint_id} is in quarantine: {record.reason}"


def _hint(record: CheckpointRecord) -> str:
    name = f"{record.pipeline}/{record.checkpoint_id}"
    return (
        f"look at it: statelib checkpoints show {name}; then statelib checkpoints release {name} --note WHY, or "
        f"statelib checkpoints dispose {name}"
    )
