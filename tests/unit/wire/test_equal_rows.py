"""Rows of one length: they behave like other rows, without their offsets."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from statelib.wire.digest import row_hashes
from statelib.wire.ragged import EqualRows, Ragged, concat, from_fixed, from_list, join


@st.composite
def matrices(draw: st.DrawFn) -> np.ndarray:
    rows, width = draw(st.integers(0, 20)), draw(st.integers(0, 9))
    return np.frombuffer(draw(st.binary(min_size=rows * width, max_size=rows * width)), np.uint8).reshape(rows, width)


@given(matrices())
def test_equal_rows_are_the_same_rows(matrix: np.ndarray) -> None:
    equal = from_fixed(matrix)
    same = from_list([row.tobytes() for row in matrix])
    assert isinstance(equal, EqualRows)
    rng = np.random.default_rng(len(matrix))
    rows = rng.integers(0, len(matrix), 7) if len(matrix) else np.empty(0, np.int64)
    start, stop = sorted(rng.integers(0, len(matrix) + 1, 2).tolist())
    for left, right in (
        (equal, same),
        (equal.take(rows), same.take(rows)),
        (equal.slice(start, stop), same.slice(start, stop)),
        (
            equal.slice(start, stop).take(rows[rows < stop - start]),
            same.slice(start, stop).take(rows[rows < stop - start]),
        ),
        (concat([equal, same]), concat([same, same])),
        (concat([equal, equal]), concat([same, same])),
        (concat([equal, from_fixed(np.ones((2, 3), np.uint8))]), concat([same, from_list([b"\1" * 3] * 2)])),
        (join([equal, same, equal]), join([same, same, same])),
    ):
        assert_same(left, right)
    assert equal.lengths_of(rows).tolist() == same.lengths_of(rows).tolist()
    assert row_hashes(equal, equal).tolist() == row_hashes(same, same).tolist()


def test_no_rows_between_single_rows_change_nothing() -> None:
    """numpy orders the bytes of such matrices by columns when it joins them."""
    row = from_fixed(np.arange(4, dtype=np.uint8).reshape(1, 4))
    none = row.take(np.empty(0, np.int64))
    both = concat([row, none, row])
    assert both.take(np.array([1, 0])).to_list() == [bytes([0, 1, 2, 3])] * 2


def test_the_bytes_of_a_row_lie_side_by_side() -> None:
    by_columns = np.arange(8, dtype=np.uint8).reshape(4, 2).T
    rows = EqualRows(by_columns)
    assert rows.take(np.array([1, 0])).to_list() == [bytes([1, 3, 5, 7]), bytes([0, 2, 4, 6])]
    assert_same(rows, from_list([bytes([0, 2, 4, 6]), bytes([1, 3, 5, 7])]))


def assert_same(left: Ragged, right: Ragged) -> None:
    assert left.to_list() == right.to_list()
    assert len(left) == len(right)
    assert left.lengths.tolist() == right.lengths.tolist()
    assert left.width == right.width
    data = left.data.tobytes()
    assert [data[a:b] for a, b in zip(left.offsets[:-1], left.offsets[1:], strict=True)] == right.to_list()
