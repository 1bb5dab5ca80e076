"""Damaged change logs."""

import pytest

from tests.fuzz.running import TIMEOUT_S, assert_no_findings


@pytest.mark.timeout(TIMEOUT_S + 60)
@pytest.mark.parametrize(
    ("target", "rounds"),
    [
        ("logs-flink", 1500),
        ("logs-own", 2500),
        ("logs-own-compressed", 1500),
    ],
)
def test_damaged_change_logs_are_refused_or_read(target: str, rounds: int) -> None:
    assert_no_findings(target, rounds)
