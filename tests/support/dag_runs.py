"""Runs of DAGs for tests that call a task in this process, without a scheduler."""

from datetime import UTC, datetime
from typing import Any


def dag_run(run_id: str = "r1", dag_id: str = "own", **facts: Any) -> Any:
    """Return a run as Airflow passes it to a task, with ``facts``. All other fields that a run can be without are None.

    It is of Airflow's own class, so a task of a test finds all fields of a run and no others. Airflow is imported here,
    because it may be imported only after a test has set its home."""
    from airflow.sdk.api.datamodels._generated import DagRun

    required = {"run_after": datetime(2013, 2, 1, tzinfo=UTC), "consumed_asset_events": []}
    absent = dict.fromkeys(DagRun.model_fields)
    return DagRun.model_construct(**{**absent, **required, **facts, "dag_id": dag_id, "run_id": run_id})
