"""Ten runs of every strategy on one host, rescaled on the way: each restores from the host's copies alone."""

import pytest

from statelib.flows.wiring import Deployment
from tests.integration.test_local_recovery_flow import MERGED, STRATEGIES, deployment, restore, run, use

__all__ = ["deployment"]

PARALLELISM = {3: 3, 6: 1, 9: 4}
"""The number of subtasks with which the pipeline is restored, by the day after it."""


@pytest.mark.parametrize(("backend", "strategy"), [*STRATEGIES, *MERGED])
def test_ten_runs_with_rescaling_read_nothing_remotely(deployment: Deployment, backend: str, strategy: str) -> None:
    often = ", materialize_after_checkpoints: 2" if strategy.startswith("changelog") else ""
    use(deployment, backend, strategy + often)
    last, subtasks = run(deployment, 1).checkpoint_id, 2
    for number in range(2, 11):
        if number in PARALLELISM:
            subtasks = PARALLELISM[number]
            restore(deployment, str(last), subtasks)
        manifest = run(deployment, number)
        assert manifest.restored_from == ("local",) * subtasks, number
        last = manifest.checkpoint_id
