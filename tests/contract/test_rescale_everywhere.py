"""Rescaling from every parallelism of 1 to 8 to every other. Each run finds local copies that are not what their index
claims."""

import random
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.extent import rounds
from tests.support.figures import record
from tests.support.tours import Tours, Way

WAYS = [("rocksdb", "incremental"), ("heap", "full")]
STEPS = rounds(9, 64)
SEED = 20260616


def walk(highest: int) -> list[int]:
    """Return a closed path that goes once from every number to every number, itself included."""
    left = {number: list(range(1, highest + 1)) for number in range(1, highest + 1)}
    chance = random.Random(SEED)
    for each in left.values():
        chance.shuffle(each)
    result, way = [1], []
    while result:
        if ahead := left[result[-1]]:
            result.append(ahead.pop())
        else:
            way.append(result.pop())
    return way[::-1]


def test_the_path_has_every_pair_of_parallelisms() -> None:
    assert len(set(pairwise(walk(8)))) == 64 == len(walk(8)) - 1


@pytest.mark.parametrize(("backend", "strategy"), WAYS)
def test_every_key_exists_once_after_rescaling_from_any_parallelism_to_any_other(
    tmp_path: Path, backend: str, strategy: str
) -> None:
    """``Tours.run`` compares all states with plain dictionaries, and refuses a key that exists twice."""
    tours, spoiled = Tours(tmp_path), 0
    for number, parallelism in enumerate(walk(8)[: STEPS + 1], 1):
        if number > 1:
            spoiled += spoil(tmp_path)
        tours.use(Way(backend, strategy, local_recovery=True, parallelism=parallelism, keep=3))
        tours.run(number)
    assert spoiled >= STEPS
    record("G4", "rescaled runs with every key once", STEPS)


def spoil(root: Path) -> int:
    """Give every other local copy the bytes of the next one, so that it is a complete but wrong file. Return the
    number of changed copies."""
    copies = sorted(p for p in (root / "scratch").rglob("local-state/**/*") if p.is_file() and p.suffix != ".json")
    contents = [path.read_bytes() for path in copies]
    for path, content in list(zip(copies, contents[1:] + contents[:1], strict=True))[::2]:
        path.unlink()  # The copy may be a link to a file that others use.
        path.write_bytes(content)
    return len(copies[::2])
