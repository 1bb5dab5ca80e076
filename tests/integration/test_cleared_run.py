"""A run that is repeated after its interval was applied, in a real Airflow: it publishes what is
not published yet, and sends no event of what another run has applied."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from demo.airflow_process import migrate
from demo.places import Places, Ports, environment
from statelib.flows.publication.steps import standings
from statelib.flows.wiring import Deployment, deployment
from tests.integration.shop import SALES, sales
from tests.support.published import table_rows
from tests.support.worlds import checkpoint_of

pytestmark = pytest.mark.timeout(900)
REST = """\
schedule: {cron: "@daily", start: 2013-01-01}
publish: {now: {target: "{data}/now", mode: table, state: total}}
"""


def test_a_run_without_anything_to_apply_publishes(tmp_path: Path) -> None:
    places, target, variables = shop_in_airflow(tmp_path, REST)
    checkpoint_of(target, "sales", 1, sales(0))
    lines = day_run_again(places, variables)
    assert "holds this interval already" in lines
    assert [each.behind for each in standings(target, target.pipeline("sales"))] == [0], lines
    assert len(table_rows(places.data / "now", ["shop"])) == 3
    assert events(places) == [], "the run that applied the interval has sent the event"


def shop_in_airflow(root: Path, rest: str) -> tuple[Places, Deployment, dict[str, str]]:
    """Return the places of an Airflow with the pipeline sales, its deployment and its environment."""
    places = Places(work=root / "work", pipelines=root / "pipelines")
    places.make_directories()
    places.pipelines.mkdir(exist_ok=True)
    (places.pipelines / "sales.yaml").write_text(SALES + rest)
    variables = environment(places, Ports())
    migrate(places)
    target = deployment(variables)
    target.migrate_catalog()
    return places, target, variables


def day_run_again(places: Places, variables: dict[str, str]) -> str:
    """Run the DAG of the first day, and return its log."""
    command = [sys.executable, "-m", "airflow", "dags", "test", "sales.checkpoint", "2013-01-02"]
    done = subprocess.run(command, env=variables, cwd=places.work, capture_output=True, text=True, check=False)
    lines = done.stdout + done.stderr
    assert done.returncode == 0, lines
    return lines


def events(places: Places) -> list[dict[str, Any]]:
    """Return the extra of each event of an asset that Airflow has."""
    with closing(sqlite3.connect(places.airflow / "airflow.db")) as database:
        return [json.loads(extra) for (extra,) in database.execute("SELECT extra FROM asset_event")]
