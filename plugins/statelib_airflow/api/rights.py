"""The rights of users: a user must be signed in to Airflow, and may see a pipeline if he may read its checkpoint or its
savepoint DAG.

Airflow does not protect the routes of plugins. These functions are dependencies of the routers, so that every route
has them.
"""

from collections.abc import Collection
from typing import Annotated

from fastapi import Depends, HTTPException, Path, Request

from statelib.model.ids import PipelineName, pipeline_name
from statelib_airflow import airflow_internals
from statelib_airflow.airflow_internals import AirflowUser


async def signed_in(request: Request) -> AirflowUser:
    """Return the user of the bearer token or, without one, of Airflow's session cookie. Raise 401 if neither is
    valid."""
    try:
        return await airflow_internals.signed_in_user(request)
    except HTTPException as refusal:
        raise HTTPException(401, "sign in to Airflow first") from refusal


MAX_ID = (1 << 63) - 1
Id = Annotated[int, Path(ge=0, le=MAX_ID)]
User = Annotated[AirflowUser, Depends(signed_in)]


def reads_dags(user: User) -> None:
    """Raise 403 for a user who may not read any DAG."""
    if not airflow_internals.may_read_dags(user):
        raise HTTPException(403, "you may not read DAGs")


def reads_pipeline(name: str, user: User) -> PipelineName:
    """Return the pipeline in the path. Raise 403 for a user who may not see it, even if there is no such pipeline."""
    pipeline = pipeline_name(name)
    _require_state(user, pipeline)
    return pipeline


def reads_run(dag_id: str, user: User) -> PipelineName:
    """Return the pipeline of a DAG. Raise 403 for a user who may not read that DAG, or the pipeline's checkpoints."""
    pipeline = pipeline_name(dag_id.rpartition(".")[0])
    if not airflow_internals.permitted_dags(user, [dag_id], "read"):
        raise HTTPException(403, f"you may not read the DAG {dag_id}")
    _require_state(user, pipeline)
    return pipeline


def readable(user: AirflowUser, pipelines: Collection[PipelineName]) -> list[PipelineName]:
    """Return the pipelines that the user may see, in the given order."""
    dag_ids = [dag_id for name in pipelines for dag_id in _state_dags(name)]
    allowed = airflow_internals.permitted_dags(user, dag_ids, "read")
    return [name for name in pipelines if not allowed.isdisjoint(_state_dags(name))]


def triggerable(user: AirflowUser, pipelines: Collection[PipelineName]) -> set[str]:
    """Return the pipelines whose savepoint DAG the user may trigger."""
    allowed = airflow_internals.permitted_dags(user, [f"{name}.savepoint" for name in pipelines], "trigger")
    return {dag_id.rpartition(".")[0] for dag_id in allowed}


def _require_state(user: AirflowUser, pipeline: PipelineName) -> None:
    if not readable(user, [pipeline]):
        raise HTTPException(403, f"you may not read the DAG {' or '.join(_state_dags(pipeline))}")


def _state_dags(pipeline: str) -> tuple[str, str]:
    """Return the ids of the DAGs each of whose readers may see a pipeline's state. A pipeline of a group has only the
    second one."""
    return f"{pipeline}.checkpoint", f"{pipeline}.savepoint"
