"""Content hashes do not depend on how many rows are hashed at once."""

import numpy as np

from statelib.wire.digest import row_hashes
from statelib.wire.ragged import from_list


def test_hashes_of_many_rows_equal_those_of_each_row() -> None:
    rows = [b"%d" % (i * 7919) * (i % 3) for i in range(40_000)]
    keys, values = from_list(rows), from_list(rows[::-1])
    hashes = row_hashes(keys, values)
    assert len(hashes) == len(rows)
    for start in (0, 16_383, 16_384, 32_768, 39_999):
        one = row_hashes(keys.slice(start, start + 1), values.slice(start, start + 1))
        assert np.array_equal(hashes[start : start + 1], one)


def test_no_rows_have_no_hashes() -> None:
    assert row_hashes(from_list([]), from_list([])).dtype == np.uint64
