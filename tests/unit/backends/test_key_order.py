"""Byte order and the Arrow view of serialized keys."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelib.backends.keys.order import byte_order, quick_order
from statelib.wire.ragged import as_arrow, as_ragged, from_list

SHORT = st.lists(st.binary(max_size=20))
ALIKE = st.lists(st.lists(st.sampled_from([b"\x00", b"\xff", b"a" * 7]), max_size=4).map(b"".join))
FIXED = st.lists(st.binary(min_size=11, max_size=11) | st.binary(min_size=1, max_size=1).map(lambda b: b * 11))
NUMBERS = st.lists(st.integers(0, 40).map(lambda n: b"\x07" + n.to_bytes(8, "big") + b"\x00"))
LONG = st.lists(st.binary(max_size=6).map(lambda tail: b"k" * 66 + tail))


@given(rows=SHORT | ALIKE | FIXED | NUMBERS | LONG)
def test_rows_are_ordered_by_their_bytes_and_equal_rows_keep_their_order(rows: list[bytes]) -> None:
    expected = sorted(range(len(rows)), key=lambda i: rows[i])
    assert byte_order(from_list(rows)).tolist() == expected


@given(rows=SHORT | ALIKE | FIXED | NUMBERS | LONG)
def test_the_quick_order_equals_the_byte_order(rows: list[bytes]) -> None:
    rows = list(dict.fromkeys(rows))
    order = quick_order(from_list(rows))
    if order is not None:
        assert order.tolist() == byte_order(from_list(rows)).tolist() != list(range(len(rows)))


def test_only_numbers_that_are_not_yet_in_order_have_a_quick_order() -> None:
    rows = [n.to_bytes(8, "big") for n in (3, 1, 2)]
    order = quick_order(from_list(rows))
    assert order is not None
    assert order.tolist() == [1, 2, 0]
    assert quick_order(from_list(sorted(rows))) is None
    assert quick_order(from_list([b"b" * 9, bytes(range(9))])) is None, "nine bytes differ"


@pytest.mark.parametrize("start", [0, 1, 3])
def test_the_order_of_a_slice_uses_only_the_rows_of_the_slice(start: int) -> None:
    rows = [b"zz", b"b", b"", b"a", b"a\x00", b"c" * 9]
    assert byte_order(from_list(rows).slice(start, 6)).tolist() == sorted(
        range(6 - start), key=lambda i: rows[start + i]
    )


@given(rows=SHORT, start=st.integers(0, 5))
def test_arrow_and_ragged_are_two_views_of_the_same_rows(rows: list[bytes], start: int) -> None:
    part = from_list(rows).slice(min(start, len(rows)), len(rows))
    array = as_arrow(part)
    array.validate(full=True)
    assert array.to_pylist() == rows[min(start, len(rows)) :]
    assert as_ragged(array).to_list() == array.to_pylist()
    assert as_ragged(array[1:]).to_list() == array[1:].to_pylist()


def test_an_arrow_array_without_buffers_has_no_rows() -> None:
    assert len(as_ragged(pa.array([], pa.large_binary()))) == 0
    assert byte_order(from_list([])).dtype == np.int64
