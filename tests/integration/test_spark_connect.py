"""Runs through a Spark Connect server that stays up: the client has no JVM, and one run leaves nothing for the next."""

import json
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

import polars as pl
import pytest
from pyspark.sql import SparkSession

from statelib.errors import InvalidRequestError, RetryableError
from statelib.flows.mending.preview_file import take_preview
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.spark.session.remote_session import remote_session
from statelib.storage.registry import new_attempt
from tests.integration.shop import environment
from tests.support.connect_server import ConnectServer, connect_server
from tests.support.extent import large
from tests.support.tls_front import self_signed, tls_front
from tests.support.worlds import new_deployment

pytestmark = pytest.mark.timeout(1200)
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN = "what-only-clients-know=="
DEFINITION = """\
name: {name}
schedule: {{cron: "@daily", start: 2026-01-01}}
source:
  path: "{{data}}/{{start:%Y-%m-%d}}.{format}"
  format: {format}
  {more}
  columns: {{shop: string, amount: {amount}}}
key: [shop]
states:
  total: {{kind: value, {value}}}
backend: {backend}
checkpoint: {{mendable: {mendable}}}
parallelism: 2
"""
FUNCTION = 'fields: {sold: long}, function: "shop_rules:update"'
SUM = "value: {agg: sum, of: amount}"
RULES = """\
import os
import time

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

def update(events, state):
    result = events.group_by("shop").aggregate([("amount", "sum")])
    new = result["amount_sum"].take(pc.index_in(state["shop"], value_set=result["shop"].combine_chunks()))
    {line}
    return pa.table({{"shop": state["shop"], "sold": pc.add(pc.fill_null(state["sold"], 0), new)}})
"""
SETTINGS_LEFT = """
from statelib.spark.session.local_session import new_session

spark = new_session("look")
print(spark.conf.get("spark.sql.shuffle.partitions"), [t.name for t in spark.catalog.listTables()])
spark.range(1).createOrReplaceTempView("left_behind")
spark.conf.set("spark.sql.shuffle.partitions", "3")
spark.stop()
"""
STATE = """
import statelib.spark
from statelib.spark.session.local_session import new_session

spark = new_session("read")
statelib.spark.register(spark)
rows = spark.read.format("statelib").load("sold/head").filter("key = 'a'").collect()
print({row.key: row.value.sold for row in rows})
spark.stop()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with connect_server(tmp_path_factory.mktemp("code"), "local[2,3]", TOKEN) as running:
        yield running


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    pipelines, data = tmp_path / "pipelines", tmp_path / "data"
    pipelines.mkdir()
    data.mkdir()
    own = {"format": "parquet", "more": "", "amount": "long", "value": FUNCTION, "backend": "heap", "mendable": "null"}
    (pipelines / "sold.yaml").write_text(DEFINITION.format(name="sold", **own))
    moved = {
        "format": "csv",
        "more": 'options: {header: "true"}\n  where: "shop <> \'x\'"',
        "amount": '{type: long, expr: "cast(amount as bigint) * 2"}',
        "value": SUM,
        "backend": "rocksdb",
        "mendable": "30d",
    }
    (pipelines / "moved.yaml").write_text(DEFINITION.format(name="moved", **moved))
    for number in range(4):
        frame = pl.DataFrame({"shop": ["a", "b", "b"], "amount": [number + 1] * 3})
        frame.write_parquet(data / f"{FIRST + timedelta(days=number):%Y-%m-%d}.parquet")
        frame.extend(pl.DataFrame({"shop": ["x"], "amount": [7]}))
        frame.write_csv(data / f"{FIRST + timedelta(days=number):%Y-%m-%d}.csv")
    return new_deployment(tmp_path, data, pipelines)


def write_rules(server: ConnectServer, line: str = "pass") -> None:
    (server.code / "shop_rules.py").write_text(RULES.format(line=line))


def done(server: ConnectServer, deployment: Deployment, *words: object, **variables: str) -> str:
    """Return the output of a command, which must succeed and not show the token."""
    result = server.call("-m", "statelib", *words, variables=environment(deployment) | variables)
    assert result.returncode == 0, result.stderr
    assert TOKEN not in unquote(result.stdout + result.stderr)
    return result.stdout


def refused(server: ConnectServer, deployment: Deployment, *words: object, **variables: str) -> str:
    """Return the errors of a command, which must fail with neither a traceback nor the token."""
    result = server.call("-m", "statelib", *words, variables=environment(deployment) | variables)
    assert result.returncode != 0, result.stdout
    assert "Traceback" not in result.stderr
    assert TOKEN not in unquote(result.stdout + result.stderr)
    return result.stderr


def states(deployment: Deployment, snapshot: str, name: str = "total") -> dict[str, object]:
    return {row["key"]: row["value"] for row in resolve(deployment, snapshot).to_arrow(name).to_pylist()}


def test_runs_savepoint_rehearsal_and_dataframe_need_no_jvm_of_their_own(
    server: ConnectServer, deployment: Deployment
) -> None:
    write_rules(server)
    variables = environment(deployment)
    written = json.loads(done(server, deployment, "run", "sold", "--end", "2026-01-03", "--json"))
    assert [c["events"]["applied"] for c in written["checkpoints"]] == [3, 3]
    assert states(deployment, "sold/2") == {"a": {"sold": 3}, "b": {"sold": 6}}

    saved = json.loads(done(server, deployment, "savepoint", "create", "sold", "--json"))
    assert states(deployment, f"sold/{saved['checkpoint_id']}") == states(deployment, "sold/2")
    job = ("-m", "statelib_jobs.rehearse_restore", "--pipeline", f"{deployment.pipelines_directory}/sold.yaml")
    rehearsed = server.call(*job, "--checkpoint", 1, "--parallelism", 3, variables=variables)
    assert "1 restores on 3 subtasks with 2 entries" in rehearsed.stdout, rehearsed.stderr

    done(server, deployment, "restore", "sold", "1", "--yes")
    done(server, deployment, "run", "sold")
    assert states(deployment, "sold/head") == {"a": {"sold": 3}, "b": {"sold": 6}}
    read = server.call("-c", STATE, variables=variables)
    assert read.stdout.strip() == "{'a': 3}", read.stderr


def test_events_that_spark_moves_are_counted_and_wrong_expressions_are_refused(
    server: ConnectServer, deployment: Deployment
) -> None:
    written = json.loads(done(server, deployment, "run", "moved", "--end", "2026-01-03", "--json"))
    assert [c["events"]["read"] for c in written["checkpoints"]] == [3, 3]
    assert states(deployment, "moved/head") == {"a": 6, "b": 12}
    file = Path(deployment.pipelines_directory) / "moved.yaml"
    text = file.read_text()
    for expression, reason in (
        ("rand()", "its value can be another one when a task is repeated"),
        ("sum(amount)", "expected a value for each row, found an aggregate"),
        ("nothing", "nothing"),
    ):
        file.write_text(text.replace("cast(amount as bigint) * 2", expression))
        assert reason in refused(server, deployment, "run", "moved")
    file.write_text(text)
    assert "cannot be changed" in refused(server, deployment, "run", "moved", "--conf", "spark.executor.memory=1g")
    (Path(deployment.data) / "2026-01-03.csv").unlink()
    assert "PATH_NOT_FOUND" in refused(server, deployment, "run", "moved")


@large("make test previews a correction for its approval with spark-submit, test_tour")
def test_a_correction_is_previewed_for_its_approval_and_made(server: ConnectServer, deployment: Deployment) -> None:
    done(server, deployment, "run", "moved", "--end", "2026-01-03")
    (Path(deployment.data) / "2026-01-01.csv").write_text("shop,amount\na,5\nb,1\nb,1\n")
    correction = ("mend", "moved", "--interval", "2026-01-01", "--json")
    compared = json.loads(done(server, deployment, *correction, "--dry-run"))
    assert [(state["name"], state["changed"]) for state in compared["states"]] == [("total", 1)]

    attempt, file = new_attempt(), f"{deployment.pipelines_directory}/moved.yaml"
    job = ("-m", "statelib_jobs.preview_mend", "--pipeline", file, "--plan", json.dumps(compared["plan"]))
    previewed = server.call(*job, "--attempt", attempt, variables=environment(deployment))
    assert "moved: 1 entry would differ" in previewed.stdout, previewed.stderr
    assert "` 14 `" in take_preview(deployment, deployment.pipeline(PipelineName("moved")), attempt)

    done(server, deployment, *correction, "--yes")
    assert states(deployment, "moved/head") == {"a": 14, "b": 12}


def test_a_client_without_the_token_is_refused(server: ConnectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")  # PySpark sets it, and it must not stay in this process
    address = server.url.partition(";")[0]
    for url, reason in (
        (address, "No authentication token"),
        (f"{address};token=other", "Invalid authentication token"),
    ):
        with pytest.raises(InvalidRequestError, match=f"refuses this client: {reason}") as refusal:
            remote_session(url)
        assert refusal.value.kind == "remote-refused"
        assert SparkSession.getActiveSession() is None


def test_an_encrypted_connection_needs_a_certificate_that_the_client_trusts(
    server: ConnectServer, deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    monkeypatch.setattr("statelib.spark.session.remote_session.ANSWERS_WITHIN_S", 1)
    write_rules(server)
    key, certificate = self_signed(tmp_path)
    address, _, token = server.url.partition("/;")
    with tls_front(int(address.rpartition(":")[2]), key, certificate) as port:
        url = f"sc://localhost:{port}/;use_ssl=true;{token}"
        with pytest.raises(RetryableError, match="no Spark Connect server answers"):
            remote_session(url)
        trusting = {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(certificate), "SPARK_REMOTE": url}
        done(server, deployment, "run", "sold", **trusting)
        wrong = trusting | {"SPARK_REMOTE": f"sc://localhost:{port}/;use_ssl=true;token=other"}
        assert "Invalid authentication token" in refused(server, deployment, "run", "sold", **wrong)
    assert states(deployment, "sold/head") == {"a": {"sold": 1}, "b": {"sold": 2}}


def test_a_failed_task_is_repeated_and_a_failing_function_ends_the_run_with_its_error(
    server: ConnectServer, deployment: Deployment
) -> None:
    write_rules(server, "if TaskContext.get().attemptNumber() == 0: raise OSError('only once')")
    done(server, deployment, "run", "sold")
    assert states(deployment, "sold/head") == {"a": {"sold": 1}, "b": {"sold": 2}}
    write_rules(server, "raise ValueError('these events are wrong')")
    assert "ValueError: these events are wrong" in refused(server, deployment, "run", "sold")
    write_rules(server, "return pa.table({'shop': ['nobody'], 'sold': [1]})")
    failed = server.call("-m", "statelib", "run", "sold", "--json", variables=environment(deployment))
    assert "bad-function-result" in failed.stdout + failed.stderr, failed
    records = json.loads(done(server, deployment, "checkpoints", "list", "--all", "--json"))
    assert sorted(record["state"] for record in records) == ["ABORTED", "ABORTED", "COMPLETED"]


def test_a_run_leaves_neither_modules_nor_settings_nor_views_for_the_next(
    server: ConnectServer, deployment: Deployment
) -> None:
    write_rules(server)
    done(server, deployment, "run", "sold")
    write_rules(server, "new = pc.multiply(new, 100)")
    done(server, deployment, "run", "sold")
    assert states(deployment, "sold/head") == {"a": {"sold": 201}, "b": {"sold": 402}}
    looks = {server.call("-c", SETTINGS_LEFT, variables={}).stdout for _ in range(2)}
    assert looks == {"200 []\n"}


def test_a_stopped_client_cancels_its_tasks_and_aborts_its_checkpoint(
    server: ConnectServer, deployment: Deployment, tmp_path: Path
) -> None:
    arrived = tmp_path / "arrived"
    write_rules(server, f"open({str(arrived)!r}, 'w').close(); time.sleep(3600)")
    client = server.start("-m", "statelib", "run", "sold", variables=environment(deployment))
    while not arrived.exists():
        assert client.poll() is None, client.communicate()
        time.sleep(0.05)
    client.send_signal(signal.SIGTERM)
    client.communicate()
    assert client.returncode != 0
    (record,) = json.loads(done(server, deployment, "checkpoints", "list", "--all", "--json"))
    assert record["state"] == "ABORTED"
    write_rules(server)
    done(server, deployment, "run", "sold")  # it would wait for ever if the tasks still held both cores
