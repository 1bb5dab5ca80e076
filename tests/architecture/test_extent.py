"""The sample of a matrix contains every value, is small, and is the same in every process."""

from itertools import product

import pytest

from tests.support.extent import TEST_ALL, cases, sample

AXES = [("a", "b", "c", "d", "e", "f", "g"), (False, True), ("x", "y", "z"), (1,)]


def test_every_value_is_in_the_sample() -> None:
    chosen = sample(list(product(*AXES)))
    for axis, values in enumerate(AXES):
        counted = [sum(case[axis] == value for case in chosen) for value in values]
        assert min(counted) >= 1
        assert max(counted) - min(counted) <= 1
    assert len(chosen) == max(map(len, AXES))
    assert chosen == sample(list(product(*AXES)))


@pytest.mark.skipif(TEST_ALL, reason="all cases are run")
def test_impossible_cases_are_in_no_sample() -> None:
    chosen = cases(*AXES, possible=lambda letter, flag, *_: flag or letter != "a")
    assert ("a", False) not in {case[:2] for case in chosen}
    assert {case[0] for case in chosen} == set(AXES[0])
