"""Hook, operators, sensor and notifier in this process, with a real catalog and real checkpoints; no scheduler."""

import asyncio
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from statelib.errors import NotFoundError
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from tests.integration.shop import environment, open_shop
from tests.support.dag_runs import dag_run

PASSWORD = "p@ss/1"
DAY = timedelta(days=1)
DAY_2 = datetime(2013, 1, 3, tzinfo=UTC)
"""The end of the last interval of the shop's sales; tours end a day before."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Return a deployment. Airflow is imported only below a home of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_HOME", str(tmp_path_factory.mktemp("home")))
        yield open_shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture
def deployment(shop: Deployment, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    for name, value in environment(shop).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("STATELIB_CONN_ID", raising=False)
    return shop


def connect(monkeypatch: pytest.MonkeyPatch, **extra: str) -> None:
    sent = {"conn_type": "generic", "login": "me", "password": PASSWORD, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_STATE", json.dumps(sent))


def test_the_settings_of_the_hook_are_the_environment_and_then_the_connection(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk._shared.secrets_masker import redact
    from statelib_airflow.hooks import StatelibHook

    assert StatelibHook().settings() == {}
    assert StatelibHook().deployment() == deployment
    connect(monkeypatch, catalog="postgresql+psycopg://other@db:5432/x", storage="s3://bucket/state")
    url = "postgresql+psycopg://me:p%40ss%2F1@db:5432/x"
    expected = replace(deployment, catalog_url=url, storage_root="s3://bucket/state")
    assert StatelibHook("state").deployment() == expected
    assert redact(f"{url} and {PASSWORD}") == "*** and ***"
    monkeypatch.setenv("STATELIB_CONN_ID", "state")
    assert StatelibHook().deployment() == expected
    assert asyncio.run(StatelibHook().asettings()) == StatelibHook().settings()


def test_the_hook_names_missing_settings_and_pipelines(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.exceptions import AirflowFailException
    from statelib_airflow.hooks import StatelibHook

    monkeypatch.delenv("STATELIB_STORAGE")
    with pytest.raises(AirflowFailException, match=r"missing-setting.*STATELIB_STORAGE"):
        StatelibHook().deployment()
    monkeypatch.setenv("STATELIB_STORAGE", deployment.storage_root)
    with pytest.raises(AirflowFailException, match="no-pipeline"):
        StatelibHook().pipeline("rentals")
    assert StatelibHook().pipeline("sales").name == "sales"


def test_a_spark_driver_receives_the_connections_settings_and_no_template_shows_them(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    from statelib_airflow.operators import CheckpointOperator

    connect(monkeypatch, catalog="postgresql+psycopg://db:5432/x")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    operator = CheckpointOperator(
        task_id="checkpoint", pipeline="sales", statelib_conn_id="state", conf={"spark.a": "b"}, env_vars={"A": "b"}
    )
    hook: Any = operator._get_hook()
    assert PASSWORD.replace("@", "%40").replace("/", "%2F") in hook._env_vars["STATELIB_CATALOG"]
    assert hook._env_vars["A"] == "b"
    shown = {name: getattr(operator, name) for name in operator.template_fields}
    assert "p%40ss" not in repr(shown)
    assert (shown["conf"], shown["pipeline"], shown["env_vars"]) == ({"spark.a": "b"}, "sales", {"A": "b"})
    assert [outlet.uri for outlet in operator.outlets] == ["statelib://sales/state"]


def submitting(
    script: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, try_number: int, max_tries: int
) -> tuple[Any, Any]:
    """Return a CheckpointOperator whose ``spark-submit`` is a shell script, and the context of its try."""
    from statelib_airflow.operators import CheckpointOperator

    submit = tmp_path / "spark-submit"
    submit.write_text(f"#!/bin/sh\n{script}\n")
    submit.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    bounds = {"data_interval_start": DAY_2 - DAY, "data_interval_end": DAY_2}
    run = dag_run(**bounds)
    operator = CheckpointOperator(task_id="checkpoint", pipeline="tours", name="tours")
    instance = SimpleNamespace(dag_id="own", run_id="r1", task_id="checkpoint", try_number=try_number)
    instance.max_tries, instance.get_previous_dagrun = max_tries, lambda _state: None
    return operator, {"dag_run": run, "ti": instance, "task": operator}


def test_only_the_last_try_aborts_a_checkpoint(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``spark-submit`` fails in every try. A retry supersedes the try before it: a run counts as one failure."""
    from airflow.sdk.exceptions import AirflowException

    script = "echo 'statelib: no-source: there are no events'\nexit 1"
    last, states = deployment.catalog().list("tours")[0].checkpoint_id, []
    for number in (1, 2):
        operator, context = submitting(script, monkeypatch, tmp_path, try_number=number, max_tries=1)
        with pytest.raises(AirflowException, match="there are no events"):
            operator.execute(context)
        newest = deployment.catalog().list("tours")[0]
        states.append((newest.checkpoint_id - last, str(newest.state), newest.reason))
    assert states == [(1, "PENDING", ""), (2, "ABORTED", "run r1: snapshot failed")]


