"""A decimal becomes the nearest double, as Python's own conversion finds it."""

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelib.serializers.columns.decimal_words import as_doubles

COLUMNS = st.integers(1, 38).flatmap(
    lambda digits: st.tuples(
        st.just(digits),
        st.integers(0, digits),
        st.lists(st.none() | st.integers(-(10**digits) + 1, 10**digits - 1), max_size=20),
    )
)


@given(COLUMNS, st.integers(0, 3))
def test_each_decimal_becomes_the_nearest_double(column: tuple[int, int, list[int | None]], skipped: int) -> None:
    digits, scale, unscaled = column
    values = [None if number is None else Decimal(f"{number}E-{scale}") for number in unscaled]
    doubles = as_doubles(pa.array(values, pa.decimal128(digits, scale))[skipped:])
    assert doubles.type == pa.float64()
    assert doubles.to_pylist() == [None if value is None else float(value) for value in values[skipped:]]


def test_amounts_of_money_are_equal_to_the_numbers_of_a_pipeline_file() -> None:
    cents = [Decimal(number).scaleb(-2) for number in range(-100_000, 100_001)]
    assert as_doubles(pa.array(cents, pa.decimal128(10, 2))).to_pylist() == [float(str(value)) for value in cents]


@pytest.mark.parametrize("values", [pa.array([1, None], pa.int64()), pa.array([1.5, None], pa.float32())])
def test_other_numbers_are_cast(values: pa.Array) -> None:
    assert as_doubles(values).to_pylist() == [values[0].as_py(), None]
