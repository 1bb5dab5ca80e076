"""What published snapshots say of a pipeline's history when nobody else can: which were registered, what it stood on.

Two facts carry it. A checkpoint's base was the pipeline's head when it began, and only what is registered becomes
the head. Within a generation the head moves by registrations alone, in the order of the epochs. Only checkpoints in the
system's own storage are asked: a savepoint is its user's, who may have it from anybody.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from statelib.model.checkpoint import SnapshotKind
from statelib.model.ids import CheckpointId, Epoch


@dataclass(frozen=True)
class Published:
    """What its manifest tells of a snapshot. ``registered``: what the catalog says, None where it has no row."""

    checkpoint_id: CheckpointId
    kind: SnapshotKind
    epoch: Epoch
    generation: int
    base: CheckpointId | None
    registered: bool | None = None


class Proof(StrEnum):
    """How it is known whether a snapshot was registered."""

    CATALOG = "the catalog says so"
    BUILT_ON = "another one was built on it"
    UNKNOWN = "nothing was built on it: it has to be read"
    PASSED_OVER = "the next one was not built on it: it was never registered"


def proofs(published: Sequence[Published]) -> dict[CheckpointId, Proof]:
    """For each checkpoint of a pipeline, how its registration is known. CATALOG does not say that it was."""
    bases = {p.base for p in published}
    return {p.checkpoint_id: _proof(p, bases, published) for p in published}


def _proof(one: Published, bases: Collection[CheckpointId | None], published: Sequence[Published]) -> Proof:
    if one.registered is not None:
        return Proof.CATALOG
    if one.checkpoint_id in bases:
        return Proof.BUILT_ON
    if one.kind is SnapshotKind.CHECKPOINT and one.checkpoint_id > _known_from(one, published):
        return Proof.PASSED_OVER
    return Proof.UNKNOWN


def _known_from(one: Published, published: Sequence[Published]) -> int:
    """Above which id the history of its generation is there without a gap, as the generation's last checkpoint
    tells it; where ``one`` is that last checkpoint, above its own."""
    by_id = {p.checkpoint_id: p for p in published}
    same = [p for p in published if p.kind is SnapshotKind.CHECKPOINT and p.generation == one.generation]
    last = max(same, key=lambda p: p.epoch)
    if last is one:
        return one.checkpoint_id
    at: Published | None = last
    while at is not None and at.generation == one.generation:
        if at.base is None:
            return 0
        if at.base not in by_id:
            return at.base
        at = by_id[at.base]
    return 0


def head_of(published: Sequence[Published], taken: Collection[CheckpointId]) -> CheckpointId | None:
    """What the pipeline stood on, of the snapshots that are ``taken`` into the catalog; None: on nothing.

    A restore that no snapshot followed has left no trace, and is not known."""
    if not published:
        return None
    generation = max(p.generation for p in published)
    latest = [p for p in published if p.generation == generation]
    own = [p for p in latest if p.kind is SnapshotKind.CHECKPOINT and p.checkpoint_id in taken]
    if own:
        return max(own, key=lambda p: p.epoch).checkpoint_id
    stood_on = max(latest, key=lambda p: p.epoch).base
    if stood_on is None or stood_on in taken:
        return stood_on
    rest = [p for p in published if p.kind is SnapshotKind.CHECKPOINT and p.checkpoint_id in taken]
    newest = max(rest, key=lambda p: (p.generation, p.epoch), default=None)
    return None if newest is None else newest.checkpoint_id


def later_head(
    published: Sequence[Published], head: CheckpointId | None, generation: int, taken: Collection[CheckpointId]
) -> CheckpointId | None:
    """Where a pipeline stands that stands on ``head``, once what is ``taken`` is known too: on the newest checkpoint of
    the generation that was built on it, directly or through others; else on ``head``."""
    by_id = {p.checkpoint_id: p for p in published}

    def is_built_on_head(one: Published) -> bool:
        at: CheckpointId | None = one.base
        while at is not None and at != head:
            at = by_id[at].base if at in by_id else None
        return at == head

    own = [p for p in published if p.kind is SnapshotKind.CHECKPOINT and p.generation == generation]
    later = [p for p in own if p.checkpoint_id in taken and p.checkpoint_id != head and is_built_on_head(p)]
    return max(later, key=lambda p: p.epoch).checkpoint_id if later else head
