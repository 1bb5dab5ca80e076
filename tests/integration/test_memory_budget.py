"""A snapshot or a restore holds no more than its budget beyond the backend's own, however large the state and
however skewed its key groups: a peak that grew with the state would be several times as large."""

from pathlib import Path

from tests.benchmarks.memory import STEPS, measure
from tests.support.extent import TEST_ALL

MEBIBYTES, BUDGET = (2200, 256) if TEST_ALL else (200, 180)


def test_no_snapshot_and_no_restore_uses_more_memory_than_its_budget(tmp_path: Path) -> None:
    rows = list(measure(tmp_path / "run", MEBIBYTES))
    assert [row.step for row in rows] == list(STEPS[1:])
    assert all(row.state >= MEBIBYTES * 0.9 for row in rows)
    assert {row.step: row.beyond for row in rows if row.beyond > BUDGET} == {}
