"""A run that is repeated after its interval was applied, in a real Airflow: it publishes what is not published yet."""

import subprocess
import sys
from pathlib import Path

import pytest

from demo.airflow_process import migrate
from demo.places import Places, Ports, environment
from statelib.flows.publication.steps import standings
from statelib.flows.wiring import deployment
from tests.integration.shop import SALES, sales
from tests.support.extent import large
from tests.support.published import table_rows
from tests.support.worlds import checkpoint_of

pytestmark = pytest.mark.timeout(900)
REST = """\
schedule: {cron: "@daily", start: 2013-01-01}
publish: {now: {target: "{data}/now", mode: table, state: total}}
"""


@large("make test clears a run in test_airflow_run, and publishes without Airflow")
def test_a_run_without_anything_to_apply_publishes(tmp_path: Path) -> None:
    places = Places(work=tmp_path / "work", pipelines=tmp_path / "pipelines")
    places.make_directories()
    places.pipelines.mkdir(exist_ok=True)
    (places.pipelines / "sales.yaml").write_text(SALES + REST)
    variables = environment(places, Ports())
    migrate(places)
    target = deployment(variables)
    target.migrate_catalog()
    checkpoint_of(target, "sales", 1, sales(0))
    command = [sys.executable, "-m", "airflow", "dags", "test", "sales.checkpoint", "2013-01-02"]
    done = subprocess.run(command, env=variables, cwd=places.work, capture_output=True, text=True, check=False)
    lines = done.stdout + done.stderr
    assert done.returncode == 0, lines
    assert "holds this interval already" in lines
    assert [each.behind for each in standings(target, target.pipeline("sales"))] == [0], lines
    assert len(table_rows(places.data / "now", ["shop"])) == 3
