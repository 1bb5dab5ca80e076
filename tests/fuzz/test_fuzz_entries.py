"""Damaged keys and values, rows of SQL among them."""

import pytest

from tests.fuzz.running import TIMEOUT_S, assert_no_findings


@pytest.mark.timeout(TIMEOUT_S + 60)
@pytest.mark.parametrize(
    ("target", "rounds"),
    [
        ("entries", 5000),
        ("entries-sql", 4000),
        ("entries-sql-made", 4000),
    ],
)
def test_damaged_entries_are_refused_or_read(target: str, rounds: int) -> None:
    assert_no_findings(target, rounds)
