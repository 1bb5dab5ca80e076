"""A rebuild never takes what was not registered for registered, and finds the head, over random histories."""

from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statelib.coordinator.rebuilding import Proof, Published, head_of, later_head, proofs
from statelib.model.checkpoint import SnapshotKind
from statelib.model.ids import CheckpointId, Epoch

CHECKPOINT, SAVEPOINT = SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT
STEPS = st.tuples(
    st.sampled_from(["checkpoint"] * 5 + ["savepoint", "restore", "delete"]), st.booleans(), st.integers(0, 30)
)


@dataclass
class World:
    """The catalog that will be lost, and what is published on storage."""

    head: CheckpointId | None = None
    epoch: int = 0
    generation: int = 0
    next_id: int = 1
    registered: set[CheckpointId] = field(default_factory=set)
    published: dict[CheckpointId, Published] = field(default_factory=dict)
    traced: bool = True
    """Whether a checkpoint was published since the last restore."""

    def step(self, what: str, registers: bool, which: int) -> None:
        if what == "checkpoint":
            self.epoch += 1
            self._publish(CHECKPOINT, registers)
        elif what == "savepoint" and self.head is not None:
            self._publish(SAVEPOINT, registers)
        elif what == "restore" and self.registered & set(self.published):
            self.head = sorted(self.registered & set(self.published))[
                which % len(self.registered & set(self.published))
            ]
            self.epoch, self.generation, self.traced = self.epoch + 1, self.generation + 1, False
        elif what == "delete":
            old = [number for number in sorted(self.published) if number != self.head][:1]
            for number in old if which % 2 else []:
                del self.published[number]

    def checkpoints(self) -> list[Published]:
        return [p for p in self.published.values() if p.kind is CHECKPOINT]

    def _publish(self, kind: SnapshotKind, registers: bool) -> None:
        number, self.next_id = CheckpointId(self.next_id), self.next_id + 1
        self.traced |= kind is CHECKPOINT
        self.published[number] = Published(number, kind, Epoch(self.epoch), self.generation, self.head)
        if registers:
            self.registered.add(number)
            self.head = number if kind is CHECKPOINT else self.head


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_proofs_are_right_and_the_head_is_the_true_one(steps: list[tuple[str, bool, int]]) -> None:
    world = World()
    for step in steps:
        world.step(*step)
    published = world.checkpoints()
    proved = proofs(published)
    for number, proof in proved.items():
        if proof is Proof.BUILT_ON:
            assert number in world.registered
        elif proof is Proof.PASSED_OVER:
            assert number not in world.registered
    if published and world.traced and world.generation == max(p.generation for p in published):
        assert head_of(published, world.registered) == world.head


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_rows_of_the_catalog_need_no_further_proof(steps: list[tuple[str, bool, int]]) -> None:
    world = World()
    for step in steps:
        world.step(*step)
    facts = [
        Published(p.checkpoint_id, p.kind, p.epoch, p.generation, p.base, p.checkpoint_id in world.registered)
        for p in world.published.values()
    ]
    assert set(proofs(facts).values()) <= {Proof.CATALOG}


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(STEPS, max_size=40), st.data())
def test_entering_repaired_checkpoints_later_restores_the_true_head(
    steps: list[tuple[str, bool, int]], data: st.DataObject
) -> None:
    """A first rebuild could not read some checkpoints. Once they can be read, the pipeline has its former head."""
    world = World()
    for step in steps:
        world.step(*step)
    published = world.checkpoints()
    if not published or not world.traced or world.generation != max(p.generation for p in published):
        return
    readable = {p.checkpoint_id for p in published if p.checkpoint_id in world.registered}
    late = data.draw(st.sets(st.sampled_from(sorted(readable)))) if readable else set()
    first = head_of(published, readable - late)
    bases = {p.checkpoint_id: p.base for p in published}
    lineage, at = [], world.head
    while at is not None:
        lineage.append(at)
        at = bases.get(at)
    newest = next(p for p in published if p.checkpoint_id == world.head) if world.head else None
    if newest is not None and newest.generation == world.generation and (first is None or first in lineage):
        assert later_head(published, first, world.generation, late) == world.head


def test_the_head_of_a_generation_without_readable_checkpoints_is_its_first_base() -> None:
    one = Published(CheckpointId(1), CHECKPOINT, Epoch(1), 0, None)
    two = Published(CheckpointId(2), CHECKPOINT, Epoch(2), 0, CheckpointId(1))
    three = Published(CheckpointId(3), CHECKPOINT, Epoch(4), 1, CheckpointId(1))
    assert head_of([one, two], {1, 2}) == 2
    assert head_of([one, two, three], {1, 2}) == 1
    assert head_of([two, three], {2}) == 2, "1 is gone: the newest there is"
    assert head_of([], set()) is None


def test_only_a_checkpoint_that_was_built_on_the_head_moves_it() -> None:
    one = Published(CheckpointId(1), CHECKPOINT, Epoch(1), 0, None)
    two = Published(CheckpointId(2), CHECKPOINT, Epoch(2), 0, CheckpointId(1))
    three = Published(CheckpointId(3), CHECKPOINT, Epoch(3), 0, CheckpointId(2))
    aside = Published(CheckpointId(4), CHECKPOINT, Epoch(4), 0, None)
    restored = Published(CheckpointId(5), CHECKPOINT, Epoch(6), 1, CheckpointId(1))
    every = [one, two, three, aside, restored]
    assert later_head(every, CheckpointId(1), 0, {2}) == 2
    assert later_head(every, CheckpointId(1), 0, {3}) == 3, "2 is still not to be read"
    assert later_head(every, CheckpointId(2), 0, {1, 4, 5}) == 2
    assert later_head(every, CheckpointId(1), 1, {2, 3}) == 1, "a restore left them behind"
    assert later_head(every, None, 0, {1}) == 1
