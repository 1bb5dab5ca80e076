"""Thousands of short simulated histories with rivals, paused processes, deaths and lost replies. Each can be repeated
by its seed.

``python -m test_simulation 1234`` runs the one of that seed; a second number runs so many from there on.
"""

import random
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import Engine

from tests.faults.simulated import World, emptied, memory_engine
from tests.faults.simulated_actors import STORE, SimulatedDeployment, Simulation, simulating
from tests.support.extent import EVERYTHING, rounds
from tests.support.figures import record


def simulate(engine: Engine, seed: int, scratch: str) -> tuple[Simulation, list[str]]:
    """Run one history, and return its violations."""
    chance = random.Random(seed)
    world = World(chance, emptied(engine))
    STORE.world = world
    deployment = SimulatedDeployment.of(world, chance.choice([1, 1, 2]), chance.choice([1, 1, 2]), scratch)
    simulation = Simulation(world, deployment)
    for name in ("first", "second", "third", "fourth")[: chance.choice([2, 3, 4])]:
        simulation.process(name, simulation.coordinator(chance.choice([1, 2, 3])))
    for name in chance.sample(["one cleaner", "another cleaner"], chance.choice([1, 2])):
        simulation.process(name, simulation.cleaner(chance.choice([1, 2, 3])))
    if chance.random() < 0.4:
        simulation.process("restorer", simulation.restorer(), lives=3)
    world.run()
    simulation.recover()
    return simulation, simulation.check()


def simulations(first: int, number: int, scratch: str) -> tuple[Counter[str], dict[int, list[str]]]:
    counts: Counter[str] = Counter()
    wrong: dict[int, list[str]] = {}
    engine = memory_engine()
    with simulating():
        for seed in range(first, first + number):
            simulation, result = simulate(engine, seed, scratch)
            world = simulation.world
            counts += Counter(steps=world.steps, deaths=world.deaths, registered=len(simulation.done))
            counts["take-overs"] += world.take_overs
            counts.update(simulation.errors)
            if result:
                wrong[seed] = result
    engine.dispose()
    return counts, wrong


@pytest.mark.parametrize("first", [1, 2, 3, 4] if EVERYTHING else [1, 2])
def test_simulated_histories_lose_no_checkpoint_and_leave_no_file(tmp_path: Path, first: int) -> None:
    number = rounds(30, 1600)
    counts, wrong = simulations(first * 1_000_000, number, str(tmp_path))
    record("G1", "simulated histories", number, len(wrong), "histories")
    record("G5", "simulated take-overs", counts["take-overs"], len(wrong), "take-overs")
    assert not wrong, f"python -m test_simulation {min(wrong)}: {wrong[min(wrong)]}"
    assert counts["take-overs"] > number
    assert counts["registered"] > number


if __name__ == "__main__":
    began = time.process_time()
    counted, bad = simulations(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1, "/tmp")
    for seed, violations in bad.items():
        print(seed, *violations, sep="\n  ")
    print(dict(counted), f"{len(bad)} wrong, {time.process_time() - began:.1f} s of CPU")
