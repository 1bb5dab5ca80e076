"""Hostile input is refused with a typed error: none of its code runs, nothing outside is touched or connected to."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.extent import rounds
from tests.support.figures import record
from tests.support.worlds import CHECKOUT

MOST_BYTES = 256 << 20


def without_network() -> list[str]:
    """Return the words before a command that take its network away. Return none if that is not allowed; then only the
    audit hook watches."""
    words = ["unshare", "-rn"]
    able = shutil.which("unshare") and not subprocess.run([*words, "true"], capture_output=True, check=False).returncode
    return words if able else []


@pytest.mark.timeout(1200)
def test_hostile_input_is_refused(tmp_path: Path) -> None:
    words = [*without_network(), sys.executable, "-m", "tests.hostile.jail", str(tmp_path), str(rounds(12, 1))]
    single = {"MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(words, cwd=CHECKOUT, env=os.environ | single, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["wrong"] == []
    assert sum(answer["tried"].values()) >= 300
    for group in ("reading", "restoring"):
        assert answer["refused"][group] == answer["tried"][group] >= 300
    for group in ("name", "checkpoint", "storage"):
        assert answer["refused"][group] >= answer["tried"][group] - 1, "'nul' is a name like any other here"
    assert answer["memory_bytes"] < MOST_BYTES
    record("G8", "hostile inputs", sum(answer["tried"].values()), unit="inputs")
    record("G8", "slowest hostile input", answer["slowest"][1], unit="s")
