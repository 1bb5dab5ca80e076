"""Byte order and the Arrow view of serialized keys."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelib.backends.key_order import as_arrow, as_ragged, byte_order
from statelib.wire.ragged import from_list

SHORT = st.lists(st.binary(max_size=20))
ALIKE = st.lists(st.lists(st.sampled_from([b"\x00", b"\xff", b"a" * 7]), max_size=4).map(b"".join))
FIXED = st.lists(st.binary(min_size=11, max_size=11) | st.binary(min_size=1, max_size=1).map(lambda b: b * 11))
LONG = st.lists(st.binary(max_size=6).map(lambda tail: b"k" * 66 + tail))


@given(rows=SHORT | ALIKE | FIXED | LONG)
def test_the_order_is_that_of_bytes_and_stable(rows: list[bytes]) -> None:
    expected = sorted(range(len(rows)), key=lambda i: rows[i])
    assert byte_order(from_list(rows)).tolist() == expected


@pytest.mark.parametrize("start", [0, 1, 3])
def test_a_slice_is_ordered_by_its_own_rows(start: int) -> None:
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
