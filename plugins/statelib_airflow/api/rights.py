"""Who may see what: nobody without signing in to Airflow, and of a pipeline whoever may read its DAG.

Airflow does not guard the routes of plugins; these are dependencies of the routers, so that no route can forget them.
"""

from collections.abc import Collection
from typing import Annotated

from fastapi import Depends, HTTPException, Path, Request

from statelib.model.ids import PipelineName, pipeline_name
from statelib_airflow import airflow_internals
from statelib_airflow.airflow_internals import AirflowUser


async def signed_in(request: Request) -> AirflowUser:
    """The user of the request: of its bearer token, else of Airflow's session cookie. Else 401, whatever is wrong."""
    try:
        return await airflow_internals.signed_in_user(request)
    except HTTPException as refusal:
        raise HTTPException(401, "sign in to Airflow first") from refusal


MAX_ID = (1 << 63) - 1
Id = Annotated[int, Path(ge=0, le=MAX_ID)]
User = Annotated[AirflowUser, Depends(signed_in)]


def reads_dags(user: User) -> None:
    """403 for a user without any right on DAGs."""
    if not airflow_internals.may_read_dags(user):
        raise HTTPException(403, "you may not read DAGs")


def reads_pipeline(name: str, user: User) -> PipelineName:
    """The pipeline that the path names; 403 for a user who may not read its DAG, whether there is one or not."""
    pipeline = pipeline_name(name)
    _require(user, checkpoint_dag(pipeline))
    return pipeline


def reads_run(dag_id: str, user: User) -> PipelineName:
    """The pipeline of a DAG; 403 for a user who may not read that DAG, and the pipeline's checkpoints."""
    pipeline = pipeline_name(dag_id.rpartition(".")[0])
    _require(user, dag_id)
    _require(user, checkpoint_dag(pipeline))
    return pipeline


def checkpoint_dag(pipeline: str) -> str:
    """The DAG whose readers may see a pipeline's state."""
    return f"{pipeline}.checkpoint"


def readable(user: AirflowUser, pipelines: Collection[PipelineName]) -> list[PipelineName]:
    """Those of the pipelines that the user may see, in the same order."""
    allowed = airflow_internals.permitted_dags(user, [checkpoint_dag(name) for name in pipelines], "read")
    return [name for name in pipelines if checkpoint_dag(name) in allowed]


def triggerable(user: AirflowUser, pipelines: Collection[PipelineName]) -> set[str]:
    """Those whose savepoint DAG the user may trigger."""
    allowed = airflow_internals.permitted_dags(user, [f"{name}.savepoint" for name in pipelines], "trigger")
    return {dag_id.rpartition(".")[0] for dag_id in allowed}


def _require(user: AirflowUser, dag_id: str) -> None:
    if not airflow_internals.permitted_dags(user, [dag_id], "read"):
        raise HTTPException(403, f"you may not read the DAG {dag_id}")
