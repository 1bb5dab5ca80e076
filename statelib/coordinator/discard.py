"""The discard plan: the files that gc removes from storage, their order, and the check that nothing refers to them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from statelib.errors import CorruptStateError
from statelib.model.amounts import number_of
from statelib.model.checkpoint import SnapshotKind
from statelib.model.ids import AttemptId, CheckpointId, PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState


@dataclass(frozen=True)
class CondemnedFile:
    """A file that no checkpoint refers to.

    Attributes:
        uri: The absolute URI.
        size_bytes: The size that the catalog has recorded.
        created_by: The checkpoint that the file was recorded for.
        directory: The directory of that checkpoint.
        kind: Whether that checkpoint is a checkpoint or a savepoint.
        attempt: The attempt that completed it; None if there is none.
    """

    uri: str
    size_bytes: int
    created_by: CheckpointId
    directory: str = ""
    kind: SnapshotKind = SnapshotKind.CHECKPOINT
    attempt: AttemptId | None = None


@dataclass(frozen=True)
class DiscardPlan:
    """The checkpoints and files of one pipeline to remove.

    The order is: the ``_metadata`` of each of ``checkpoints``, then ``files``, then the directories that have become
    empty. So as long as a ``_metadata`` exists, all files that it names exist too."""

    pipeline: PipelineName
    checkpoints: tuple[CheckpointRecord, ...]
    files: tuple[CondemnedFile, ...]

    @property
    def size_bytes(self) -> int:
        """Return the sum of the recorded sizes of ``files`` in bytes."""
        return sum(file.size_bytes for file in self.files)


def discard_plan(
    pipeline: PipelineName,
    checkpoints: Sequence[CheckpointRecord],
    condemned: Sequence[CondemnedFile],
    referenced: Collection[str],
) -> DiscardPlan:
    """Return the plan that removes ``checkpoints`` and ``condemned``, in order.

    Args:
        pipeline: The pipeline that the checkpoints belong to.
        checkpoints: The checkpoints in the state DELETING.
        condemned: The files to remove.
        referenced: The URIs that any checkpoint refers to, including pending ones.

    Raises:
        CorruptStateError: ``discard-of-referenced`` if a checkpoint refers to a condemned file; ``discard-of-live``
            if a checkpoint is not DELETING, or belongs to another pipeline.
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
        tuple(sorted(checkpoints, key=lambda record: record.checkpoint_id)),
        tuple(sorted(condemned, key=lambda file: (file.created_by, file.uri))),
    )


def check_unreferenced(doomed: Collection[str], referenced: Collection[str]) -> None:
    """Raise CorruptStateError (``discard-of-referenced``) if a URI is both in ``doomed`` and in ``referenced``."""
    in_both = sorted(set(doomed) & set(referenced))
    if in_both:
        raise CorruptStateError(
            f"about to delete {number_of(len(in_both), 'file')} that a checkpoint refers to, such as {in_both[0]}:"
            " nothing was deleted",
            kind="discard-of-referenced",
            hint="statelib why FILE",
        )
