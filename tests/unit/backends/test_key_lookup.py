"""Lookups of serialized keys and groups of equal ones, by each of the ways that depend on sizes and lengths."""

from collections import Counter
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelib.backends.keys import lookup as key_lookup
from statelib.backends.keys.distinct import entries_per_key
from statelib.backends.keys.lookup import find_rows, grouped
from statelib.wire.ragged import Ragged, from_fixed, from_list

SHORT = st.lists(st.binary(max_size=20))
FIXED = st.lists(st.binary(min_size=11, max_size=11) | st.binary(min_size=1, max_size=1).map(lambda b: b * 11))
NUMBERS = st.lists(st.integers(0, 40).map(lambda n: b"\x07" + n.to_bytes(8, "big") + b"\x00"))
ALIKE = st.lists(st.tuples(*[st.sampled_from(b"ab")] * 9, *[st.sampled_from(b"abcd")] * 3).map(bytes))
"""Keys that differ in more than eight bytes, but many of them not in the first eight."""
LONG = st.lists(st.binary(min_size=3, max_size=3).map(lambda tail: b"k" * 66 + tail + b"k" * 9 + tail * 3))
SIDES = [st.tuples(rows, rows) for rows in (SHORT, FIXED, NUMBERS, ALIKE, LONG)]


@given(
    sides=st.one_of(SIDES),
    ordered=st.tuples(st.booleans(), st.booleans()),
    start=st.integers(0, 3),
    large=st.sampled_from([1, 1 << 16]),
    few_shared=st.sampled_from([0, 16]),
)
def test_lookup_returns_the_row_number_of_each_key(
    sides: tuple[list[bytes], list[bytes]], ordered: tuple[bool, bool], start: int, large: int, few_shared: int
) -> None:
    held, keys = (
        sorted(set(rows)) if how else list(dict.fromkeys(rows)) for rows, how in zip(sides, ordered, strict=True)
    )
    expected = [held[start:].index(key) if key in held[start:] else -1 for key in keys]
    some = from_list(held).slice(min(start, len(held)), len(held))
    with patch.object(key_lookup, "_LARGE", large), patch.object(key_lookup, "_FEW_SHARED", few_shared):
        assert find_rows(some, from_list(keys)).tolist() == expected


def test_keys_with_the_same_hash_are_compared() -> None:
    held, keys = ([bytes([n]) * 9 for n in numbers] for numbers in ((1, 2, 3), (3, 4, 1)))

    def length(rows: Ragged) -> np.ndarray:
        return rows.lengths.astype(np.uint64)

    with (
        patch.object(key_lookup, "_LARGE", 1),
        patch.object(key_lookup, "_rows_by_first_bytes", lambda *_: None),
        patch.object(key_lookup, "byte_hashes", length),
    ):
        assert find_rows(from_list(held), from_list(keys)).tolist() == [2, -1, 0]


@pytest.mark.parametrize("alike", [0, 1 << 12, 1 << 17], ids=["no key", "some keys", "all keys"])
@pytest.mark.parametrize("width", [8, 9, 33])
def test_many_keys_are_found_by_sorting_as_in_a_hash_table(width: int, alike: int) -> None:
    """``alike``: so many keys share their first bytes with another one."""
    random, rows = np.random.default_rng(width), 70_000
    matrix = random.integers(0, 256, (2 * rows, width), dtype=np.uint8)
    matrix[: alike // 2, :-1] = matrix[alike // 2 : alike // 2 * 2, :-1]
    matrix[: alike // 2, -1] = matrix[alike // 2 : alike // 2 * 2, -1] ^ 1
    matrix = matrix[random.permutation(2 * rows)]
    looked_up = random.permutation(2 * rows)[:rows]
    expected = np.where(looked_up < rows, looked_up, -1)
    assert find_rows(from_fixed(matrix[:rows]), from_fixed(matrix[looked_up])).tolist() == expected.tolist()


@given(rows=st.one_of(SHORT, FIXED, NUMBERS, ALIKE, LONG))
def test_equal_keys_are_neighbours_in_the_order_of_their_rows(rows: list[bytes]) -> None:
    order, starts = grouped(from_list(rows))
    groups = [part.tolist() for part in np.split(order, starts[1:])] if rows else []
    places: dict[bytes, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(row, []).append(place)
    assert sorted(groups) == sorted(places.values())


@given(sides=st.one_of(SIDES))
def test_entries_are_counted_per_key(sides: tuple[list[bytes], list[bytes]]) -> None:
    entries, keys = sides[0], list(dict.fromkeys(sides[1]))
    counted = Counter(entries)
    assert entries_per_key(from_list(entries), from_list(keys)).tolist() == [counted[key] for key in keys]
