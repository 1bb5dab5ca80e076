"""Row P24: the snapshot job of a small pipeline through a Spark Connect server that stays up, against the same job by
spark-submit.

Processor seconds of all processes, the server's included. ``begin`` and ``register`` are not measured; Airflow's
worker runs them in both cases."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from statelib_airflow.runtime.jobs import job

from demo.spark_start import FAST, fast_start
from statelib.flows.checkpoint.steps import begin, register
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId
from statelib.savepoints.opened import open_checkpoint
from tests.benchmarks.checks import Totals, expected, of_statelib, verdict
from tests.benchmarks.events import batch_directory, interval, new_deployment, new_pipeline, write_batches
from tests.benchmarks.measure import Contender, Ratio, take_turns
from tests.integration.shop import environment
from tests.support.connect_server import connect_server

EVENTS = 20_000
ROWS = ("P24",)
WARMUPS = 8


def run(_: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    events = max(int(EVENTS * scale), 1000)
    write_batches(root, WARMUPS + runs, events)
    deployment = new_deployment(root)
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]"]
    submit += ["--driver-java-options", FAST, "--conf", "spark.ui.enabled=false"]
    with connect_server(root) as server:
        ours = Job(deployment, "connect", root, [sys.executable], server.environment())
        added = {"SPARK_REMOTE", *fast_start()}
        own = {name: value for name, value in server.environment().items() if name not in added}
        theirs = Job(deployment, "submitted", root, submit, own)
        figures = take_turns({"ours": ours.contender(), "theirs": theirs.contender()}, runs, WARMUPS)
    right = expected([batch_directory(root, number) for number in range(WARMUPS + runs)])
    note = verdict({"ours": ours.totals(), "theirs": theirs.totals()}, right) or f"{events:,} events, heap"
    what, against = "snapshot job through Spark Connect", "by spark-submit"
    return [Ratio("P24", what, against, "≤ 1/3", "cpu s", figures["ours"], figures["theirs"], note=note)]


class Job:
    """A pipeline whose snapshot job a new process runs in each turn. ``launcher``: the words before the script."""

    def __init__(
        self, deployment: Deployment, name: str, root: Path, launcher: list[str], variables: dict[str, str]
    ) -> None:
        self._deployment, self._launcher = deployment, launcher
        self._pipeline = new_pipeline(root, "heap", name=name)
        self._environment = variables | environment(deployment)
        self._checkpoint = CheckpointId(0)

    def contender(self) -> Contender:
        return Contender(self._run, self._begin, self._register)

    def totals(self) -> Totals:
        record = self._deployment.catalog().list(self._pipeline.name)[0]
        opened = open_checkpoint(record.directory, storage_root=self._deployment.storage_root)
        return of_statelib(opened.to_arrow("activity", self._deployment.work_directory))

    def _begin(self, number: int) -> None:
        self._checkpoint = begin(self._deployment, self._pipeline, interval(number), "bench").checkpoint_id

    def _run(self, _: int) -> None:
        words = [job("snapshot.py"), "--pipeline", self._pipeline.path, "--checkpoint-id", str(self._checkpoint)]
        words = [*self._launcher, *words]
        done = subprocess.run(words, env=self._environment, check=False, capture_output=True, text=True)
        assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]

    def _register(self, _: int) -> None:
        register(self._deployment, self._pipeline, self._checkpoint)
