"""A rebuild never takes what was not registered for registered, and finds the head, over random histories."""

from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statelib.coordinator.rebuilding import Proof, Published, head_of, proofs
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
    """Whether a snapshot was published since the last restore."""

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

    def _publish(self, kind: SnapshotKind, registers: bool) -> None:
        number, self.next_id, self.traced = CheckpointId(self.next_id), self.next_id + 1, True
        self.published[number] = Published(number, kind, Epoch(self.epoch), self.generation, self.head)
        if registers:
            self.registered.add(number)
            self.head = number if kind is CHECKPOINT else self.head


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_proofs_are_right_and_the_head_is_found(steps: list[tuple[str, bool, int]]) -> None:
    world = World()
    for step in steps:
        world.step(*step)
    published = list(world.published.values())
    found = proofs(published)
    for number, proof in found.items():
        if proof is Proof.BUILT_ON:
            assert number in world.registered
        elif proof is Proof.PASSED_OVER:
            assert number not in world.registered
    if published and world.traced and world.generation == max(p.generation for p in published):
        assert head_of(published, world.registered) == world.head


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_what_the_catalog_says_is_not_doubted(steps: list[tuple[str, bool, int]]) -> None:
    world = World()
    for step in steps:
        world.step(*step)
    known = [
        Published(p.checkpoint_id, p.kind, p.epoch, p.generation, p.base, p.checkpoint_id in world.registered)
        for p in world.published.values()
    ]
    assert set(proofs(known).values()) <= {Proof.CATALOG}


def test_a_savepoint_tells_of_a_restore_that_no_checkpoint_followed() -> None:
    one = Published(CheckpointId(1), CHECKPOINT, Epoch(1), 0, None)
    two = Published(CheckpointId(2), CHECKPOINT, Epoch(2), 0, CheckpointId(1))
    saved = Published(CheckpointId(3), SAVEPOINT, Epoch(3), 1, CheckpointId(1))
    assert head_of([one, two], {1, 2}) == 2
    assert head_of([one, two, saved], {1, 2, 3}) == 1
    assert head_of([two, saved], {2, 3}) == 2, "1 is gone: the newest there is"
    assert head_of([], set()) is None