def test_a_timeout_aborts_the_checkpoint(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The script sends the signal by which Airflow ends a task after its timeout."""
    from airflow.sdk.exceptions import AirflowTaskTimeout
    from airflow.sdk.execution_time.timeout import timeout

    operator, context = submitting("kill -ALRM $PPID\nexec sleep 600", monkeypatch, tmp_path, try_number=1, max_tries=0)
    with pytest.raises(AirflowTaskTimeout), timeout(600):
        operator.execute(context)
    operator.on_kill()
    newest = deployment.catalog().list("tours")[0]
    assert (str(newest.state), newest.reason) == ("ABORTED", "run r1: snapshot failed")


def test_each_task_has_a_savepoint_of_its_own_and_its_tries_have_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from statelib_airflow.hooks import StatelibHook
    from statelib_airflow.runtime.steps import begin_savepoint

    for name, value in environment(open_shop(tmp_path)).items():
        monkeypatch.setenv(name, value)
    request = {"format": "canonical", "target": None, "note": "", "stop": "no"}

    def begun(dag_id: str, task_id: str, triggered: int = 1, **more: int) -> int:
        facts = {"try_number": 1, "map_index": -1, **more}
        instance = SimpleNamespace(dag_id=dag_id, run_id="r1", task_id=task_id, **facts)
        run = dag_run(dag_id=dag_id, run_after=datetime(2013, 2, triggered, tzinfo=UTC))
        context: Any = {"dag_run": run, "ti": instance}
        return int(begin_savepoint(StatelibHook(), "sales", request, context).checkpoint_id)

    tasks = [begun("own", "before"), begun("own", "after"), begun("other", "before"), begun("own", "all", map_index=0)]
    assert len({*tasks, begun("own", "all", map_index=1)}) == 5
    assert begun("own", "before", try_number=2) == tasks[0]
    assert begun("own", "before", triggered=2) not in tasks, "the run was deleted, and triggered with the same id"


def test_an_event_names_the_last_interval_that_a_savepoint_has(deployment: Deployment) -> None:
    """A run that has nothing to apply announces the head, which may be a savepoint that was restored."""
    from statelib_airflow.hooks import StatelibHook
    from statelib_airflow.runtime.steps import announce_again, state_asset

    asset, event = state_asset("sales"), SimpleNamespace(extra={})
    context: Any = {"task": SimpleNamespace(outlets=[asset]), "outlet_events": {asset: event}}
    assert announce_again(StatelibHook(), "sales", CheckpointId(4), context)["id"] == 4
    expected = (4, (DAY_2 - DAY).isoformat(), DAY_2.isoformat())
    assert (event.extra["id"], event.extra["start"], event.extra["end"]) == expected


def test_a_failed_restore_releases_its_checkpoint(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``spark-submit`` finds that the checkpoint is held, and fails. Everything else is as in Airflow."""
    from airflow.sdk.exceptions import AirflowException
    from statelib_airflow.operators import RestoreOperator

    own = open_shop(tmp_path / "own")
    for name, value in environment(own).items():
        monkeypatch.setenv(name, value)
    look = "print('held:', sqlite3.connect(sys.argv[1]).execute('SELECT checkpoint_id FROM pin').fetchall())"
    submit = tmp_path / "spark-submit"
    catalog = tmp_path / "own" / "catalog.db"
    submit.write_text(f'#!/bin/sh\n{sys.executable} -c "import sqlite3, sys; {look}" {catalog}\nexit 1\n')
    submit.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    operator = RestoreOperator(task_id="back", pipeline="sales", checkpoint="2", name="sales")
    instance = SimpleNamespace(dag_id="own", run_id="r1", task_id="back", try_number=1, max_tries=0)
    context: Any = {"dag_run": dag_run(), "ti": instance, "task": operator}
    with pytest.raises(AirflowException, match=re.escape("held: [(2,)]")):
        operator.execute(context)
    sales = PipelineName("sales")
    before = own.catalog().head(sales)
    assert (before.head, own.catalog().cleanup.situation(sales).in_use) == (5, {5}), "the base of what is pending"
    unrehearsed = RestoreOperator(task_id="back", pipeline="sales", checkpoint="2", rehearse=False, parallelism="3")
    expected = {"head": 2, "generation": before.generation + 1, "parallelism": 3}
    assert unrehearsed.execute(context) == expected
    assert own.catalog().cleanup.situation(sales).in_use == frozenset()


def test_the_sensor_waits_for_events_up_to_a_time_or_for_a_new_checkpoint(deployment: Deployment) -> None:
    from statelib_airflow.sensors import CheckpointSensor

    head = deployment.catalog().get("sales", deployment.catalog().head("sales").head)
    completed = datetime.fromtimestamp(head.completed_at_ms / 1000, UTC)
    cases = [
        ("sales", DAY_2.isoformat(), None, True),
        ("sales", "2013-01-03", None, True),
        ("sales", "2013-01-03T00:00:01", None, False),
        ("tours", DAY_2.isoformat(), None, False),
        ("rentals", None, None, False),
        ("sales", None, completed.isoformat(), False),
        ("sales", None, completed.replace(year=completed.year - 1).isoformat(), True),
    ]
    for pipeline, until, newer_than, arrived in cases:
        sensor = CheckpointSensor(task_id="wait", pipeline=pipeline, until=until, newer_than=newer_than)
        is_ready = sensor.poke({})
        assert bool(is_ready) is arrived, (pipeline, until, newer_than)
        facts = {"id": head.checkpoint_id, "bytes": head.size_bytes, "keys": head.keys, "entries": head.entries}
        assert is_ready.xcom_value == (facts if arrived and pipeline == "sales" else None)


def test_the_sensor_defers_to_a_trigger_that_names_the_connection_only(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import TaskDeferred
    from statelib_airflow.sensors import CheckpointSensor, CheckpointTrigger

    connect(monkeypatch, storage=deployment.storage_root)
    sensor = CheckpointSensor(
        task_id="wait", pipeline="sales", until="2014-01-01", deferrable=True, statelib_conn_id="state", poke_interval=0
    )
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute({})
    path, arguments = deferred.value.trigger.serialize()
    assert path == "statelib_airflow.sensors.CheckpointTrigger"
    assert json.loads(json.dumps(arguments)) == arguments
    assert PASSWORD not in json.dumps(arguments)
    arguments["until_ms"] = int(DAY_2.timestamp()) * 1000

    async def events() -> list[Any]:
        return [event async for event in CheckpointTrigger(**arguments).run()]

    (event,) = asyncio.run(events())
    assert sensor.execute_complete({}, event.payload)["id"] == deployment.catalog().head("sales").head


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the messages that reached an Airflow notifier which was written without statelib."""
    from airflow.sdk import BaseNotifier

    texts: list[str] = []

    class Pager(BaseNotifier):
        template_fields = ("text",)

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

        def notify(self, context: Any) -> None:
            texts.append(self.text)

    monkeypatch.setitem(sys.modules, "pagers", SimpleNamespace(Pager=Pager))
    return texts


def context_of(exception: BaseException | None, checkpoint_id: int | None = 41) -> dict[str, Any]:
    """Return the part of a callback's context from Airflow's task runner that a message needs."""
    instance = SimpleNamespace(
        dag_id="sales.checkpoint", run_id="scheduled__1", task_id="register", try_number=3, log_url="http://log"
    )
    instance.xcom_pull = lambda task_ids, key: checkpoint_id if (task_ids, key) == ("begin", "checkpoint_id") else None
    return {"ti": instance, "exception": exception}


def test_any_notifier_receives_pipeline_checkpoint_reason_and_hint(deployment: Deployment, sent: list[str]) -> None:
    from airflow.sdk.exceptions import AirflowFailException
    from statelib_airflow.failures import failing_fast
    from statelib_airflow.notifications import StatelibNotifier

    with pytest.raises(AirflowFailException) as failed, failing_fast():
        raise NotFoundError("there is no file", kind="missing-file", hint="look elsewhere")
    template = "{{ statelib.title }} | {{ statelib.hint }}\n{{ statelib }}"
    StatelibNotifier("sales", "pagers.Pager", {"text": template})(context_of(failed.value))
    (text,) = sent
    assert text.splitlines() == [
        "statelib: sales, checkpoint 41: register failed | look elsewhere",
        "statelib: sales, checkpoint 41: register failed",
        "run: sales.checkpoint scheduled__1, try 3",
        "reason: missing-file: there is no file",
        "hint: look elsewhere",
        "log: http://log",
    ]


def test_the_reason_in_a_mail_is_text_without_markup(deployment: Deployment, sent: list[str]) -> None:
    from statelib_airflow.notifications import StatelibNotifier

    error = RuntimeError("shop <img src=x onerror=alert(1)> \x1b[2J\u202e& 'more'")
    StatelibNotifier("sales", "pagers.Pager", {"text": "<pre>{{ statelib.html }}</pre>"})(context_of(error))
    (text,) = sent
    assert "&lt;img src=x onerror=alert(1)&gt; \\x1b[2J\\u202e&amp; &#x27;more&#x27;" in text
    assert text.count("<") == 2


@pytest.mark.parametrize(
    ("exception", "reason"),
    [
        (
            RuntimeError("Cannot execute: spark-submit.\nWARNING: x\nstatelib: bad-key: null (drop it)\n"),
            "bad-key: null (drop it)",
        ),
        (RuntimeError("no answer"), "no answer"),
        (None, "Airflow ended the task"),
    ],
)
def test_the_reason_is_the_last_line_of_the_job_if_it_printed_one(exception: BaseException | None, reason: str) -> None:
    from statelib_airflow.notifications import alert_of

    alert = alert_of("sales", context_of(exception, None))
    assert (alert.reason, alert.checkpoint_id) == (reason, None)
    assert alert.title == "statelib: sales: register failed"


def test_an_alert_goes_out_if_airflow_does_not_answer(deployment: Deployment, sent: list[str]) -> None:
    from statelib_airflow.notifications import StatelibNotifier

    context = context_of(RuntimeError("no answer"))
    context["ti"].xcom_pull = Mock(side_effect=ConnectionError("the API server does not answer"))
    StatelibNotifier("sales", "pagers.Pager", {"text": "{{ statelib.title }}"})(context)
    assert sent == ["statelib: sales: register failed"]


def test_a_missed_deadline_is_reported(deployment: Deployment, sent: list[str]) -> None:
    """Airflow passes only the run and the deadline to a deadline's callback, as JSON."""
    from statelib_airflow.notifications import StatelibNotifier

    run = {"dag_id": "sales.checkpoint", "dag_run_id": "scheduled__1", "state": "running"}
    late = {"dag_run": run, "deadline": {"id": "1", "deadline_time": "2026-01-01T06:00:00Z"}}
    StatelibNotifier(pipeline="sales", notifier="pagers.Pager", arguments={"text": "{{ statelib }}"})(late)
    (text,) = sent
    assert text.startswith("statelib: sales: the run is late"), "its checkpoint is unknown, and may have begun"
    assert "sales.checkpoint scheduled__1" in text
    assert "due by 2026-01-01T06:00:00Z and is running" in text


def test_the_triggerer_of_airflow_3_1_reports_a_missed_deadline(deployment: Deployment, sent: list[str]) -> None:
    from statelib_airflow.notifications import StatelibNotifier

    run = {"dag_id": "sales.checkpoint", "dag_run_id": "scheduled__1", "state": "running"}
    late = {"dag_run": run, "deadline": {"id": "1", "deadline_time": "2026-01-01T06:00:00Z"}}

    async def called() -> None:
        await StatelibNotifier("sales", "pagers.Pager", {"text": "{{ statelib }}"}, context=late)

    asyncio.run(called())
    assert ["the run is late" in text for text in sent] == [True]


def test_operators_clean_up_and_verify(deployment: Deployment, tmp_path: Path) -> None:
    from airflow.sdk.exceptions import AirflowFailException
    from statelib_airflow.operators import CleanupOperator, VerifyOperator

    own = open_shop(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(own).items():
            patch.setenv(name, value)
        done = CleanupOperator(task_id="cleanup", pipeline="sales").execute({})
        assert set(done) == {"retention", "gc", "orphans"}
        assert set(done["orphans"]) == {"sales"}
        assert done["orphans"]["sales"]["deleted"] is False
        pushed: dict[str, Any] = {}
        context: Any = {"ti": SimpleNamespace(xcom_push=pushed.__setitem__), "dag_run": dag_run("1")}
        verify = VerifyOperator(task_id="verify", pipeline="sales", read_data_subset="100%")
        assert verify.execute(context)["problems"] == []
        assert pushed["report"]["checkpoints"] == 4
        damaged = max((tmp_path / "state" / "sales").glob("chk-5/*-*"))
        damaged.write_bytes(b"?" + damaged.read_bytes()[1:])
        with pytest.raises(AirflowFailException, match=damaged.name):
            verify.execute(context)
        assert len(pushed["report"]["problems"]) == 1
