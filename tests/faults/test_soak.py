"""A soak as short as a test: workers are killed and stopped at random instants, and nothing is lost or left over."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.extent import TEST_FAULTS, rounds
from tests.support.figures import record
from tests.support.worlds import CHECKOUT


@pytest.mark.timeout(1800)
def test_a_short_soak_loses_nothing(tmp_path: Path) -> None:
    """Run a soak in a process of its own. It forks, and its children must not inherit what other tests started."""
    minutes = rounds(20, 300) / 60
    command = [
        sys.executable,
        "-m",
        "tests.faults.soak",
        "--minutes",
        str(minutes),
        "--seed",
        "1",
        "--directory",
        str(tmp_path),
    ]
    done = subprocess.run(
        command if TEST_FAULTS else [*command, "--files-only"],
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    summary = json.loads(done.stdout[done.stdout.index("\n{\n") if "\n{\n" in done.stdout else 0 :])
    assert summary["kills"]
    record("G10", "kills of a soak", summary["kills"], summary["violations"], "kills")
    record("G10", "checkpoints of a soak", summary["checkpoints"], summary["violations"], "checkpoints")
