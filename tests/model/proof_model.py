"""The proof of files by the gate as a small state machine: runs that refer to files of earlier ones, and faults.

A world is a registered checkpoint with its files. A step is one run: files may be dropped, one file is written, a fault
may strike, the gate reads its part, and the checkpoint is registered or refused. A refused run ends the path, because
its fault was found. ``Rules`` names the rules that the argument in docs/spec/protocol.md needs, so that each can be
taken away."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

TURNS = 3


@dataclass(frozen=True)
class Rules:
    """The rules of the gate. False removes a rule from the model."""

    reads_new: bool = True
    """A file that the base does not have is read in the run that wrote it."""
    reads_unproved: bool = True
    """All files are read if the gate has not proved the base."""
    looks_at_all: bool = True
    """Known files that are not read must be there."""
    turn_by_history: bool = True
    """The turn is counted by the checkpoints of the history, not by their ids, of which savepoints take some."""
    file_by_name: bool = True
    """The name of a file decides its turn, not its position among the files."""


class File(NamedTuple):
    """A file of a checkpoint. ``wrong``: the registered runs since its bytes became wrong, -1 if they are right.
    ``lost``: whether it is gone. ``proved``: whether it was read whole since it was written."""

    name: int
    wrong: int = -1
    lost: bool = False
    proved: bool = False


class World(NamedTuple):
    """The head of a pipeline. ``length``: the checkpoints of its history; ``number``: its id; ``proved``: whether the
    gate has proved it; ``faults``: the faults that may still strike."""

    files: frozenset[File]
    length: int = 1
    number: int = 1
    proved: bool = True
    faults: int = 1

    def broken(self) -> str:
        """Return what must never hold of a registered checkpoint; '' if it is sound."""
        if self.proved and not all(file.proved for file in self.files):
            return "a registered checkpoint has a file that nobody has read"
        if any(file.lost for file in self.files):
            return "a registered checkpoint has a file that is gone"
        if any(file.wrong >= TURNS for file in self.files):
            return f"wrong bytes have passed {TURNS} runs"
        return ""


def beginnings() -> Iterator[World]:
    """Yield a head that the gate has proved, and one that came from elsewhere, perhaps with a damaged file."""
    names = range(TURNS)
    yield World(frozenset(File(name, proved=True) for name in names))
    yield World(frozenset(File(name) for name in names), proved=False, faults=0)
    yield World(frozenset(File(name, wrong=0 if name == 1 else -1) for name in names), proved=False, faults=0)


def steps(world: World, rules: Rules) -> Iterator[World]:
    """Yield each world after one more registered run."""
    newest = max(file.name for file in world.files)
    for remaining in _subsets(world.files):
        for written in (File(newest + 1), File(newest + 1, wrong=0)):
            if written.wrong == 0 and not world.faults:
                continue
            faults = world.faults - (written.wrong == 0)
            for files, left in _struck(remaining, faults):
                for ids in (1, 2):  # a savepoint may have taken an id in between
                    run = world._replace(files=files | {written}, number=world.number + ids, faults=left)
                    yield from _judged(run, kept_names=frozenset(f.name for f in remaining), rules=rules)


def _subsets(files: frozenset[File]) -> Iterator[frozenset[File]]:
    """Yield the files without none or one of them. At most four stay."""
    if len(files) <= TURNS + 1:
        yield files
    for fewer in combinations(sorted(files), len(files) - 1):
        yield frozenset(fewer)


def _struck(files: frozenset[File], faults: int) -> Iterator[tuple[frozenset[File], int]]:
    """Yield the files without a fault, and with one that struck one of them."""
    yield files, faults
    for file in files if faults else ():
        yield (files - {file}) | {file._replace(wrong=0)}, faults - 1
        yield (files - {file}) | {file._replace(lost=True)}, faults - 1


def _judged(run: World, kept_names: frozenset[int], rules: Rules) -> Iterator[World]:
    """Yield the world after the gate has registered the run, nothing if it refused the run."""
    turn = (run.length if rules.turn_by_history else run.number) % TURNS
    judged = []
    for position, file in enumerate(sorted(run.files)):
        is_new = file.name not in kept_names
        in_turn = (file.name if rules.file_by_name else position) % TURNS == turn
        read = in_turn or (is_new and rules.reads_new) or (not run.proved and rules.reads_unproved)
        if (file.lost and (read or rules.looks_at_all)) or (read and file.wrong >= 0):
            return
        aged = file.wrong + 1 if file.wrong >= 0 else -1
        judged.append(file._replace(proved=file.proved or read, wrong=aged))
    yield run._replace(files=frozenset(judged), length=run.length + 1, proved=True)
