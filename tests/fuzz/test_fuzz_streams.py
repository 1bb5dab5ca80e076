"""Damaged streams: canonical, heap, operator state, RocksDB's meta stream (a keyed header)."""

import pytest

from tests.fuzz.running import TIMEOUT_S, assert_no_findings


@pytest.mark.timeout(TIMEOUT_S + 60)
@pytest.mark.parametrize(
    ("target", "rounds"),
    [
        ("canonical", 4000),
        ("canonical-sql", 3000),
        ("canonical-compressed", 2000),
        ("heap", 4000),
        ("heap-compressed", 2000),
        ("heap-flink", 2000),
        ("operator-state", 2500),
    ],
)
def test_damaged_streams_are_refused_or_read(target: str, rounds: int) -> None:
    assert_no_findings(target, rounds)
