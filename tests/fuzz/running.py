"""Functions with which tests run campaigns: each in a process of its own, with its findings in the test's failure."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.extent import TEST_ALL, TEST_FAULTS

ROOT = Path(__file__).resolve().parents[2]
SEED = 20130101
TIMES = 10 if TEST_ALL else 1 if TEST_FAULTS else 0.1
TIMEOUT_S = 240 * max(1, TIMES)


def assert_no_findings(target: str, rounds: int) -> None:
    """Run a campaign and assert that it has no findings: ``rounds`` mutations with ``make test-faults``, a tenth
    of them with ``make test``, ten times as many with ``make test-all``; the same ones every time."""
    cases = int(rounds * TIMES)
    words = [sys.executable, "-m", "tests.fuzz.campaign", target, str(cases), str(SEED)]
    # There is one thread and one arena, because memory that libraries reserve counts too.
    single = {"MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        words, cwd=ROOT, env=os.environ | single, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome["cases"] == cases
    assert not outcome["findings"], "\n\n".join(
        f"{f['count']} times {f['what']}, first in case {f['first_case']} ({f['seed']}):\n{f['trace']}"
        for f in outcome["findings"]
    )
    if target not in ("commands", "commands-rocksdb", "local-index"):  # These refuse in their own way.
        assert outcome["refused"] > outcome["cases"] // 4  # The damage has an effect.
