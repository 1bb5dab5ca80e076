"""Fuzzing that coverage guides finds nothing, for as long as there is time."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.running import ROOT
from tests.support.extent import TEST_FAULTS, rounds
from tests.support.figures import record

SECONDS = rounds(1, 20)
TARGETS = ("metadata", "manifest-bodies", "serializer-snapshots", "names", "pipeline-files")
if TEST_FAULTS:  # streams have many seeds, and each is read before the time begins to count
    TARGETS += ("canonical", "heap", "logs-own", "operator-state")


@pytest.mark.timeout(SECONDS * len(TARGETS) + 500)
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="no atheris for this Python or machine")
def test_nothing_is_found(tmp_path: Path) -> None:
    # by a shell: what this process has used at its peak would be taken for what its child uses
    words = ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-m", "tests.fuzz.guided", ",".join(TARGETS)]
    search = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "MALLOC_ARENA_MAX": "1", "PYTHONPATH": search, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [*words, str(SECONDS)], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    executed = re.findall(r"number_of_executed_units: (\d+)", done.stderr)
    assert len(executed) == len(TARGETS), done.stderr[-4000:]
    record("G8", "executions guided by coverage", sum(map(int, executed)), unit="executions")
