"""No history of runs registers a file that nobody has read, and no fault outlives all turns; each rule is needed."""

from dataclasses import fields
from functools import partial

import pytest

from tests.model import entry_model, proof_model
from tests.model.histories import Explored, explore
from tests.model.proof_model import Rules
from tests.support.figures import record

RUNS = proof_model.TURNS + 2
RUNS_WITH_ENTRIES = entry_model.GROUPS + 2

MUTANTS = {
    "new files are read": (Rules(reads_new=False), "nobody has read"),
    "unproved files are read": (Rules(reads_unproved=False), "nobody has read"),
    "all files must be there": (Rules(looks_at_all=False), "is gone"),
    "the history counts the turns": (Rules(turn_by_history=False), "have passed"),
    "the name decides the turn": (Rules(file_by_name=False), "have passed"),
}


ENTRY_MUTANTS = {
    "the round decides the half": (entry_model.Rules(half_by_round=False), "has passed"),
    "a half lies within its whole": (entry_model.Rules(half_within_whole=False), "has passed"),
    "unchanged key groups are compared": (entry_model.Rules(compares_unchanged=False), "without a change"),
}


def of_files(rules: Rules) -> Explored:
    return explore(proof_model.beginnings(), partial(proof_model.steps, rules=rules), RUNS)


def of_entries(rules: entry_model.Rules) -> Explored:
    return explore(entry_model.beginnings(), partial(entry_model.steps, rules=rules), RUNS_WITH_ENTRIES)


def test_every_history_proves_its_files() -> None:
    explored = of_files(Rules())
    record("G9", "worlds of the model", explored.worlds, int(bool(explored.broken)), "states")
    assert explored.broken == ""
    assert explored.worlds > 1_000


def test_every_history_counts_its_entries_in_turns() -> None:
    explored = of_entries(entry_model.Rules())
    assert explored.broken == ""
    assert explored.worlds > 1_000


@pytest.mark.parametrize("name", MUTANTS)
def test_without_a_rule_a_fault_is_missed(name: str) -> None:
    rules, broken = MUTANTS[name]
    assert broken in of_files(rules).broken, f"{name} could go"


@pytest.mark.parametrize("name", ENTRY_MUTANTS)
def test_without_a_rule_a_wrong_count_is_missed(name: str) -> None:
    rules, broken = ENTRY_MUTANTS[name]
    assert broken in of_entries(rules).broken, f"{name} could go"


@pytest.mark.parametrize(("rules", "mutants"), [(Rules, MUTANTS), (entry_model.Rules, ENTRY_MUTANTS)])
def test_every_rule_is_removed_once(rules: type, mutants: dict[str, tuple[object, str]]) -> None:
    taken = {f.name for mutant, _ in mutants.values() for f in fields(rules) if not getattr(mutant, f.name)}
    assert taken == {f.name for f in fields(rules)}
