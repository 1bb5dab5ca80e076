"""Errors of the catalog about one checkpoint, and the text that describes the checkpoint in them."""

from statelib.errors import ConflictError
from statelib.model.ids import Epoch
from statelib.model.record import CheckpointRecord, Owner, why


def fenced(record: CheckpointRecord, epoch: Epoch, newest: Epoch) -> ConflictError:
    """Return the error for a commit whose epoch is no longer the pipeline's newest one."""
    return ConflictError(
        f"commit of {record.kind.lower()} {record.pipeline}/{record.checkpoint_id} with epoch {epoch} refused: "
        f"it is {described(record)} in epoch {record.epoch}, the pipeline's newest epoch is {newest}",
        kind="fenced",
        hint="another run took over; begin again",
    )


def same_owner(record: CheckpointRecord, owner: Owner) -> CheckpointRecord:
    """Return ``record`` if it belongs to ``owner``. Raises ConflictError (``already-imported``) if it does not."""
    if record.owner is owner:
        return record
    raise ConflictError(
        f"{record.directory} is checkpoint {record.pipeline}/{record.checkpoint_id} already, "
        f"owned by {record.owner}, not {owner}",
        kind="already-imported",
        hint=f"restore checkpoint {record.checkpoint_id} by its id",
    )


def described(record: CheckpointRecord) -> str:
    """Return the state of a checkpoint, with the reason in brackets if it has one."""
    return f"{record.state} ({why(record)})" if record.reason else str(record.state)
