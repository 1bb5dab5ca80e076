"""Rows longer than the blocks in which bytes are moved and hashed, and spans of every kind gathered."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelib.wire.digest import row_hashes
from statelib.wire.ragged import BLOCK_BYTES, blocks, from_list, gather, join

pytestmark = pytest.mark.slow

LENGTHS = (3, BLOCK_BYTES - 1, 0, 2 * BLOCK_BYTES + 7, 1, BLOCK_BYTES, 5)
ROWS = [np.random.default_rng(i).bytes(n) for i, n in enumerate(LENGTHS)]


def test_the_hash_of_a_row_does_not_depend_on_the_size_of_blocks() -> None:
    base, mask = 0x9E3779B97F4A7C15, (1 << 64) - 1

    def polynomial(row: bytes) -> int:
        total = 0
        for byte in reversed(row):
            total = (total + byte + 1) * base & mask
        return (total + len(row)) & mask

    def mix(x: int) -> int:
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & mask
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB & mask
        return x ^ (x >> 31)

    keys = [b"key", *ROWS[:-1]]
    expected = [
        mix((mix(polynomial(key)) * 3 + mix(polynomial(value) ^ base)) & mask)
        for key, value in zip(keys, ROWS, strict=True)
    ]
    assert row_hashes(from_list(keys), from_list(ROWS)).tolist() == expected


def test_rows_longer_than_a_block_are_gathered_and_joined() -> None:
    rows = from_list(ROWS)
    order = np.array([3, 0, 6, 2, 1])
    assert gather(rows.data, rows.starts[order], rows.lengths[order]).to_list() == [ROWS[i] for i in order]
    short = from_list([b"%d" % i for i in range(100_000)])
    backwards = np.arange(len(short))[::-1]
    assert short.take(backwards).to_list() == short.to_list()[::-1]
    keys = from_list([b"k" * i for i in range(len(ROWS))])
    assert join([keys, rows]).to_list() == [b"k" * i + row for i, row in enumerate(ROWS)]


def test_blocks_cover_all_rows_and_are_not_larger_than_the_limit() -> None:
    offsets = from_list(ROWS).offsets
    spans = list(blocks(offsets))
    assert [a for a, _ in spans] == [0, *(b for _, b in spans[:-1])]
    assert spans[-1][1] == len(ROWS)
    assert all(b - a == 1 or offsets[b] - offsets[a] <= BLOCK_BYTES for a, b in spans)


@given(
    data=st.binary(min_size=1, max_size=60),
    spans=st.lists(st.tuples(st.integers(0, 59), st.integers(0, 9)), max_size=8),
    width=st.integers(1, 9),
    begin=st.integers(0, 9),
    kind=st.sampled_from(["any", "alike", "a matrix"]),
)
def test_overlapping_and_unordered_spans_are_gathered(
    data: bytes, spans: list[tuple[int, int]], width: int, begin: int, kind: str
) -> None:
    if kind == "alike":
        spans = [(start, width) for start, _ in spans]
    if kind == "a matrix":
        spans = [(begin % width + start // width * width, width) for start, _ in spans]
    spans = [(start, length) for start, length in spans if start + length <= len(data)]
    starts, lengths = (np.array([span[i] for span in spans], np.int64) for i in (0, 1))
    gathered = gather(np.frombuffer(data, np.uint8), starts, lengths)
    assert gathered.to_list() == [data[start : start + length] for start, length in spans]


@given(lengths=st.lists(st.integers(0, 400), min_size=1, max_size=12), seed=st.integers(0, 99))
def test_many_rows_together_are_taken_joined_and_hashed_like_single_rows(lengths: list[int], seed: int) -> None:
    """The number of rows is below or above the limit from which rows are moved length by length."""
    random = np.random.default_rng(seed)
    rows = [random.bytes(int(n)) for n in random.choice(lengths, int(random.choice([20, 600])))]
    order = random.permutation(len(rows))[: len(rows) - 1]
    whole = from_list([b"before", *rows, b"after"]).slice(1, len(rows) + 1)
    taken = whole.take(order)
    assert taken.to_list() == [rows[i] for i in order]
    assert join([whole, from_list([b""] * len(rows)), whole]).to_list() == [row + row for row in rows]
    hashes = row_hashes(taken, taken)
    assert hashes.tolist() == [int(row_hashes(one, one)[0]) for one in (from_list([rows[i]]) for i in order)]
