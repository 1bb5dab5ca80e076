"""A search through all histories of runs of a model."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar


class World(Hashable, Protocol):
    """A state of a model after a run."""

    def broken(self) -> str:
        """Return what must never hold of a registered checkpoint; '' if it is sound."""
        ...


W = TypeVar("W", bound=World)


@dataclass(frozen=True)
class Explored:
    """``worlds``: the number of worlds; ``broken``: what is wrong with one of them, '' if none is."""

    worlds: int
    broken: str


def explore(beginnings: Iterable[W], steps: Callable[[W], Iterable[W]], runs: int) -> Explored:
    """Return the result of visiting all worlds that ``runs`` runs lead to. ``steps``: yields each world after one more
    run."""
    level = set(beginnings)
    seen = set(level)
    for _ in range(runs):
        level = {after for world in level for after in steps(world)} - seen
        seen |= level
        if broken := next((problem for world in level if (problem := world.broken())), ""):
            return Explored(len(seen), broken)
    return Explored(len(seen), "")
