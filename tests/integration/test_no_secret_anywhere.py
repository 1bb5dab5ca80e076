"""Whole stories with secrets in every place where a deployment has one, and then a search in all that they left."""

import json
import logging
import os
import pickle
import subprocess
import sys
import traceback
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

import obstore
import pytest
from obstore.store import S3Store
from sqlalchemy import MetaData, create_engine, update
from typer.testing import CliRunner

from demo.places import Places, Ports
from demo.places import environment as airflow_environment
from demo.processes import unused_ports
from statelib.catalog.tables.schema import CHECKPOINT
from statelib.cli.main import app
from statelib.errors import StatelibError
from statelib.flows import wiring
from statelib.flows.checkpoint.snapshot_plan import plan_snapshot
from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.model.record import ClaimMode
from statelib.spark.snapshot.subtask.worker import Work
from statelib.telemetry.logs import LogSettings
from tests.integration.secret_search import texts_with_secrets
from tests.integration.shop import SALES, TOURS, environment, sales
from tests.support.fault_proxy import Fault
from tests.support.postgresql_server import Listen, NoServer, postgresql_server
from tests.support.s3_endpoint import S3Endpoint
from tests.support.worlds import checkpoint_of, day, new_deployment, publish_here

PASSWORD = "pg/canary:7b!@w%2Frd&+?#x"
KEY = "s3/canary+KEY/5Jd0q=="
TOKEN = "canary-of-a-session-9f31"
SECRETS = (PASSWORD, KEY, TOKEN)
STORIES = ("succeeds", "fails", "planted", "page")
"""The names of the databases: there is one for each test."""


