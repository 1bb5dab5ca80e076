"""The data interval of a run in Airflow, with a real deployment and without a scheduler."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from statelib.flows.wiring import Deployment
from tests.integration.shop import SALES, environment
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
    from statelib_airflow.runtime.steps import interval_of_run

    run = {"consumed_asset_events": [], "data_interval_start": None, "data_interval_end": None} | run
    params = run.pop("params", {})
    context: Any = {"dag_run": SimpleNamespace(dag_id="sales.checkpoint", run_id="r1", **run), "params": params}
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
