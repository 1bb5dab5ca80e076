"""Records of checkpoints, in a word or two."""

from statelib.model.checkpoint import SnapshotKind
from statelib.model.ids import AttemptId, CheckpointId, Epoch, PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState, Owner

PIPE = PipelineName("p")


def checkpoint(
    number: int,
    base: int | None,
    *,
    state: CheckpointState = CheckpointState.COMPLETED,
    owner: Owner = Owner.SYSTEM,
    kind: SnapshotKind = SnapshotKind.CHECKPOINT,
    completed_at_ms: int = 0,
) -> CheckpointRecord:
    return CheckpointRecord(
        PIPE, CheckpointId(number), kind, state, owner, Epoch(number), f"k{number}", 0,
        None if base is None else CheckpointId(base), None, "full", 1, f"file:///state/p/chk-{number}", number,
        attempt=AttemptId(f"{number:032x}"), completed_at_ms=completed_at_ms,
    )  # fmt: skip


def savepoint(number: int, base: int | None, owner: Owner = Owner.USER) -> CheckpointRecord:
    return checkpoint(number, base, owner=owner, kind=SnapshotKind.SAVEPOINT)
