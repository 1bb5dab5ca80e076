"""A breadth-first search through every world that the protocol can reach, with the properties that each must have."""

from collections import deque
from dataclasses import dataclass

from tests.model.protocol_model import COMPLETED, Cleaner, Mechanisms, Protocol, Setting, World, _supersede


@dataclass(frozen=True)
class Explored:
    """The result of a search. ``trace``: the shortest way to a world that breaks an invariant, and the invariant;
    empty if there is none."""

    worlds: int
    trace: tuple[str, ...]
    whole: bool
    """Whether every reachable world was explored."""


def explore(setting: Setting, mechanisms: Mechanisms, most: int = 5_000_000) -> Explored:
    """Explore every world up to ``most``, or up to the first broken one."""
    protocol = Protocol(setting, mechanisms)
    start = setting.start()
    came: dict[World, tuple[World, str] | None] = {start: None}
    recovered: dict[World, str] = {}
    waiting = deque([start])
    while waiting:
        world = waiting.popleft()
        broken = world.broken or damage(world) or after_recovery(protocol, world, recovered)
        if broken:
            return Explored(len(came), (*_way(came, world), broken), whole=False)
        if len(came) >= most:
            return Explored(len(came), (), whole=False)
        for step_name, then in protocol.steps(world):
            if then not in came:
                came[then] = (world, step_name)
                waiting.append(then)
    return Explored(len(came), (), whole=True)


def damage(world: World) -> str:
    """Return which COMPLETED checkpoint lacks its ``_metadata`` or some of its bytes, or '' if none does."""
    for row in world.rows:
        if row.state is COMPLETED:
            if not row.needs <= world.objects:
                return f"COMPLETED {row.checkpoint} lacks {sorted(row.needs - world.objects)}"
            if not any((m.checkpoint, m.attempt) == (row.checkpoint, row.attempt) for m in world.metadata):
                return f"COMPLETED {row.checkpoint} has no _metadata of its attempt {row.attempt}"
    return ""


def after_recovery(protocol: Protocol, world: World, results: dict[World, str]) -> str:
    """Let all processes die in this world, and let another one take over and clean up: no checkpoint may be lost, and
    no file left over."""
    shared = world._replace(coordinators=(), reader=None, cleaner=None, late=frozenset(), pins=frozenset(), broken="")
    if shared not in results:
        results[shared] = _left_or_lost(_cleaned(protocol, _supersede(shared._replace(epoch=shared.epoch + 1))))
    return results[shared]


def _cleaned(protocol: Protocol, world: World) -> World:
    """Run the cleaner alone, without dying, until a whole round of it changes nothing."""
    while True:
        before = world
        world = world._replace(cleaner=Cleaner())
        while world.cleaner is not None and world.cleaner.rounds:
            world = next(then for step_name, then in protocol.steps(world) if "dies" not in step_name)
        world = world._replace(cleaner=None)
        if world == before:
            return world


def _left_or_lost(world: World) -> str:
    lost = damage(world)
    needed = {o for row in world.rows if row.state is COMPLETED for o in row.needs}
    left = world.objects - needed
    metadata = {m.checkpoint for m in world.metadata} - {r.checkpoint for r in world.rows if r.state is COMPLETED}
    if lost:
        return f"after recovery {lost}"
    if left or metadata:
        return f"after recovery nobody needs {sorted(left)} and _metadata of {sorted(metadata)}"
    return ""


def _way(came: dict[World, tuple[World, str] | None], world: World) -> tuple[str, ...]:
    steps: list[str] = []
    step = came[world]
    while step is not None:
        before, step_name = step
        steps.append(step_name)
        step = came[before]
    return tuple(reversed(steps))