@dataclass
class Story:
    """A deployment with secrets, and all output so far by its origin."""

    deployment: Deployment
    store: S3Store
    said: dict[str, str | bytes] = field(default_factory=dict)

    def say(self, what: str, text: str | bytes) -> None:
        self.said[f"{len(self.said)} {what}"] = text

    def call(self, *words: str, deployment: Deployment | None = None, **settings: str) -> int:
        """Run a command of the command line, and record its answer, its log lines and the whole chain of its
        exception."""
        env = {**environment(deployment or self.deployment), "STATELIB_LOG_LEVEL": "DEBUG", **settings}
        result = CliRunner().invoke(app, list(words), env=env)
        self.say(" ".join(words), result.output)
        if result.exc_info is not None:
            self.say(" ".join(("traceback of", *words)), "".join(traceback.format_exception(*result.exc_info)))
        return result.exit_code

    def fails(self, deployment: Deployment, kind: str) -> None:
        """Run a flow that uses the catalog and the storage, and assert that it fails with this kind of error."""
        with pytest.raises(StatelibError) as caught:
            checkpoint_of(deployment, "tours", 9, sales(0))
        assert caught.value.kind == kind
        self.say(f"{kind}, as text", f"{caught.value} {caught.value!r} {caught.value.__reduce__()}")
        self.say(f"{kind}, traceback", "".join(traceback.format_exception(caught.value)))
        self.say(f"{kind}, pickled", pickle.dumps(caught.value))

    def left(self, root: Path) -> dict[str, bytes | str]:
        """Return every file below the root, every object and every value of the catalog."""
        files: dict[str, bytes | str] = {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for page in obstore.list(self.store):
            files |= {item["path"]: bytes(obstore.get(self.store, item["path"]).bytes()) for item in page}
        tables = MetaData()
        engine = create_engine(self.deployment.catalog_url)
        with engine.connect() as connection:
            tables.reflect(connection)
            for table in tables.sorted_tables:
                rows = [tuple(row) for row in connection.execute(table.select())]
                files[f"table {table.name}"] = repr(rows)
        engine.dispose()
        return files


@pytest.fixture(scope="module")
def database() -> Iterator[Listen]:
    (port,) = unused_ports(1)
    listen = Listen(port, PASSWORD, (*STORIES, "empty"))
    try:
        with postgresql_server(listen):
            yield listen
    except NoServer as reason:
        pytest.skip(str(reason))


@pytest.fixture
def story(
    tmp_path: Path,
    s3: S3Endpoint,
    bucket: str,
    database: Listen,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[Story]:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    pipelines = tmp_path / "pipelines"
    pipelines.mkdir()
    (pipelines / "sales.yaml").write_text(SALES)
    (pipelines / "tours.yaml").write_text(TOURS + "checkpoint: {inline_threshold_bytes: 1}\n")
    deployment = replace(
        new_deployment(tmp_path, tmp_path, pipelines),
        catalog_url=database.url(next(name for name in STORIES if name in request.node.name)),
        storage_root=f"s3://{bucket}/state",
    )
    monkeypatch.setenv("STATELIB_CATALOG", deployment.catalog_url)
    store = S3Store(bucket, endpoint=s3.direct_url, client_options={"allow_http": True})
    yield Story(wiring.deployment(environment(deployment)), store)
    s3.break_next()


def through_the_flows(story: Story) -> None:
    """Run checkpoints, a savepoint and a restore through the flows, and record what workers would receive of each."""
    deployment = story.deployment
    for name in ("sales", "tours"):
        pipeline = deployment.pipeline(name)
        for number in (1, 2):
            checkpoint_of(deployment, name, number, sales(6 * number))
        report = check(deployment, pipeline, 2)
        story.say("report of the gate", repr(report))
        saved = begin_savepoint(deployment, pipeline, format="canonical", target=None, note="n", owner="test", key="k")
        plan = plan_snapshot(deployment, pipeline, saved.checkpoint_id)
        assert plan is not None
        story.say("work", pickle.dumps(Work(deployment.for_workers(), pipeline, plan)))
        story.say(
            "shown",
            repr(
                (deployment, deployment.catalog(), deployment.storage(pipeline), deployment.remover(), pipeline, plan)
            ),
        )
        publish_here(deployment, pipeline, saved.checkpoint_id)
        story.say("record", repr(register(deployment, pipeline, saved.checkpoint_id)))
        restored = plan_restore(deployment, pipeline, "1", None, ClaimMode.NO_CLAIM)
        story.say("plan", repr(restored))
        apply_restore(deployment, pipeline, restored, "test")
        begin(deployment, pipeline, day(2), "test")


def through_the_command_line(story: Story) -> None:
    calls = {
        "pipelines list": 0, "pipelines status sales": 0, "checkpoints list": 0, "checkpoints show sales/1": 0,
        "inspect sales/1": 0, "verify sales/1": 0, "history": 0, "restore sales 2 --dry-run": 0, "gc": 0, "orphans": 0,
        "checkpoints diff sales/1 sales/2": 0, "run sales --start 2013-01-03 --end 2013-01-04 --dry-run": 0,
        "catalog rebuild --merge --dry-run": 0, "verify sales/99": 2, "why s3://elsewhere/x": 2,
    }  # fmt: skip
    for form in ("text", "json"):
        for words, status in calls.items():
            more = ["--json"] if form == "json" else []
            assert story.call(*words.split(), *more, STATELIB_LOG_FORMAT=form) == status, list(story.said.values())[-2]


def test_a_story_that_succeeds_leaves_no_secret(
    story: Story, database: Listen, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    through_the_flows(story)
    through_the_command_line(story)
    rebuilt = replace(story.deployment, catalog_url=database.url("empty"))
    assert story.call("catalog", "rebuild", "--yes", deployment=rebuilt) == 0, list(story.said.values())[-2]
    story.say("log", caplog.text)
    left = story.left(tmp_path)
    assert {"table checkpoint", f"{tmp_path}/pipelines/sales.yaml"} < set(left)
    assert any(name.endswith("chk-1/_metadata") for name in left)
    assert texts_with_secrets(SECRETS, {**story.said, **left}) == []
    assert texts_with_secrets(["hop-1"], {**story.said, **left}), "the same search finds what is there"


def test_a_story_that_fails_shows_no_secret(
    story: Story, database: Listen, s3: S3Endpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    checkpoint_of(story.deployment, "tours", 1, sales(0))
    whole, written = story.deployment, quote(PASSWORD, safe="")
    url, host = whole.catalog_url, f"127.0.0.1:{database.port}"
    (closed,) = unused_ports(1)
    catalogs = {
        url.replace(written, f"{written}-wrong"): "catalog-unavailable",
        url.replace(host, f"127.0.0.1:{closed}"): "catalog-unavailable",
        url.replace(f":{written}", "").replace(host, f"127.0.0.1:{closed}") + f"?password={written}": (
            "catalog-unavailable"
        ),
        url.replace("postgresql+psycopg", "mysql"): "bad-catalog-url",
        url.replace("psycopg", "nodriver"): "bad-catalog-url",
        url.replace("://", ":/"): "bad-catalog-url",
        url.replace(host, "127.0.0.1:port"): "bad-catalog-url",
        url.replace(written, PASSWORD): "bad-catalog-url",
        url.replace(written, f"x@y:{written}"): "bad-catalog-url",
        url.replace(written, f"x@y?{written}=1"): "bad-catalog-url",
    }
    wrong = [(replace(whole, catalog_url=broken), kind) for broken, kind in catalogs.items()]
    wrong.append((replace(whole, storage_root=f"s3://me:{KEY}@{whole.storage_root[5:]}"), "bad-path"))
    for deployment, kind in wrong:
        story.fails(deployment, kind)
        for form in ("text", "json"):
            assert story.call("checkpoints", "list", deployment=deployment, STATELIB_LOG_FORMAT=form) in {0, 2}
            assert story.call("gc", "--json", deployment=deployment, STATELIB_LOG_FORMAT=form) == 2
    s3.break_next(Fault("status", "GET", "state", 99, status=403), Fault("status", "PUT", "state", 99, status=403))
    story.fails(whole, "storage-refused")
    assert story.call("verify") != 0
    s3.break_next()
    story.say("log", caplog.text)
    assert texts_with_secrets(SECRETS, {**story.said, **story.left(tmp_path)}) == []


def test_neither_the_page_nor_a_dag_shows_a_secret(
    story: Story, database: Listen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint_of(story.deployment, "sales", 1, sales(0))
    checkpoint_of(story.deployment, "sales", 2, sales(6))
    url, written = story.deployment.catalog_url, quote(PASSWORD, safe="")
    broken = [
        url.replace(written, f"{written}-wrong"),
        url.replace(written, PASSWORD),
        f"{url.replace(f':{written}', '')}?password={written}-wrong",
    ]
    places = Places(work=tmp_path / "airflow", pipelines=tmp_path / "pipelines")
    places.make_directories()
    extra = {"catalog": url, "storage": story.deployment.storage_root}
    variables = {
        **airflow_environment(places, Ports()),
        **environment(story.deployment),
        "AIRFLOW_CONN_STATE": json.dumps({"conn_type": "statelib", "password": PASSWORD, "extra": extra}),
        "STATELIB_CONN_ID": "state",
        "AWS_SECRET_ACCESS_KEY": KEY,
        "AWS_SESSION_TOKEN": TOKEN,
        **{name: os.environ[name] for name in ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID")},
    }
    program = [sys.executable, "-m", "tests.integration.page_answers"]
    catalogs = " ".join([url, *broken])
    done = subprocess.run(program, env=variables, input=catalogs, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["0 /api/pipelines/{name}/checkpoints/{checkpoint_id}"].startswith("200 ")
    assert answer["1 /api/pipelines/{name}/checkpoints/{checkpoint_id}"].startswith("503 ")
    assert {answer[f"{number} /api/pipelines"][:4] for number in (1, 2, 3)} == {"503 "}
    assert "dag sales.checkpoint" in answer
    files = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert texts_with_secrets(SECRETS, {**answer, **files, "lines": done.stdout + done.stderr}) == []


def test_the_search_finds_a_secret_that_was_planted(story: Story, tmp_path: Path) -> None:
    hosts = "https://me:{}@host"
    story.said |= {
        "text": f"a {PASSWORD} b",
        "url": hosts.format(quote(PASSWORD, safe="")),
        "json": json.dumps({"a": PASSWORD}),
        "python": repr({"a": KEY}),
        "pickle": pickle.dumps(story.deployment),
        "settings": pickle.dumps(LogSettings(secrets=(TOKEN,))),
        **{f"base64 {n}": b64encode(b"x" * n + KEY.encode() + b"y") for n in range(3)},
    }
    (tmp_path / "scratch" / "planted").write_text(f"x{KEY}y")
    checkpoint_of(story.deployment, "sales", 1, sales(0))
    obstore.put(story.store, "state/planted", TOKEN.encode())
    engine = create_engine(story.deployment.catalog_url)
    with engine.begin() as connection:
        connection.execute(update(CHECKPOINT).values(note=PASSWORD))
    engine.dispose()
    planted = {"state/planted", f"{tmp_path}/scratch/planted", "table checkpoint"}
    assert {*story.said, *planted} <= set(texts_with_secrets(SECRETS, {**story.said, **story.left(tmp_path)}))
