"""Log lines of whole processes: a Spark job with its executors as JSON, the command line with a secret to keep."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demo.places import Places, Ports, environment, statelib_settings
from statelib.flows import wiring
from statelib.flows.checkpoint.steps import begin
from statelib.model.ids import CheckpointId, PipelineName
from tests.support.worlds import CHECKOUT, checkpoint_of, day

CANARY = "hunter2-canary"
SALES = """\
name: sales
source: {path: "{data}/{start:%Y-%m-%d}", columns: {user: string, price: long}}
key: [user]
states: {total: {kind: reducing, value: {agg: sum, of: price}}}
backend: rocksdb
parallelism: 2
checkpoint: {strategy: full, inline_threshold_bytes: 0}
"""


@pytest.fixture
def places(tmp_path: Path) -> Places:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "sales.yaml").write_text(SALES)
    places = Places(work=tmp_path / "work", pipelines=tmp_path / "pipelines")
    places.make_directories()
    return places


def run(places: Places, command: Sequence[str], **settings: str) -> subprocess.CompletedProcess[str]:
    env = environment(places, Ports()) | settings
    return subprocess.run(
        [sys.executable, "-m", *command], env=env, cwd=CHECKOUT, capture_output=True, text=True, check=False
    )


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith('{"timestamp"')]


def test_log_lines_of_driver_and_executors_name_their_checkpoint(places: Places) -> None:
    deployment = wiring.deployment(statelib_settings(places))
    (places.data / "2013-01-01").mkdir()
    pq.write_table(pa.table({"user": ["a", "b", "c"], "price": [1, 2, 3]}), places.data / "2013-01-01" / "x.parquet")
    begun = begin(deployment, deployment.pipeline("sales"), day(1), "test").checkpoint_id
    job = ["statelib_jobs.snapshot", "--pipeline", str(places.pipelines / "sales.yaml"), "--checkpoint-id", str(begun)]
    done = run(
        places,
        job,
        PYSPARK_SUBMIT_ARGS="--master local[2] --conf spark.ui.enabled=false pyspark-shell",
        STATELIB_LOG_FORMAT="json",
        SOURCE_PASSWORD=CANARY,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line for line in objects(done.stderr) if line["logger"].startswith("statelib.")]
    assert {(line["pipeline"], line["checkpoint_id"]) for line in lines} == {("sales", begun)}
    record = deployment.catalog().get(PipelineName("sales"), CheckpointId(begun))
    attempts = {line["attempt"] for line in lines if line["logger"] == "statelib.spark.snapshot.driver"}
    assert attempts == {record.attempt}
    workers = {
        line["subtask"]: line["attempt"] for line in lines if line["logger"] == "statelib.spark.snapshot.subtask.worker"
    }
    assert set(workers) == {0, 1}
    assert {attempt[:24] for attempt in workers.values()} == {attempts.pop()[:24]}
    assert CANARY not in done.stdout + done.stderr


def test_the_command_line_does_not_show_the_catalogs_password(places: Places) -> None:
    url = f"postgresql+psycopg://me:{CANARY}@127.0.0.1:1/statelib?connect_timeout=1"
    for form in ("text", "json"):
        for command in (["history"], ["gc"]) if form == "text" else (["checkpoints", "list", "--json"],):
            done = run(places, ["statelib", *command], STATELIB_CATALOG=url, STATELIB_LOG_FORMAT=form)
            assert done.returncode == 2, done.stderr
            assert "127.0.0.1" in done.stdout + done.stderr
            assert CANARY not in done.stdout + done.stderr


def test_a_wrong_setting_gives_one_line(places: Places) -> None:
    done = run(places, ["statelib", "history"], STATELIB_LOG_FORMAT="xml")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "STATELIB_LOG_FORMAT=xml: expected text, json" in done.stderr


def test_the_history_is_shown_as_text_and_as_json(places: Places) -> None:
    assert "there is no catalog" in run(places, ["statelib", "history"]).stderr
    deployment = wiring.deployment(statelib_settings(places))
    for number in (1, 2):
        checkpoint_of(deployment, "sales", number, pa.table({"user": ["a", "b"], "price": [1, 2]}))
    shown = run(places, ["statelib", "history", "-p", "sales"]).stdout
    assert "sales/1" in shown
    assert shown.index("sales/1") < shown.index("sales/2"), "the newest is last"
    assert "head" in shown
    rows = json.loads(run(places, ["statelib", "history", "--limit", "1", "--json"]).stdout)
    assert [(row["checkpoint_id"], row["keys_changed"], row["is_head"]) for row in rows] == [(2, 2, 1)]
    assert run(places, ["statelib", "history", "-p", "nobody"]).returncode == 2
