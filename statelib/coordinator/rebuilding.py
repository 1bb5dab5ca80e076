"""The reconstruction of a pipeline's history from its published snapshots, when the catalog is lost or outdated: which
snapshots were registered, and which one was the head.

It follows from two facts. The base of a checkpoint was the head of the pipeline when the checkpoint began, and only a
registered snapshot becomes the head. Within a generation only registrations change the head, in the order of the
epochs. Only checkpoints in the system's own storage count: a savepoint belongs to its user, who may have copied it from
anywhere.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from statelib.model.checkpoint import SnapshotKind
from statelib.model.ids import CheckpointId, Epoch

GIVEN_UP = "given up by statelib catalog rebuild"
"""The beginning of the reason of a checkpoint that was given up, and is ABORTED. Others may have been built on it."""


@dataclass(frozen=True)
class Published:
    """The facts in the manifest of a published snapshot.

    Attributes:
        checkpoint_id: The id.
        kind: Whether it is a checkpoint or a savepoint.
        epoch: The epoch of the run that took it.
        generation: The generation of the pipeline then. Each restore begins a new one.
        base: The head of the pipeline when the snapshot began; None if there was none.
        registered: Whether the catalog has it as registered; None if the catalog has no row of it.
    """

    checkpoint_id: CheckpointId
    kind: SnapshotKind
    epoch: Epoch
    generation: int
    base: CheckpointId | None
    registered: bool | None = None


class Proof(StrEnum):
    """The evidence that a snapshot was registered, or was not."""

    CATALOG = "the catalog says so"
    BUILT_ON = "another one was built on it"
    UNKNOWN = "nothing was built on it: it has to be read"
    PASSED_OVER = "the next one was not built on it: it was never registered"


def proofs(published: Sequence[Published]) -> dict[CheckpointId, Proof]:
    """Return the evidence for each published snapshot of a pipeline.

    CATALOG means only that the catalog has a row: its ``registered`` may be true or false."""
    bases = {snapshot.base for snapshot in published}
    return {snapshot.checkpoint_id: _proof(snapshot, bases, published) for snapshot in published}


def _proof(snapshot: Published, bases: Collection[CheckpointId | None], published: Sequence[Published]) -> Proof:
    """Return the evidence for one ``snapshot``, given all ``bases`` of the published ones."""
    if snapshot.registered is not None:
        return Proof.CATALOG
    if snapshot.checkpoint_id in bases:
        return Proof.BUILT_ON
    if snapshot.kind is SnapshotKind.CHECKPOINT and snapshot.checkpoint_id > _complete_above(snapshot, published):
        return Proof.PASSED_OVER
    return Proof.UNKNOWN


def _complete_above(snapshot: Published, published: Sequence[Published]) -> int:
    """Return the id above which the history of the generation of ``snapshot`` has no gap.

    The history is the last checkpoint of the generation, its base, the base's base and so on. If ``snapshot`` is that
    last checkpoint, its own id is returned."""
    by_id = {p.checkpoint_id: p for p in published}
    of_generation = [p for p in published if p.kind is SnapshotKind.CHECKPOINT and p.generation == snapshot.generation]
    last = max(of_generation, key=lambda p: p.epoch)
    if last is snapshot:
        return snapshot.checkpoint_id
    ancestor: Published | None = last
    while ancestor is not None and ancestor.generation == snapshot.generation:
        if ancestor.base is None:
            return 0
        if ancestor.base not in by_id:
            return ancestor.base
        ancestor = by_id[ancestor.base]
    return 0


def head_of(published: Sequence[Published], taken: Collection[CheckpointId]) -> CheckpointId | None:
    """Return the checkpoint that was the head of the pipeline; None if there was none.

    A restore after which no snapshot was published has left no trace and is ignored.

    Args:
        published: The published snapshots of the pipeline.
        taken: The ids of the snapshots that are taken into the catalog. The head is one of them.
    """
    if not published:
        return None
    generation = max(p.generation for p in published)
    of_latest_generation = [p for p in published if p.generation == generation]
    checkpoints = [p for p in of_latest_generation if p.kind is SnapshotKind.CHECKPOINT and p.checkpoint_id in taken]
    if checkpoints:
        return max(checkpoints, key=lambda p: p.epoch).checkpoint_id
    head = max(of_latest_generation, key=lambda p: p.epoch).base
    if head is None or head in taken:
        return head
    candidates = [p for p in published if p.kind is SnapshotKind.CHECKPOINT and p.checkpoint_id in taken]
    newest = max(candidates, key=lambda p: (p.generation, p.epoch), default=None)
    return None if newest is None else newest.checkpoint_id


def later_head(
    published: Sequence[Published], head: CheckpointId | None, generation: int, taken: Collection[CheckpointId]
) -> CheckpointId | None:
    """Return the head of a pipeline after newer snapshots are taken into its catalog.

    It is the newest of them that is a checkpoint of the ``generation`` and was built on ``head``, directly or through
    others; if there is none, it is ``head``.

    Args:
        published: The published snapshots of the pipeline.
        head: The present head in the catalog; None if there is none.
        generation: The present generation in the catalog.
        taken: The ids of the snapshots that are taken into the catalog.
    """
    by_id = {p.checkpoint_id: p for p in published}

    def is_built_on_head(checkpoint: Published) -> bool:
        ancestor: CheckpointId | None = checkpoint.base
        while ancestor is not None and ancestor != head:
            ancestor = by_id[ancestor].base if ancestor in by_id else None
        return ancestor == head

    of_generation = [p for p in published if p.kind is SnapshotKind.CHECKPOINT and p.generation == generation]
    later = [p for p in of_generation if p.checkpoint_id in taken and p.checkpoint_id != head and is_built_on_head(p)]
    return max(later, key=lambda p: p.epoch).checkpoint_id if later else head
