"""Hostile names and paths by way of Airflow: the routes of the page "State", trigger forms, the flows behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile.test_hostile_input import without_network
from tests.support.figures import record
from tests.support.worlds import CHECKOUT

FREE_TEXT = {"savepoint.note", "verify.pipeline"}
"""Fields of free text: a note is shown as text; the name of a pipeline to verify is checked and refused by the
flow."""
PATHS = {"savepoint.target", "restore.checkpoint"}
"""Fields of paths: absolute paths are allowed, and nothing else is accepted."""


@pytest.mark.timeout(600)
def test_hostile_names_are_refused_by_every_route_and_every_form(tmp_path: Path) -> None:
    (tmp_path / "jail").mkdir()
    words = [*without_network(), sys.executable, "-m", "tests.hostile.airflow_ways", str(tmp_path / "jail")]
    own = {"AIRFLOW_HOME": str(tmp_path / "home"), "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR"}
    env = os.environ | own | {"PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(words, cwd=CHECKOUT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["wrong"] == []
    tried, refused, forms = answer["tried"], answer["refused"], answer["forms"]
    assert tried["page"] >= 10 * answer["tricks"]
    assert {group for group in tried if group != "page"} == {"format", "verify", "restore", "target"}
    assert all(refused[group] == tried[group] >= 40 for group in refused)
    assert {name for name, number in forms.items() if number < answer["tricks"]} == FREE_TEXT | PATHS
    assert all(forms[name] >= 50 for name in PATHS)
    record("G8", "hostile inputs by way of Airflow", sum(tried.values()) + sum(forms.values()), unit="inputs")
