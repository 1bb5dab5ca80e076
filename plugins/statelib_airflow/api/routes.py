"""The API of the page. It only reads: all changes go through Airflow's trigger forms, with Airflow's own rights."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request

from statelib.catalog.views.browsing import MAX_PAGE, PageRequest
from statelib.flows.publication.steps import standings
from statelib.flows.views import overview
from statelib.flows.views.anatomy import portrait
from statelib.flows.views.comparison import compare
from statelib.flows.wiring import now_ms
from statelib.model.ids import CheckpointId, PipelineName
from statelib_airflow.addresses import URL_PREFIX
from statelib_airflow.api import responses, shapes
from statelib_airflow.api.rights import (
    MAX_ID,
    Id,
    User,
    readable,
    reads_dags,
    reads_pipeline,
    reads_run,
    signed_in,
    triggerable,
)
from statelib_airflow.api.settings import deployment
from statelib_airflow.api.threads import reading

Name = Annotated[PipelineName, Depends(reads_pipeline)]
Side = Annotated[int, Query(ge=0, le=MAX_ID)]
Sort = Literal[
    "checkpoint_id", "created_at_ms", "duration_ms", "size_bytes", "uploaded_bytes", "entries", "keys", "keys_changed"
]
Words = Annotated[str, Query(pattern=r"^([A-Z]{1,20}(,[A-Z]{1,20}){0,9})?$")]
"""Names of states or kinds, separated by commas."""

router = APIRouter(
    prefix="/api",
    dependencies=[Depends(signed_in), Depends(reads_dags)],
    responses={"default": {"model": shapes.ErrorResponse, "description": "The request failed"}},
)


@router.get("/me")
def me(user: User) -> shapes.SignedInUser:
    """Return the name of the signed-in user."""
    return shapes.SignedInUser(user.get_name())


@router.get("/pipelines")
@reading
def pipelines(user: User, request: Request) -> shapes.PipelineList:
    """Return the pipelines whose DAG the user may read."""
    target = deployment()
    names = readable(user, overview.names(target))
    may = triggerable(user, names)
    views = overview.overview(target, names)
    path = _path(request)
    rows = tuple(responses.pipeline_row(view, view.name in may, path) for view in views)
    return shapes.PipelineList(rows, now_ms())


@router.get("/pipelines/{name}/checkpoints")
@reading
def checkpoints(
    pipeline: Name,
    request: Request,
    *,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
    offset: Annotated[int, Query(ge=0, lt=1 << 31)] = 0,
    sort: Sort = "checkpoint_id",
    order: Literal["asc", "desc"] = "desc",
    state: Words = "",
    kind: Words = "",
    q: Annotated[str, Query(max_length=200, pattern=r"^[^\x00]*$")] = "",
) -> shapes.CheckpointList:
    """Return one page of the list of checkpoints."""
    target = deployment()
    overview.check_known(target, pipeline)
    wanted = PageRequest(limit, offset, sort, order == "desc", _words(state), _words(kind), q.strip())
    page = target.existing_catalog().browsing.page(pipeline, wanted)
    path = _path(request)
    rows = tuple(responses.checkpoint_row(entry, path) for entry in page.entries)
    return shapes.CheckpointList(page.total, rows, now_ms())


@router.get("/pipelines/{name}/checkpoints/{checkpoint_id}")
@reading
def checkpoint(pipeline: Name, checkpoint_id: Id, request: Request) -> shapes.CheckpointDetail:
    """Return one checkpoint with its states, files, lineage and quality results."""
    result = portrait(deployment(), pipeline, CheckpointId(checkpoint_id))
    return responses.checkpoint_detail(result, _path(request))


@router.get("/pipelines/{name}/compare")
@reading
def comparison(pipeline: Name, left: Side, right: Side, request: Request) -> shapes.ComparisonDetail:
    """Return two checkpoints with the differences between them."""
    result = compare(deployment(), pipeline, CheckpointId(left), CheckpointId(right))
    return responses.comparison_detail(result, _path(request))


@router.get("/pipelines/{name}/tables")
@reading
def tables(pipeline: Name) -> shapes.TableList:
    """Return the published tables of a pipeline, and how far each is behind the head."""
    target = deployment()
    overview.check_known(target, pipeline)
    return shapes.TableList(standings(target, target.pipeline(pipeline)), now_ms())


@router.get("/storage")
@reading
def storage(user: User) -> shapes.StorageList:
    """Return the storage use of each pipeline that the user may read."""
    target = deployment()
    used = overview.storage_now(target, readable(user, overview.names(target)))
    return shapes.StorageList(tuple(responses.storage_row(*each) for each in used.items()), now_ms())


@router.get("/pipelines/{name}/storage")
@reading
def pipeline_storage(pipeline: Name) -> shapes.StorageHistory:
    """Return the storage use of a pipeline, now and over time."""
    target = deployment()
    overview.check_known(target, pipeline)
    now = overview.storage_now(target, [pipeline])[pipeline]
    samples = overview.storage_samples(target, pipeline)
    points = tuple(responses.storage_point(sample) for sample in samples)
    return shapes.StorageHistory(responses.storage_row(pipeline, now), points, now_ms())


@router.get("/runs/{dag_id}/{run_id:path}")
@reading
def run(pipeline: Annotated[PipelineName, Depends(reads_run)], dag_id: str, run_id: str) -> shapes.RunCheckpoint:
    """Return the checkpoint or savepoint that a DAG run began; null if it began none."""
    target = deployment()
    overview.check_known(target, pipeline)
    checkpoint_id = target.existing_catalog().browsing.begun_by(pipeline, f"{dag_id}/{run_id}/")
    return shapes.RunCheckpoint(pipeline, checkpoint_id)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _path(request: Request) -> str:
    """Return Airflow's own path, '' or ``/airflow``, which is the part before the path of the page."""
    return str(request.scope.get("root_path", "")).removesuffix(URL_PREFIX)
