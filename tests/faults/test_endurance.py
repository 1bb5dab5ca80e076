"""A hundred checkpoints, of which many fail in every way there is: what fails leaves nothing, what completes is
whole and right, whatever came before it."""

from pathlib import Path

import pytest

from tests.faults.endured import STRATEGIES, Subtask
from tests.support.extent import cases


@pytest.mark.parametrize(("strategy", "local"), cases(list(STRATEGIES), [False, True]))
def test_a_hundred_checkpoints_with_faults_lose_no_state_and_leave_no_file(
    tmp_path: Path, strategy: str, local: bool
) -> None:
    subtask = Subtask(tmp_path, strategy, local, seed=20260101 + local)
    for number in range(1, 101):
        subtask.update()
        subtask.checkpoint(number)
    subtask.check_checkpoints()
    subtask.close()
    failed = sum(count for (_, whole), count in subtask.fates.items() if not whole)
    assert 20 <= failed <= 80, subtask.fates
