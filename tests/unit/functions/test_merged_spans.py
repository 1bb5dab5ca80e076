"""Windows of several keys that overlap or touch are merged, whatever their times are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelib.functions.sessions.spans import SessionWindows, merged

TIMES = st.integers(-9, 9)
FAR = st.sampled_from([-(2**62), -(2**40), -1, 0, 1, 2**40, 2**62 - 1])
SPANS = st.tuples(st.integers(0, 3), TIMES | FAR, st.integers(1, 4) | st.just(2**41))


def spans(rows: list[tuple[int, int, int]]) -> SessionWindows:
    """Return windows from rows of (owner, start, length)."""
    owners, starts, lengths = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return SessionWindows(owners, starts, starts + lengths)


def merged_one_by_one(rows: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return the merged windows as (owner, start, end)."""
    result: list[tuple[int, int, int]] = []
    for owner, start, length in sorted(rows):
        if result and result[-1][0] == owner and result[-1][2] >= start:
            result[-1] = (owner, result[-1][1], max(result[-1][2], start + length))
        else:
            result.append((owner, start, start + length))
    return result


@given(rows=st.lists(SPANS, min_size=1))
def test_windows_that_overlap_or_touch_are_one_window(rows: list[tuple[int, int, int]]) -> None:
    windows, codes = merged(spans(rows))
    result = list(zip(windows.owners.tolist(), windows.starts.tolist(), windows.ends.tolist(), strict=True))
    assert result == merged_one_by_one(rows)
    for (owner, start, length), code in zip(rows, codes.tolist(), strict=True):
        assert result[code][0] == owner
        assert result[code][1] <= start < start + length <= result[code][2]


@pytest.mark.parametrize("owners", [1, 2**20])
def test_keys_with_large_numbers_are_not_mixed_up(owners: int) -> None:
    rows = [(owner, time, 5) for owner in (0, owners) for time in (2**50, 3, -(2**50), 5)]
    windows, _ = merged(spans(rows))
    assert len(windows) == 6
    assert windows.starts.tolist() == 2 * [-(2**50), 3, 2**50]
