"""The only file that uses modules of Airflow outside its public interface; it was written for Airflow 3.1, 3.2 and 3.3.

Airflow may change these modules in any minor release. Each function below hides one of them behind plain values, and
imports it when it is called: the API server has modules that a worker lacks, and the other way round.
``tests/architecture/test_contracts.py`` lists what counts as public. Public names that moved between minor releases are
imported from Airflow's own provider ``common.compat`` instead. A comment names the release that needs another way.
"""

from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, Protocol

from airflow.providers.common.compat.sdk import AirflowFailException

if TYPE_CHECKING:
    from fastapi import Request

AIRFLOW_VERSIONS = ("3.1", "3.2", "3.3")
"""The minor releases of Airflow whose internals this file fits; ``pyproject.toml`` admits no others."""
ENDED = ("success", "failed")
"""States of a DAG run that has ended."""


class PastRun(Protocol):
    """A DAG run as Airflow describes it to a task."""

    dag_id: str
    run_id: str
    logical_date: datetime | None
    data_interval_start: datetime | None
    data_interval_end: datetime | None
    start_date: datetime | None
    state: Any
    conf: dict[str, Any] | None


class AirflowUser(Protocol):
    """A user who is signed in to Airflow."""

    def get_name(self) -> str:
        """Return the name that the user signed in with."""


def is_paused(dag_id: str) -> bool | None:
    """Return whether the DAG is paused, as far as a task can find out: False in Airflow 3.1. None if Airflow has no
    such DAG. Works inside a task."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    if not hasattr(RuntimeTaskInstance, "get_dag"):  # Airflow 3.1
        return False
    try:
        return bool(RuntimeTaskInstance.get_dag(dag_id).is_paused)
    except Exception as error:
        if _status_code(error) == 404:
            return None
        raise


def _status_code(error: Exception) -> int | None:
    """Return the status of the answer of Airflow's API server that an error reports, None if it reports none.
    ``airflow dags test`` raises the client's error, and a task the supervisor's report of it."""
    response = getattr(error, "response", None)
    if response is not None:
        return int(response.status_code)
    detail = getattr(getattr(error, "error", None), "detail", None) or {}
    return detail.get("status_code")


def runs_newest_first(dag_id: str) -> Iterator[PastRun]:
    """Yield the runs of the DAG that have a logical date, newest first. Works inside a task."""
    from airflow.sdk.execution_time.comms import GetPreviousDagRun, PreviousDagRunResult
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    before = datetime.max.replace(tzinfo=UTC)
    while True:
        answer = SUPERVISOR_COMMS.send(GetPreviousDagRun(dag_id=dag_id, logical_date=before))
        run = answer.dag_run if isinstance(answer, PreviousDagRunResult) else None
        if run is None or run.logical_date is None:
            return
        yield run
        before = run.logical_date


def run_again(run: PastRun) -> None:
    """Clear all tasks of the run, so that Airflow runs them again. Works inside a task.

    A task cannot clear a run directly: it triggers a run that exists already, with ``reset_dag_run``.
    Raise AirflowFailException if Airflow refuses.
    """
    from airflow.sdk.execution_time.comms import ErrorResponse, TriggerDagRun
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    trigger = TriggerDagRun(
        dag_id=run.dag_id, run_id=run.run_id, logical_date=run.logical_date, conf=run.conf, reset_dag_run=True
    )
    answer = SUPERVISOR_COMMS.send(trigger)
    if isinstance(answer, ErrorResponse):
        raise AirflowFailException(f"{run.dag_id} {run.run_id} could not be run again: {answer.error}")


def asset_was_updated(uri: str, since: str) -> bool:
    """Return whether the asset has an event at or after ``since`` (ISO 8601). Works inside a task.

    The asset need not be an inlet of the task. An asset that no DAG has named yet has no events.
    """
    from airflow.sdk.execution_time import context

    if not hasattr(context, "InletEventsAccessor"):  # Airflow 3.1
        return _newest_event(uri) >= datetime.fromisoformat(since)
    return bool(context.InletEventsAccessor(asset_uri=uri).after(since).limit(1))


def _newest_event(uri: str) -> datetime:
    """Return when the asset was last updated. Airflow 3.1 answers with all events of the asset or none."""
    from airflow.sdk.execution_time.comms import AssetEventsResult, GetAssetEventByAsset
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    answer = SUPERVISOR_COMMS.send(GetAssetEventByAsset(name=None, uri=uri))
    events = answer.asset_events if isinstance(answer, AssetEventsResult) else []
    return max((event.timestamp for event in events), default=datetime.min.replace(tzinfo=UTC))


def interval_timetable(cron: str, time_zone: str | None) -> Any:
    """Return the timetable whose runs have the data intervals between the moments of the cron expression in a time
    zone; None stands for UTC."""
    from airflow import sdk

    if not hasattr(sdk, "CronDataIntervalTimetable"):  # Airflow 3.1
        from airflow.timetables.interval import CronDataIntervalTimetable

        return CronDataIntervalTimetable(cron, timezone=time_zone or "UTC")
    return sdk.CronDataIntervalTimetable(cron, timezone=time_zone or "UTC")


def deadline_alert(longest: timedelta, notifier: type, arguments: dict[str, Any]) -> Any:
    """Return an alert that calls the notifier if a DAG run has not finished ``longest`` after it was queued."""
    from airflow.sdk.definitions import deadline

    # Airflow 3.1 supports no callbacks outside the triggerer, and has the classes in the same module.
    is_new = find_spec("airflow.sdk.definitions.callback") is not None
    module = import_module("airflow.sdk.definitions.callback" if is_new else deadline.__name__)
    callback = (module.SyncCallback if is_new else module.AsyncCallback)(notifier, kwargs=arguments)
    return deadline.DeadlineAlert(deadline.DeadlineReference.DAGRUN_QUEUED_AT, longest, callback)


async def signed_in_user(request: "Request") -> AirflowUser:
    """Return the user of the bearer token or, without one, of Airflow's session cookie. Works in the API server.

    Raise ``fastapi.HTTPException`` if neither is valid.
    """
    from airflow.api_fastapi.core_api.security import bearer_scheme, get_user

    return await get_user(request, None, await bearer_scheme(request))


def may_read_dags(user: AirflowUser) -> bool:
    """Return whether the user may read any DAG at all. Works in the API server."""
    from airflow.api_fastapi.app import get_auth_manager

    return bool(get_auth_manager().is_authorized_dag(method="GET", user=user))


def permitted_dags(user: AirflowUser, dag_ids: Collection[str], right: Literal["read", "trigger"]) -> set[str]:
    """Return those of the DAGs that the user may read or trigger. Works in the API server.

    A DAG that Airflow does not have is judged by its id alone.
    """
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
    from airflow.models.dag import DagModel

    teams_of = getattr(DagModel, "get_dag_id_to_team_name_mapping", None)
    teams = teams_of(list(dag_ids)) if teams_of else {}  # Airflow 3.1 has no teams
    manager = get_auth_manager()
    return {
        dag_id
        for dag_id in dag_ids
        if manager.is_authorized_dag(
            method="GET" if right == "read" else "POST",
            access_entity=None if right == "read" else DagAccessEntity.RUN,
            details=DagDetails(id=dag_id, team_name=teams.get(dag_id)),
            user=user,
        )
    }
