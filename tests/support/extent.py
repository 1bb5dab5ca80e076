"""The extent of the large tests. Of each matrix a sample of the combinations is run, or with STATELIB_TEST_ALL=1 all of
them. Faults are tried as often as `make test` has time for, or with STATELIB_TEST_FAULTS=1 as often as is promised."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any

TEST_ALL = os.environ.get("STATELIB_TEST_ALL", "") not in ("", "0")
"""What ``make test-all`` sets."""
TEST_FAULTS = os.environ.get("STATELIB_TEST_FAULTS", "") not in ("", "0")
"""What ``make test-faults`` sets."""

Case = tuple[Any, ...]


def examples(number: int) -> int:
    """Return the number of examples of a property, five times as many with STATELIB_TEST_ALL=1."""
    return number * 5 if TEST_ALL else number


def rounds(usual: int, faults: int) -> int:
    """Return how often a fault is tried: ``usual`` times, or ``faults`` times in ``make test-faults``."""
    return faults if TEST_FAULTS else usual


def cases(*axes: Sequence[Any], possible: Callable[..., bool] = lambda *_: True) -> list[Case]:
    """The possible combinations of one value of each axis: all of them, or :func:`sample`."""
    every = [case for case in product(*axes) if possible(*case)]
    return every if TEST_ALL else sample(every)


def sample(every: Sequence[Case]) -> list[Case]:
    """A small choice of the cases, always the same one: every value of every axis is in one, about equally often, and
    values of different axes meet in as many pairs as there can be."""
    unseen = {value for case in every for value in enumerate(case)}
    seen: Counter[Any] = Counter()
    chosen: list[Case] = []

    def worth(case: Case) -> tuple[int, int, int]:
        values = list(enumerate(case))
        return (
            len(unseen.intersection(values)),
            sum(not seen[pair] for pair in combinations(values, 2)),
            -sum(seen[value] for value in values),
        )

    while unseen:
        best = max(every, key=worth)
        chosen.append(best)
        unseen.difference_update(enumerate(best))
        seen.update(enumerate(best))
        seen.update(combinations(enumerate(best), 2))
    return chosen


def name_of(case: object) -> str:
    """For pytest's ``ids``."""
    return "-".join(map(str, case)) if isinstance(case, tuple) else str(case)
