"""Modules of Great Expectations that only a few expectations need are loaded when one of these is used, not before."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

JUDGED = """
import sys
import pandas as pd
from statelib.model.quality import Severity
from statelib.quality.rules import Check, Frame, Library
from statelib.quality.validation import validate

def loaded():
    return [name for name in ("scipy.stats._stats_py", "altair.vegalite", "pyspark") if name in sys.modules]

def judged(name, **parameters):
    check = Check(name, Library(name, {"column": "kind", **parameters}), str, Severity.FAIL)
    table = pd.DataFrame({"key": [1, 2, 3, 4], "kind": ["a", "a", "b", "b"]})
    return [result.passed for result in validate([Frame(name, ("key",), table, (check,))]).results]

even = {"values": ["a", "b"], "weights": [0.5, 0.5]}
assert judged("ExpectColumnValuesToNotBeNull") == [True]
assert loaded() == [], loaded()
kl = "ExpectColumnKLDivergenceToBeLessThan"
assert judged(kl, partition_object=even, threshold=0.1) == [True]
assert judged(kl, partition_object={**even, "weights": [0.01, 0.99]}, threshold=0.1) == [False]
assert "scipy.stats._stats_py" in loaded(), loaded()
import pyspark.sql
assert not any("_Deferring" in repr(finder) for finder in sys.meta_path)
"""


def test_an_expectation_of_a_distribution_loads_its_modules(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", JUDGED, str(tmp_path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
