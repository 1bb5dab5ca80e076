"""Row P18: one run of a checkpoint DAG, against a DAG of one SparkSubmitOperator whose job reads the same events.

Both by ``airflow dags test`` over a new work folder; processor seconds of all processes that it starts. The plain DAG's
job counts the flights of the day by aircraft and writes the counts as Parquet."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

from demo.airflow_process import migrate
from demo.places import Places, Ports, environment
from demo.prepare import raw_flights, write_days
from tests.benchmarks.measure import Contender, Ratio, take_turns

ROWS = ("P18",)
WARMUPS = 0
PLAIN = """
from datetime import datetime
from airflow.sdk import DAG
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
with DAG("plain", schedule=None, start_date=datetime(2013, 1, 1)):
    SparkSubmitOperator(task_id="job", application="{job}", conn_id="spark_default")
"""
JOB = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.read.parquet("{data}/*").groupBy("tailnum").count().write.mode("overwrite").parquet("{data}/../counts")
spark.stop()
"""


def run(_: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    """Run day after day from January 1st, whose run is that of the 2nd, because the same interval is not applied
    twice."""
    places = Places(work=root / "work")
    places.make_directories()
    write_days(raw_flights(), places.data / "flights")
    migrate(places)
    plain = root / "dags"
    plain.mkdir()
    (root / "job.py").write_text(JOB.format(data=places.data / "flights" / "2013-01-01"))
    (plain / "plain.py").write_text(PLAIN.format(job=root / "job.py"))
    ours, theirs = Dags(places, "aircraft_activity.checkpoint"), Dags(places, "plain", plain)
    figures = take_turns({"ours": Contender(ours.run), "theirs": Contender(theirs.run)}, runs, WARMUPS)
    note = f"INVALID: {ours.failed + theirs.failed}" if ours.failed + theirs.failed else "flights of a day"
    what, against = "whole run of a checkpoint DAG", "DAG of one SparkSubmit over the same events"
    return [Ratio("P18", what, against, "≤ 1.5", "cpu s", figures["ours"], figures["theirs"], note=note)]


class Dags:
    def __init__(self, places: Places, dag: str, folder: Path | None = None) -> None:
        self._dag, self._environment = dag, environment(places, Ports())
        self._work = places.work
        if folder:
            self._environment["AIRFLOW__CORE__DAGS_FOLDER"] = str(folder)
        self.failed: list[str] = []

    def run(self, number: int) -> None:
        binary = Path(self._environment["PATH"].split(":")[0]) / "airflow"
        command = [str(binary), "dags", "test", self._dag, f"2013-01-{number + 2:02d}"]
        done = subprocess.run(
            command, env=self._environment, cwd=self._work, capture_output=True, text=True, check=False
        )
        if done.returncode or "state=success" not in done.stdout + done.stderr:
            self.failed.append(f"{self._dag}: {(done.stdout + done.stderr)[-300:]}")
