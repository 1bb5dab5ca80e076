"""No history of runs registers a file that nobody has read, and no fault outlives all turns; each rule is needed."""

from dataclasses import fields

import pytest

from tests.model.proof_model import TURNS, Rules, explore
from tests.support.figures import record

RUNS = TURNS + 2

MUTANTS = {
    "new files are read": (Rules(reads_new=False), "nobody has read"),
    "unproved files are read": (Rules(reads_unproved=False), "nobody has read"),
    "all files must be there": (Rules(looks_at_all=False), "is gone"),
    "the history counts the turns": (Rules(turn_by_history=False), "have passed"),
    "the name decides the turn": (Rules(file_by_name=False), "have passed"),
}


def test_every_history_proves_its_files() -> None:
    explored = explore(Rules(), RUNS)
    record("G9", "worlds of the model", explored.worlds, int(bool(explored.broken)), "states")
    assert explored.broken == ""
    assert explored.worlds > 1_000


@pytest.mark.parametrize("name", MUTANTS)
def test_without_a_rule_a_fault_is_missed(name: str) -> None:
    rules, broken = MUTANTS[name]
    assert broken in explore(rules, RUNS).broken, f"{name} could go"


def test_every_rule_is_removed_once() -> None:
    taken = {f.name for mutant, _ in MUTANTS.values() for f in fields(mutant) if not getattr(mutant, f.name)}
    assert taken == {f.name for f in fields(Rules)}
