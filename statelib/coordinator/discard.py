"""The discard plan: what gc removes from storage, in which order, and the proof that nobody needs it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from statelib.errors import CorruptStateError
from statelib.model.amounts import number_of
from statelib.model.checkpoint import SnapshotKind
from statelib.model.ids import AttemptId, CheckpointId, PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState


@dataclass(frozen=True)
class CondemnedFile:
    """A file without references. ``uri`` is absolute; ``size_bytes`` as recorded. ``directory``, ``kind`` and
    ``attempt``: of the checkpoint that it was recorded for."""

    uri: str
    size_bytes: int
    created_by: CheckpointId
    directory: str = ""
    kind: SnapshotKind = SnapshotKind.CHECKPOINT
    attempt: AttemptId | None = None


@dataclass(frozen=True)
class DiscardPlan:
    """First the ``_metadata`` of ``checkpoints``, then ``files``, then the directories that are empty:
    so where a ``_metadata`` lies, everything it names does too."""

    pipeline: PipelineName
    checkpoints: tuple[CheckpointRecord, ...]
    files: tuple[CondemnedFile, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def discard_plan(
    pipeline: PipelineName,
    checkpoints: Sequence[CheckpointRecord],
    condemned: Sequence[CondemnedFile],
    referenced: Collection[str],
) -> DiscardPlan:
    """Put the removal in order. ``referenced``: URIs that any checkpoint, pending ones included, refers to.

    Raises CorruptStateError: ``discard-of-referenced`` (a condemned file has a reference),
    ``discard-of-live`` (a checkpoint is not DELETING, or belongs to another pipeline).
    """
    check_unreferenced([file.uri for file in condemned], referenced)
    for record in checkpoints:
        if record.state is not CheckpointState.DELETING or record.pipeline != pipeline:
            raise CorruptStateError(
                f"discard plan of {pipeline}: expected DELETING checkpoints of it, "
                f"found {record.pipeline}/{record.checkpoint_id}, which is {record.state}",
                kind="discard-of-live",
            )
    return DiscardPlan(
        pipeline,
        tuple(sorted(checkpoints, key=lambda r: r.checkpoint_id)),
        tuple(sorted(condemned, key=lambda f: (f.created_by, f.uri))),
    )


def check_unreferenced(doomed: Collection[str], referenced: Collection[str]) -> None:
    """The law of the plan: delete ∩ referenced = ∅. CorruptStateError (``discard-of-referenced``)."""
    both = sorted(set(doomed) & set(referenced))
    if both:
        raise CorruptStateError(
            f"about to delete {number_of(len(both), 'file')} that a checkpoint refers to, such as {both[0]}:"
            " nothing was deleted",
            kind="discard-of-referenced",
            hint="statelib why FILE",
        )
