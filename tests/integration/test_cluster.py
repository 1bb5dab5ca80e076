"""PostgreSQL, S3 and a standalone Spark with two workers, which are killed while they write a checkpoint."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from demo.compare import aircraft_expected, aircraft_found, difference
from demo.places import Places, Ports, environment
from demo.processes import unused_ports
from demo.spark_cluster import HOSTS
from demo.topology import ENDPOINT, Topology, topology
from statelib.flows import wiring
from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId
from statelib.savepoints.opened import open_checkpoint
from statelib.savepoints.verification.snapshots import verify_at
from tests.integration.garbage import needed, stored
from tests.support.fault_proxy import Fault
from tests.support.postgresql_server import NoServer
from tests.support.worlds import CHECKOUT, day

NAME = "aircraft_activity"
SPECULATION = ("--conf", "spark.speculation=true", "--conf", "spark.speculation.quantile=0.5")

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture
def running(tmp_path: Path, data: Path) -> Iterator[Topology]:
    if not ENDPOINT.exists():
        pytest.skip("no .work/endpoint: make setup")
    places = Places(work=tmp_path / "work", pipelines=tmp_path / "pipelines")
    places.make_directories()
    (places.data / "flights").symlink_to(data / "flights")
    places.pipelines.mkdir()
    file = f"{NAME}.yaml"
    text = (CHECKOUT / "dags" / "pipelines" / file).read_text()
    (places.pipelines / file).write_text(text.replace("\nchecks:", "\nchecks:\n  in_job_from_bytes: 0"))
    try:
        with topology(places) as started:
            yield started
    except NoServer as reason:
        pytest.skip(str(reason))


def test_every_checkpoint_is_complete_although_workers_die_while_they_write(
    running: Topology, flights: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is one story, because it takes long to start everything. Each worker is killed once, in two checkpoints.
    In another checkpoint a slow subtask runs twice at the same time. Then everything is cleaned up."""
    page = with_page(running, tmp_path)
    env = environment(page.places, Ports())
    for name in page.places.settings:
        monkeypatch.setenv(name, env[name])
    deployment = wiring.deployment(env)
    for number, host in ((1, HOSTS[1]), (2, HOSTS[0])):
        checkpoint_without(page, deployment, env, number, host)
        assert_state(deployment, flights, number)
        running.spark.start_worker(host)
        running.spark.wait_for_workers(len(HOSTS))
    checkpoint_with_speculation(page, deployment, env, 3)
    assert_state(deployment, flights, 3)
    assert running.leaks() == []
    garbage = {uri for uri in stored(deployment) - needed(deployment) if not uri.endswith("/.location")}
    # The copy that lost in checkpoint 3 may have cleaned up: it receives SIGHUP, or is killed, whichever comes first.
    for number in (1, 2):
        assert any(f"/chk-{number}/" in uri for uri in garbage), f"of the writer killed in checkpoint {number}"
    swept = orphans(deployment, dry_run=False)
    assert all(each.deleted for each in swept if each.files)
    left = {uri for uri in stored(deployment) - needed(deployment) if "/." not in uri}
    assert left == set()
    assert_state(deployment, flights, 3)


def with_page(running: Topology, tmp_path: Path) -> Topology:
    """Return the cluster with drivers that show Spark's own page, on the port of SPARK_UI_PORT."""
    conf, (port,) = tmp_path / "conf", unused_ports(1)
    conf.mkdir()
    own = CHECKOUT / "demo" / "spark"
    for file in own.iterdir():
        (conf / file.name).write_text(file.read_text())
    shown = f"\nspark.ui.enabled true\nspark.ui.port {port}\n"
    defaults = (own / "spark-defaults.conf").read_text().replace("spark.ui.enabled", "#")
    (conf / "spark-defaults.conf").write_text(defaults + shown)
    settings = {**running.places.settings, "SPARK_CONF_DIR": str(conf), "SPARK_UI_PORT": str(port)}
    return replace(running, places=replace(running.places, settings=settings))


