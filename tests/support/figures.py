"""The figures that tests of faults measure for the goals of RELIABILITY.md. ``make test-faults`` collects them.

A test calls :func:`record` once it has passed, or before it fails for violations that it has counted. Lines are
appended to the file that STATELIB_FIGURES names, one JSON object each, so that the processes of pytest-xdist can
share it; without that variable nothing is kept.
"""

import json
import os
from pathlib import Path

ENVIRONMENT = "STATELIB_FIGURES"


def record(goal: str, what: str, tried: float, violations: int = 0, unit: str = "runs") -> None:
    """Record a figure of a test. ``goal``: G1 to G13. ``what`` names the figure; figures of one name are added up.
    ``tried``: the number of runs (or the measure in ``unit``); ``violations``: the number of runs that broke the
    promise."""
    if file := os.environ.get(ENVIRONMENT):
        line = {"goal": goal, "what": what, "tried": tried, "violations": violations, "unit": unit}
        with Path(file).open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")
