"""Who may see what: nobody without signing in to Airflow, and of a pipeline whoever may read its DAG.

Airflow does not guard the routes of plugins; these are dependencies of the routers, so that no route can forget them.
"""

from collections.abc import Collection
from typing import Annotated, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import bearer_scheme, get_user
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException, Path, Request

from statelib.model.ids import PipelineName, pipeline_name


async def signed_in(request: Request, bearer: Annotated[Any, Depends(bearer_scheme)]) -> BaseUser:
    """The user of the request: of its bearer token, else of Airflow's session cookie. Else 401, whatever is wrong."""
    try:
        return await get_user(request, None, bearer)
    except HTTPException as refusal:
        raise HTTPException(401, "sign in to Airflow first") from refusal


MAX_ID = (1 << 63) - 1
Id = Annotated[int, Path(ge=0, le=MAX_ID)]
User = Annotated[BaseUser, Depends(signed_in)]


def reads_dags(user: User) -> None:
    """403 for a user without any right on DAGs."""
    if not get_auth_manager().is_authorized_dag(method="GET", user=user):
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


def readable(user: BaseUser, pipelines: Collection[PipelineName]) -> list[PipelineName]:
    """Those of the pipelines that the user may see, in the same order."""
    allowed = _permitted(user, [checkpoint_dag(name) for name in pipelines])
    return [name for name in pipelines if checkpoint_dag(name) in allowed]


def triggerable(user: BaseUser, pipelines: Collection[PipelineName]) -> set[str]:
    """Those whose savepoint DAG the user may trigger."""
    allowed = _permitted(user, [f"{name}.savepoint" for name in pipelines], "POST", DagAccessEntity.RUN)
    return {dag_id.rpartition(".")[0] for dag_id in allowed}


def _permitted(
    user: BaseUser, dag_ids: Collection[str], method: ResourceMethod = "GET", entity: DagAccessEntity | None = None
) -> set[str]:
    """Those of the DAGs on which the user has that right; it does not matter whether Airflow knows them."""
    teams = DagModel.get_dag_id_to_team_name_mapping(list(dag_ids))
    manager = get_auth_manager()
    return {
        dag_id
        for dag_id in dag_ids
        if manager.is_authorized_dag(
            method=method,
            access_entity=entity,
            details=DagDetails(id=dag_id, team_name=teams.get(dag_id)),
            user=user,
        )
    }


def _require(user: BaseUser, dag_id: str) -> None:
    if not _permitted(user, [dag_id]):
        raise HTTPException(403, f"you may not read the DAG {dag_id}")
