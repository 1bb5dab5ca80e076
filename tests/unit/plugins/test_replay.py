"""The run that a replay runs again next, by the runs of Airflow and by the intervals of the state."""

from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from statelib_airflow import airflow_internals
from statelib_airflow.dags import restore_tasks
from statelib_airflow.dags.restore_tasks import ReplayOperator

from statelib.flows.restore.plan import RestorePlan
from statelib.model.checkpoint import DataInterval
from statelib.model.moments import epoch_ms

RESTORED_TO = datetime(2026, 1, 3, tzinfo=UTC)


@dataclass(frozen=True)
class Run:
    logical_date: datetime
    data_interval_start: datetime
    data_interval_end: datetime
    dag_id: str = "sales.checkpoint"
    start_date: datetime = datetime(2026, 1, 9, tzinfo=UTC)
    state: str = "success"
    conf: None = None

    @property
    def run_id(self) -> str:
        return self.logical_date.isoformat()


def scheduled(day: int) -> Run:
    start = datetime(2026, 1, day, tzinfo=UTC)
    return Run(start, start, start.replace(day=day + 1))


def by_hand(day: int, hour: int) -> Run:
    """Return a run that was triggered at this hour: it has the interval that was over then."""
    end = datetime(2026, 1, day, tzinfo=UTC)
    return Run(end.replace(hour=hour), end.replace(day=day - 1), end)


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that replays runs to the end and returns the days of their intervals, in order."""

    def replay(*runs: Run) -> list[int]:
        newest_first = sorted(runs, key=lambda run: run.logical_date, reverse=True)
        applied: list[DataInterval] = []
        days: list[int] = []

        def run_again(run: Run) -> None:
            days.append(run.data_interval_start.day)
            applied.append(DataInterval(epoch_ms(run.data_interval_start), epoch_ms(run.data_interval_end)))

        catalog = SimpleNamespace(applied=lambda _name, interval: interval if interval in applied else None)
        deployment = SimpleNamespace(catalog=lambda: catalog)
        monkeypatch.setattr(restore_tasks, "hook_of_run", lambda: SimpleNamespace(deployment=lambda: deployment))
        monkeypatch.setattr(airflow_internals, "runs_newest_first", lambda _dag: iter(newest_first))
        monkeypatch.setattr(airflow_internals, "run_again", run_again)
        operator = ReplayOperator(task_id="replay", pipeline="sales", checkpoint_dag="sales.checkpoint")
        plan = RestorePlan(
            *("sales", 2, "/state/sales/chk-2", "NO_CLAIM", 1, 1, None, epoch_ms(RESTORED_TO), None),
            *((), (), (), (), ()),
        )
        instance = SimpleNamespace(
            get_first_reschedule_date=lambda _context: datetime(2026, 1, 10, tzinfo=UTC),
            xcom_pull=lambda **_wanted: plan.to_json(),
        )
        context: Any = {"params": {"replay": True}, "ti": instance}
        while not operator.poke(context):
            pass
        return days

    return replay


def test_the_intervals_after_the_restored_one_are_run_again_oldest_first(replayed: Any) -> None:
    assert replayed(*map(scheduled, (1, 2, 3, 4, 5))) == [3, 4, 5]


def test_a_run_that_was_triggered_by_hand_hides_no_interval(replayed: Any) -> None:
    assert replayed(*map(scheduled, (1, 2, 3, 4)), by_hand(3, hour=12)) == [3, 4]


def test_runs_that_were_triggered_by_hand_are_ordered_by_their_intervals(replayed: Any) -> None:
    assert replayed(*map(scheduled, (1, 2, 4)), by_hand(4, hour=12), by_hand(5, hour=1)) == [3, 4]
