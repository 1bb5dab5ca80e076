"""A run whose interval an asset or a form names waits for the end of the interval: real checkpoints, no scheduler."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from statelib.model.record import CheckpointState
from tests.integration.shop import environment, open_shop

PENDING = 6
"""The checkpoint that the shop has under way."""


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """Return a function that pokes the task ``begin`` of a run of the shop, and returns its result and the newest
    checkpoint of the pipeline."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "home"))
    from statelib_airflow.dags import checkpoint_tasks
    from statelib_airflow.hooks import StatelibHook

    own = open_shop(tmp_path / "own")
    for name, value in environment(own).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(checkpoint_tasks, "hook_of_run", StatelibHook)
    task = checkpoint_tasks.BeginOperator(task_id="begin", pipeline_file="sales")

    def poke(**run: Any) -> tuple[bool, int]:
        dag_id = "sales.checkpoint"
        ends = {"data_interval_start": None, "data_interval_end": None, "consumed_asset_events": []}
        instance = SimpleNamespace(
            dag_id=dag_id, run_id="r1", task_id="begin", try_number=1, max_tries=0, stats_tags={},
            get_previous_dagrun=lambda _state: None, xcom_push=lambda *_: None,
        )  # fmt: skip
        params = run.pop("params", {})
        dag_run = SimpleNamespace(dag_id=dag_id, run_id="r1", **{**ends, **run})
        began = task.poke({"dag_run": dag_run, "ti": instance, "params": params})
        newest = max(own.catalog().list("sales", tuple(CheckpointState)), key=lambda record: record.checkpoint_id)
        return began, int(newest.checkpoint_id)

    return poke


def test_an_interval_of_the_form_that_ends_in_the_future(begin: Callable[..., Any]) -> None:
    end = datetime.now(UTC) + timedelta(hours=1)
    assert begin(params={"start": "2013-01-03", "end": end.isoformat()}) == (False, PENDING)
    assert begin(params={"start": "2013-01-03", "end": "2013-01-04"}) == (True, PENDING + 1)


def test_a_partition_that_is_updated_while_it_fills(begin: Callable[..., Any]) -> None:
    def update(end: datetime) -> Any:
        extra = {"start": "2013-01-03", "end": end.isoformat()}
        return SimpleNamespace(timestamp=datetime.now(UTC), extra=extra, partition_key=None)

    later = datetime.now(UTC) + timedelta(hours=1)
    assert begin(consumed_asset_events=[update(later)]) == (False, PENDING)
    assert begin(consumed_asset_events=[update(datetime(2013, 1, 4, tzinfo=UTC))]) == (True, PENDING + 1)


def test_an_interval_of_the_timetable_is_over_by_the_clock_of_airflow(begin: Callable[..., Any]) -> None:
    """The scheduler's clock is ahead of the worker's."""
    ahead = datetime.now(UTC) + timedelta(hours=1)
    start = datetime(2013, 1, 3, tzinfo=UTC)
    assert begin(data_interval_start=start, data_interval_end=ahead) == (True, PENDING + 1)
