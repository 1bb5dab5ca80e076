"""The rights of users: a user must be signed in to Airflow, and may see a pipeline if he may read its DAG.

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
    """Return the pipeline in the path. Raise 403 for a user who may not read its DAG, even if there is no such DAG."""
    pipeline = pipeline_name(name)
    _require(user, checkpoint_dag(pipeline))
    return pipeline


def reads_run(dag_id: str, user: User) -> PipelineName:
    """Return the pipeline of a DAG. Raise 403 for a user who may not read that DAG, or the pipeline's checkpoints."""
    pipeline = pipeline_name(dag_id.rpartition(".")[0])
    _require(user, dag_id)
    _require(user, checkpoint_dag(pipeline))
    return pipeline


def checkpoint_dag(pipeline: str) -> str:
    """Return the id of the DAG whose readers may see a pipeline's state."""
    return f"{pipeline}.checkpoint"


def readable(user: AirflowUser, pipelines: Collection[PipelineName]) -> list[PipelineName]:
    """Return the pipelines that the user may see, in the given order."""
    allowed = airflow_internals.permitted_dags(user, [checkpoint_dag(name) for name in pipelines], "read")
    return [name for name in pipelines if checkpoint_dag(name) in allowed]


def triggerable(user: AirflowUser, pipelines: Collection[PipelineName]) -> set[str]:
    """Return the pipelines whose savepoint DAG the user may trigger."""
    allowed = airflow_internals.permitted_dags(user, [f"{name}.savepoint" for name in pipelines], "trigger")
    return {dag_id.rpartition(".")[0] for dag_id in allowed}


def _require(user: AirflowUser, dag_id: str) -> None:
    if not airflow_internals.permitted_dags(user, [dag_id], "read"):
        raise HTTPException(403, f"you may not read the DAG {dag_id}")
