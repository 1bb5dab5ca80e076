"""A team's own DAG with statelib's operators: one checkpoint per day, and a savepoint on Sundays.

It applies the same pipeline as ``carrier_streaks.checkpoint``: run only one of the two."""

from datetime import UTC, datetime

from airflow.sdk import CronDataIntervalTimetable, dag, task
from statelib_airflow.operators import CheckpointOperator, SavepointOperator


@dag(
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    end_date=datetime(2014, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=True,
    tags=["statelib", "example"],
    doc_md=__doc__,
)
def example_own_dag() -> None:
    @task.short_circuit
    def on_sundays(day: str) -> bool:
        return datetime.fromisoformat(day).isoweekday() == 7

    checkpoint = CheckpointOperator(task_id="checkpoint", pipeline="carrier_streaks")
    savepoint = SavepointOperator(task_id="savepoint", pipeline="carrier_streaks", note="week until {{ ds }}")
    checkpoint >> on_sundays("{{ logical_date }}") >> savepoint


example_own_dag()
