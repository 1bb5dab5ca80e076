"""No world that the protocol can reach loses a checkpoint or leaves a file; each mechanism is needed."""

from dataclasses import fields

import pytest

from tests.model.exploration import explore
from tests.model.protocol_model import Mechanisms, Setting
from tests.support.extent import large
from tests.support.figures import record

TWO = Setting("two coordinators", (1, 1), cleaner=1)
COPIES = Setting("with late copies of tasks", (1, 1), cleaner=1, late_copies=True)
ROUNDS = Setting("two rounds, with and without files of the base", (2, 1), cleaner=1, compaction=True)
READER = Setting("two rounds and a restore that reads", (2, 1), cleaner=1, reader=True)
CLEANERS = Setting("the cleaner twice, late copies", (2, 1), cleaner=2, late_copies=True)
ALL_OF_IT = Setting("all of it", (2, 1), cleaner=1, reader=True, late_copies=True, compaction=True)

MUTANTS = {
    "unique names": (Mechanisms(unique_names=False), COPIES, "lacks"),
    "ids are never reused": (Mechanisms(ids_never_reused=False), TWO, ""),
    "fencing": (Mechanisms(fencing=False), TWO, "was the newest"),
    "the sweep spares open attempts": (Mechanisms(sweep_spares_open_attempts=False), TWO, "lacks"),
    "a restore pins": (Mechanisms(pins=False), READER, "a restore of"),
    "begin reserves the base": (Mechanisms(reserve_at_begin=False), ROUNDS, "lacks"),
    "gc condemns first": (Mechanisms(condemn_first=False), ROUNDS, "lacks"),
    "truth about an unknown commit": (Mechanisms(reads_back=False, abort_keeps=False), TWO, "lacks"),
}


@pytest.mark.parametrize("setting", [TWO, COPIES, ROUNDS, READER], ids=lambda s: s.name)
def test_every_world_keeps_its_checkpoints(setting: Setting) -> None:
    explored = explore(setting, Mechanisms())
    record("G9", "worlds of the model", explored.worlds, int(bool(explored.trace)), "states")
    assert not explored.trace
    assert explored.whole


@large("make test explores smaller settings")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("setting", [CLEANERS, ALL_OF_IT], ids=lambda s: s.name)
def test_a_million_worlds_keep_their_checkpoints(setting: Setting) -> None:
    explored = explore(setting, Mechanisms(), most=1_500_000)
    record("G9", "worlds of the model", explored.worlds, int(bool(explored.trace)), "states")
    assert not explored.trace
    assert explored.whole or explored.worlds >= 1_500_000


@pytest.mark.parametrize("name", MUTANTS)
def test_without_a_mechanism_a_checkpoint_is_lost_or_a_file_left(name: str) -> None:
    mechanisms, setting, step = MUTANTS[name]
    explored = explore(setting, mechanisms)
    record("G9", "mechanisms that are needed", 1, int(not explored.trace), "mechanisms")
    assert explored.trace, f"{name} could go"
    assert step in explored.trace[-1]


def test_every_mechanism_is_removed_once() -> None:
    taken = {f.name for mutant, _, _ in MUTANTS.values() for f in fields(mutant) if not getattr(mutant, f.name)}
    assert taken == {f.name for f in fields(Mechanisms)}


@pytest.mark.parametrize("one", [Mechanisms(reads_back=False), Mechanisms(abort_keeps=False)], ids=repr)
def test_one_of_the_two_redundant_mechanisms_is_enough_for_safety(one: Mechanisms) -> None:
    assert explore(TWO, one).whole
