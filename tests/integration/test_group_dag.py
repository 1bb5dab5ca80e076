"""The DAG of a group in a real Airflow, whose job a real spark-submit runs."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import yaml

from demo.airflow_process import migrate
from demo.places import CHECKOUT, Places, Ports, environment
from demo.prepare import write_days
from statelib.flows.wiring import deployment
from statelib.model.ids import PipelineName
from tests.support.extent import large

pytestmark = pytest.mark.timeout(900)
TEMPLATES = {"aircraft": "aircraft_activity", "carriers": "carrier_streaks", "wrong": "carrier_streaks"}


def write_pipelines(directory: Path, **sources: str) -> None:
    """Write the files of the group. ``sources``: other paths of sources by pipeline."""
    directory.mkdir(exist_ok=True)
    for name, template in TEMPLATES.items():
        document = yaml.safe_load((CHECKOUT / "dags" / "pipelines" / f"{template}.yaml").read_text())
        document |= {"name": name, "group": "together", "retries": {"count": 0}}
        document["source"]["path"] = sources.get(name, document["source"]["path"])
        (directory / f"{name}.yaml").write_text(yaml.safe_dump(document))


@large("make test has test_group_on_spark and test_airflow_on_spark_connect")
def test_a_run_completes_all_but_the_pipeline_that_fails_and_a_second_run_only_that_one(
    tmp_path: Path, flights: pl.DataFrame
) -> None:
    places = Places(work=tmp_path / "work", pipelines=tmp_path / "pipelines")
    places.make_directories()
    write_days(flights, places.data / "flights")
    variables = environment(places, Ports())
    migrate(places)

    def run() -> tuple[str, dict[str, list[tuple[int, str]]]]:
        command = [sys.executable, "-m", "airflow", "dags", "test", "together.group", "2013-01-02"]
        done = subprocess.run(command, env=variables, cwd=places.work, capture_output=True, text=True, check=False)
        catalog = deployment(variables).catalog()
        records = {name: catalog.list(PipelineName(name)) for name in TEMPLATES}
        return done.stdout + done.stderr, {
            n: [(r.checkpoint_id, str(r.state)) for r in rs] for n, rs in records.items()
        }

    write_pipelines(places.pipelines, wrong="{data}/nowhere/{start:%Y-%m-%d}")
    lines, states = run()
    assert states == {"aircraft": [(1, "COMPLETED")], "carriers": [(1, "COMPLETED")], "wrong": [(1, "ABORTED")]}, lines
    assert "1 of 3 pipelines of group together failed" in lines
    assert "wrong checkpoint 1: no-source: " in lines

    write_pipelines(places.pipelines)
    lines, states = run()
    assert states == {
        "aircraft": [(1, "COMPLETED")], "carriers": [(1, "COMPLETED")], "wrong": [(2, "COMPLETED"), (1, "ABORTED")],
    }, lines  # fmt: skip
