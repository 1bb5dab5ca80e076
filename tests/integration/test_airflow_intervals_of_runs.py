"""The intervals, waits and replays of runs in Airflow, with a real deployment and without a scheduler."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from statelib.definition.parts.model import Schedule
from statelib.definition.pipeline import Pipeline
from statelib.errors import RetryableError
from statelib.flows.checkpoint.steps import begin
from statelib.flows.wiring import Deployment
from tests.integration.shop import SALES, environment
from tests.support.dag_runs import dag_run
from tests.support.worlds import day, new_deployment

SCHEDULE = "schedule: {asset: 's3://raw/orders', start: 2013-01-02, end: 2013-01-04}\n"


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    """Return a deployment, which the environment names. Airflow is imported only below a home of its own."""
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "sales.yaml").write_text(SALES + SCHEDULE)
    deployment = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_HOME", str(tmp_path / "home"))
        for name, value in environment(deployment).items():
            patch.setenv(name, value)
        patch.delenv("STATELIB_CONN_ID", raising=False)
        yield deployment


def interval_of(deployment: Deployment, **run: Any) -> Any:
    from statelib_airflow.hooks import StatelibHook
    from statelib_airflow.runtime.intervals import interval_of_run

    params = run.pop("params", {})
    context: Any = {"dag_run": dag_run(**{"dag_id": "sales.checkpoint", **run}), "params": params}
    return interval_of_run(StatelibHook(), deployment.pipeline("sales"), context)


def naming(*days: str) -> list[Any]:
    """Return updates of an asset, each with a day as its partition."""
    at = datetime(2013, 2, 1, tzinfo=UTC)
    return [SimpleNamespace(timestamp=at, extra={}, partition_key=text) for text in days]


def test_a_run_of_updates_outside_of_the_schedule_is_skipped(deployment: Deployment) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    with pytest.raises(AirflowSkipException, match=r"between schedule\.start and schedule\.end"):
        interval_of(deployment, consumed_asset_events=naming("2013-01-01", "2013-01-05"))
    assert interval_of(deployment, consumed_asset_events=naming("2013-01-01", "2013-01-02")) == day(2)


def test_the_form_of_a_run_names_its_interval(deployment: Deployment) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    assert interval_of(deployment, params={"start": "2013-01-02", "end": "2013-01-03T00:00Z"}) == day(2)
    for params in ({"start": "2013-01-02", "end": None}, {"start": "2013-01-03", "end": "2013-01-02"}):
        with pytest.raises(AirflowFailException, match=r"bad-interval: .*expected both, and start before end"):
            interval_of(deployment, params=params)
    at = datetime(2013, 1, 2, tzinfo=UTC)
    bounds = {"data_interval_start": at, "data_interval_end": at + timedelta(days=1)}
    other = {"start": "2013-01-07", "end": "2013-01-08"}
    assert interval_of(deployment, dag_id="own", params=other, **bounds) == day(2), "params of a DAG of one's own"


def test_the_error_of_a_run_without_an_interval_names_the_way_to_one(deployment: Deployment) -> None:
    """Triggers and trigger timetables give a run an interval that ends where it begins."""
    from airflow.sdk.exceptions import AirflowFailException

    at = datetime(2013, 1, 2, tzinfo=UTC)
    empty = {"data_interval_start": at, "data_interval_end": at}
    with pytest.raises(AirflowFailException, match=r"no data interval.*: enter start and end of the interval"):
        interval_of(deployment, params={"start": None, "end": None}, **empty)
    with pytest.raises(AirflowFailException, match=r"no data interval.*schedule=CronDataIntervalTimetable"):
        interval_of(deployment, dag_id="own", **empty)


class Supervisor:
    """The process that answers the requests of a task. It has no events and no DAGs."""

    def __init__(self) -> None:
        self.uris: list[str] = []

    def send(self, msg: Any) -> Any:
        from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
        from airflow.sdk.execution_time.comms import AssetEventsResult, ErrorResponse

        if hasattr(msg, "uri"):
            self.uris.append(msg.uri)
            return AssetEventsResult(asset_events=[])
        detail = {"status_code": 404, "message": "Not Found"}
        raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail=detail))


@pytest.fixture
def supervisor(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    from airflow.sdk.execution_time import task_runner

    double = Supervisor()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", double, raising=False)
    return double


def test_an_asset_is_looked_up_by_the_uri_that_airflow_stores(supervisor: Supervisor) -> None:
    from statelib_airflow.runtime.steps import was_updated

    assert not was_updated("s3://lake/ready/", day(1).end_ms)
    assert supervisor.uris == ["s3://lake/ready"]


def test_a_pipeline_in_a_group_checks_its_asset_when_it_begins(deployment: Deployment) -> None:
    pipeline = ready_for("s3://lake/ready", deployment)
    asked: list[tuple[str, int]] = []

    def was_updated(uri: str, since_ms: int) -> bool:
        asked.append((uri, since_ms))
        return len(asked) > 1

    with pytest.raises(RetryableError, match=r"asset s3://lake/ready was not updated since 2013-01-02T00:00:00\+00:00"):
        begin(deployment, pipeline, day(1), "test", was_updated=was_updated)
    begin(deployment, pipeline, day(1), "test", was_updated=was_updated)
    assert asked == [("s3://lake/ready", day(1).end_ms)] * 2


def ready_for(asset: str, deployment: Deployment) -> Pipeline:
    """Return the pipeline sales, whose source is complete when an asset was updated."""
    file = Path(deployment.pipelines_directory) / "sales.yaml"
    file.write_text(file.read_text().replace("columns:", f"on_missing: empty, ready: {{asset: '{asset}'}}, columns:"))
    return deployment.pipeline("sales")


def test_a_replay_is_refused_that_would_run_nothing(deployment: Deployment, supervisor: Supervisor) -> None:
    from airflow.sdk.exceptions import AirflowFailException
    from statelib_airflow.dags.restore_tasks import _check_replay

    pipeline = deployment.pipeline("sales")
    with pytest.raises(AirflowFailException, match=r"sales\.checkpoint has no schedule by time"):
        _check_replay(pipeline)
    schedule = Schedule(cron="@daily", start=datetime(2013, 1, 1, tzinfo=UTC))
    with pytest.raises(AirflowFailException, match=r"Airflow has no DAG sales\.checkpoint"):
        _check_replay(pipeline.model_copy(update={"schedule": schedule}))
