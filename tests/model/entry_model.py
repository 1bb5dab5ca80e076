"""The turns in which the gate counts entries, as a small state machine: runs of changing size, and one wrong count.

A world is a registered checkpoint in whose manifest the count of one key group may be wrong. A step is one run: it has
a size, which decides how many key groups its turn has; its writer may compute a wrong count; the gate compares the key
groups of the turn with their entries, and those that the run did not change with the base. A refused run ends the path,
because the wrong count was found. ``Rules`` names the rules that the argument in docs/spec/protocol.md needs, so that
each can be taken away."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from statelib.flows.gate.reading import Turn
from statelib.model.key_groups import KeyGroupRange

TURNS, MOST_HALVINGS = 4, 2
GROUPS = TURNS << MOST_HALVINGS


@dataclass(frozen=True)
class Rules:
    """The rules of the gate. False removes a rule from the model."""

    half_by_round: bool = True
    """The round of the run decides which half of the key groups is read, not the number of the run itself."""
    half_within_whole: bool = True
    """A turn with more halvings reads a part of what the turn with fewer reads."""
    compares_unchanged: bool = True
    """The counts of key groups without a change are compared with those of the base."""

    def read(self, number: int, halvings: int) -> KeyGroupRange:
        """Return the key groups whose entries the run with this number counts."""
        turn = Turn(number, TURNS, halvings)
        if not self.half_within_whole:
            turn = Turn(number, TURNS << halvings)
        elif not self.half_by_round:
            turn = Turn(number * TURNS + number % TURNS, TURNS, halvings)
        return turn.key_groups(GROUPS)


class World(NamedTuple):
    """The head of a pipeline. ``number``: the number of its run, modulo all turns; ``wrong``: the key group whose count
    is wrong, None if all are right; ``runs``: the registered runs since; ``halvings``: the most halvings among them;
    ``changed``: whether the run that made the count wrong changed the key group."""

    number: int
    wrong: int | None = None
    runs: int = 0
    halvings: int = 0
    changed: bool = True

    def broken(self) -> str:
        """Return what must never hold of a registered checkpoint; '' if it is sound."""
        if not self.changed:
            return "the count of a key group without a change has changed"
        if self.runs >= TURNS << self.halvings:
            return f"a wrong count has passed {self.runs} runs with at most {self.halvings} halvings"
        return ""


def beginnings() -> Iterator[World]:
    """Yield a head for each number of a run."""
    for number in range(GROUPS):
        yield World(number)


def steps(world: World, rules: Rules) -> Iterator[World]:
    """Yield each world after one more registered run."""
    for halvings in range(MOST_HALVINGS + 1):
        read = rules.read(world.number, halvings)
        run = world._replace(number=(world.number + 1) % GROUPS)
        if world.wrong is not None:
            if world.wrong not in read:
                yield run._replace(runs=world.runs + 1, halvings=max(halvings, world.halvings))
            continue
        yield run
        for group in set(range(GROUPS)) - set(read):
            yield run._replace(wrong=group, runs=1, halvings=halvings)
            if not rules.compares_unchanged:
                yield run._replace(wrong=group, runs=1, halvings=halvings, changed=False)
