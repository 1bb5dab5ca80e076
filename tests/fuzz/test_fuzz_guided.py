"""Fuzzing that coverage guides has no findings within the available time."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.running import ROOT
from tests.support.extent import TEST_FAULTS, large, rounds
from tests.support.figures import record

SECONDS = rounds(1, 20)
TARGETS = ("metadata", "manifest-bodies", "serializer-snapshots", "names", "pipeline-files")
if TEST_FAULTS:  # Streams have many seeds, and each is read before the time begins to count.
    TARGETS += ("canonical", "heap", "logs-own", "operator-state")


@pytest.mark.timeout(SECONDS * len(TARGETS) + 500)
@large("make test has the other campaigns of tests/fuzz")
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="no atheris for this Python or machine")
def test_guided_fuzzing_has_no_findings(tmp_path: Path) -> None:
    # The process is started by a shell: otherwise the peak memory of this process would count as that of its child.
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