def checkpoint_without(running: Topology, deployment: Deployment, env: dict[str, str], number: int, host: str) -> None:
    """Take a day's checkpoint, during which a worker dies while both subtasks are uploading."""
    assert begin(deployment, deployment.pipeline(NAME), day(number), "test").checkpoint_id == number
    with submitted(running, env, number) as job:
        with running.uploading(deployment, NAME, number) as uploads:
            assert running.leaks() == []
            assert secrets_shown(running, env) == []
            assert running.spark.kill_worker(host) >= 4, "worker, executor, Python's daemon and worker"
            assert job.poll() is None
        proved(running, deployment, job, number, uploads)


def checkpoint_with_speculation(running: Topology, deployment: Deployment, env: dict[str, str], number: int) -> None:
    """Take a day's checkpoint whose first upload does not end: Spark starts that subtask once more, on the other
    host, and its copy is the one that counts."""
    begin(deployment, deployment.pipeline(NAME), day(number), "test")
    running.s3.break_next(Fault("hold", "PUT", f"/{NAME}/chk-{number}/", 1))
    with submitted(running, env, number, *SPECULATION) as job:
        try:
            job.wait(240)
            uploads = tuple(path.partition("?")[0].rpartition("/")[2] for path in running.s3.held())
            assert len(uploads) == 1
        finally:
            running.s3.break_next()
        proved(running, deployment, job, number, uploads)


def proved(
    running: Topology, deployment: Deployment, job: subprocess.Popen[str], number: int, lost: tuple[str, ...]
) -> None:
    """Assert that the job succeeded, its checkpoint is complete and registered, and not all of ``lost`` is part of
    it."""
    output, _ = job.communicate(timeout=240)
    assert job.returncode == 0, output
    assert not any(secret in output for secret in running.secrets)
    pipeline = deployment.pipeline(NAME)
    report = check(deployment, pipeline, CheckpointId(number))
    assert report.passed
    directory = register(deployment, pipeline, CheckpointId(number), report.report_uri).directory
    manifest = open_checkpoint(directory, own=True).manifest
    assert manifest is not None
    assert manifest.read_by_job, "the other subtask's task has read each file back from S3"
    written = {file.path.rpartition("/")[2] for file in manifest.files}
    assert set(lost) - written, "what was lost on the way is not part of the checkpoint"
    assert verify_at(directory, own=True, storage_root=deployment.storage_root).problems == ()


def submitted(running: Topology, env: dict[str, str], number: int, *conf: str) -> subprocess.Popen[str]:
    """Start the snapshot job as Airflow's operator does."""
    script = str(CHECKOUT / "jobs" / "statelib_jobs" / "snapshot.py")
    file = str(running.places.pipelines / f"{NAME}.yaml")
    binary = str(Path(sys.executable).parent / "spark-submit")
    arguments = ["--pipeline", file, "--checkpoint-id", str(number)]
    return subprocess.Popen(
        [binary, "--master", running.spark.url, "--deploy-mode", "client", *conf, script, *arguments],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def secrets_shown(running: Topology, env: dict[str, str]) -> list[str]:
    """Return the addresses of Spark's pages (of driver, master and workers) that show a secret."""
    driver = f"http://127.0.0.1:{env['SPARK_UI_PORT']}/api/v1/applications"
    (application,) = fetched_json(driver)
    pages = [f"{driver}/{application['id']}/environment", f"{running.spark.page}/", f"{running.spark.page}/json/"]
    alive = [worker for worker in running.spark.state()["workers"] if worker["state"] == "ALIVE"]
    pages += [f"{worker['webuiaddress']}/json/" for worker in alive]
    assert "spark.executor.memory" in fetched(pages[0])
    return [page for page in pages if any(secret in fetched(page) for secret in running.secrets)]


def fetched(address: str) -> str:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return answer.read().decode()


def fetched_json(address: str) -> list[dict[str, str]]:
    return json.loads(fetched(address))


def assert_state(deployment: Deployment, flights: pl.DataFrame, days: int) -> None:
    directory = deployment.catalog().get(NAME, CheckpointId(days)).directory
    outcome = aircraft_found(open_checkpoint(directory, storage_root=deployment.storage_root))
    seen = flights.filter(pl.col("time_hour") < datetime(2013, 1, 1 + days, tzinfo=UTC))
    result = difference("aircraft", aircraft_expected(seen), outcome, ["tailnum"])
    assert (result.different, result.entries > 0) == (0, True), result.examples
