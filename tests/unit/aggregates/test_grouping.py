import numpy as np
import pyarrow as pa
import pytest

from statelib.aggregates.grouping import group_rows, pick_rows, reduce_groups


def test_groups_are_numbered_by_first_appearance():
    groups = group_rows([pa.array(["b", "a", "b", "c", "a"])])
    assert groups.codes.tolist() == [0, 1, 0, 2, 1]
    assert groups.first.tolist() == [0, 1, 3]


def test_rows_are_grouped_by_several_columns_or_by_a_struct():
    left, right = pa.array([1, 1, 2, 2, 1]), pa.array(["x", "y", "x", "x", "x"])
    expected = [0, 1, 2, 2, 0]
    assert group_rows([left, right]).codes.tolist() == expected
    assert group_rows([pa.StructArray.from_arrays([left, right], ["f0", "f1"])]).codes.tolist() == expected


def test_a_sliced_struct_keeps_its_own_rows():
    whole = pa.StructArray.from_arrays([pa.array([9, 1, 1, 2]), pa.array([9, 1, 1, 1])], ["f0", "f1"])
    assert group_rows([whole.slice(1)]).codes.tolist() == [0, 0, 1]


def test_numbers_are_equal_if_their_bits_are_and_all_nans_are_equal():
    nan = float("nan")
    assert group_rows([pa.array([0.0, -0.0, nan, 0.0, nan])]).codes.tolist() == [0, 1, 2, 0, 2]
    assert group_rows([pa.array([0.0, -0.0], pa.float32())]).codes.tolist() == [0, 1]


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
@pytest.mark.parametrize("span", [2, 100, 10**9, 2**63])
def test_whole_numbers_are_grouped_alike_whether_near_or_far_from_each_other(dtype: str, span: int) -> None:
    bounds = np.iinfo(dtype)
    for least in (bounds.min, max(bounds.max - span, bounds.min)):
        most = min(least + span, bounds.max)
        numbers = np.random.default_rng(span).integers(least, most, 500, dtype, endpoint=True)
        groups = group_rows([pa.array(numbers)])
        seen: dict[int, int] = {}
        assert groups.codes.tolist() == [seen.setdefault(number, len(seen)) for number in numbers.tolist()]
        assert numbers[groups.first].tolist() == list(seen)


def test_no_rows_make_no_groups():
    groups = group_rows([pa.array([], pa.int64()), pa.array([], pa.string())])
    assert (groups.size, len(groups.codes)) == (0, 0)


def test_reduce_groups_has_null_for_groups_without_values():
    values, codes = pa.array([5, 1, 7]), np.array([2, 2, 0])
    assert reduce_groups(values, codes, 4, "max").to_pylist() == [7, None, 5, None]
    assert reduce_groups(values, codes, 4, "sum").to_pylist() == [7, None, 6, None]


def test_pick_rows_compares_column_after_column():
    columns = [pa.array([1, 2, 2, 2]), pa.array(["z", "a", "c", "b"])]
    assert pick_rows(columns, np.array([0, 0, 0, 0]), 2, "max").tolist() == [2, -1]
    assert pick_rows(columns, np.array([0, 0, 0, 0]), 2, "min").tolist() == [0, -1]
