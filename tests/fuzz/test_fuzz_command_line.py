"""The command line over damaged snapshots: an exit code and one clear line, never a traceback."""

import pytest

from tests.fuzz.running import TIMEOUT_S, assert_no_findings


@pytest.mark.timeout(TIMEOUT_S + 60)
@pytest.mark.parametrize(
    ("target", "rounds"),
    [
        ("commands", 350),
        ("commands-rocksdb", 80),
    ],
)
def test_commands_on_damaged_snapshots_end_with_a_clear_line(target: str, rounds: int) -> None:
    assert_no_findings(target, rounds)
