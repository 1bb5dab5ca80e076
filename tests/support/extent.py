"""The extent of the large tests. A sample of the combinations of each matrix is run; with STATELIB_TEST_ALL=1 all of
them are, and the tests that show again in a large world what others show in a small one. Faults are tried as often as
`make test` has time for, or with STATELIB_TEST_FAULTS=1 as often as is promised."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any

import pytest

TEST_ALL = os.environ.get("STATELIB_TEST_ALL", "") not in ("", "0")
"""Whether ``make test-all`` is running."""
TEST_FAULTS = os.environ.get("STATELIB_TEST_FAULTS", "") not in ("", "0")
"""Whether ``make test-faults`` is running."""
EVERYTHING = TEST_ALL or TEST_FAULTS
"""Whether every combination is tried, and every test that is ``large``."""

Case = tuple[Any, ...]


def examples(number: int) -> int:
    """Return the number of examples of a property: a third of those given (rounded up), and with STATELIB_TEST_ALL=1
    five times as many as given."""
    return number * 5 if TEST_ALL else -(-number // 3)


def large(reason: str) -> pytest.MarkDecorator:
    """Return a mark for a test that ``make test`` leaves out.

    Parameters
    ----------
    reason:
        What ``make test`` runs instead. The line of the skip shows it.
    """
    return pytest.mark.skipif(not EVERYTHING, reason=f"{reason}: STATELIB_TEST_ALL=1")


def rounds(usual: int, faults: int) -> int:
    """Return how often a fault is tried: ``usual`` times, or ``faults`` times in ``make test-faults``."""
    return faults if TEST_FAULTS else usual


def cases(*axes: Sequence[Any], possible: Callable[..., bool] = lambda *_: True) -> list[Case]:
    """Return the possible combinations of one value of each axis: all of them, or :func:`sample`."""
    every = [case for case in product(*axes) if possible(*case)]
    return every if EVERYTHING else sample(every)


def sample(every: Sequence[Case]) -> list[Case]:
    """Return a small, fixed selection of the cases: it contains every value of every axis, about equally often, and
    as many pairs of values of different axes as possible."""
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
    """Return the name of a case for pytest's ``ids``."""
    return "-".join(map(str, case)) if isinstance(case, tuple) else str(case)
