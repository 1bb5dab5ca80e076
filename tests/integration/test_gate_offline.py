"""No library that the gate uses sends any data: no name is looked up, and nothing leaves this machine."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.worlds import CHECKOUT


def test_a_run_of_the_gate_opens_no_connection(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.gate_offline", str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("tried [], passed True, checks 1"), done.stdout
