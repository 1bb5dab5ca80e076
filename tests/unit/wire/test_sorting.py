"""Columns of numbers are ordered in each of the ways: by digits, by merging runs, by comparing."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelib.wire import sorting
from statelib.wire.sorting import order_by, order_of

DIGITS = st.lists(st.sampled_from([0, 1, 2, 2**16 - 1]), min_size=4, max_size=4)
NUMBERS = DIGITS.map(lambda digits: sum(digit << 16 * place for place, digit in enumerate(digits)))


@given(
    first=st.lists(NUMBERS, max_size=40),
    masks=st.sampled_from([2**64 - 1, 2**48 - 1, 0xFFFF_0000_FFFF_0000, 0xFFFF]),
    many=st.sampled_from([1, 10**6]),
    runs=st.booleans(),
)
def test_rows_are_in_the_order_of_the_columns(first: list[int], masks: int, many: int, runs: bool) -> None:
    numbers = np.array([number & masks for number in first], np.uint64)
    if runs:
        numbers = np.concatenate([np.sort(part) for part in np.array_split(numbers, 2)])
    second = np.arange(len(numbers), dtype=np.uint64)[::-1] % np.uint64(3)
    with patch.object(sorting, "_MANY", many), patch.object(sorting, "_RUN", 1024 if many == 1 else 1):
        assert np.array_equal(numbers[order_of(numbers)], np.sort(numbers))
        assert order_by([numbers, second]).tolist() == np.lexsort([second, numbers]).tolist()


@pytest.mark.parametrize("bits", [3, 16, 17, 40, 48, 49, 64])
@pytest.mark.parametrize("shift", [0, 16])
def test_many_numbers_are_ordered(bits: int, shift: int) -> None:
    numbers = np.random.default_rng(bits).integers(0, 2**bits, 20_000, np.uint64) << np.uint64(shift)
    assert np.array_equal(np.sort(order_of(numbers)), np.arange(len(numbers)))
    assert np.array_equal(numbers[order_of(numbers)], np.sort(numbers))
