"""The API of the page: GET only. What changes state are Airflow's own trigger forms, with Airflow's own rights."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse

from statelib.catalog.views.browsing import MAX_PAGE, PageRequest
from statelib.flows.views import overview
from statelib.flows.views.anatomy import portrait
from statelib.flows.views.comparison import compare
from statelib.flows.wiring import deployment, now_ms
from statelib.model.ids import CheckpointId, PipelineName
from statelib_airflow.addresses import URL_PREFIX
from statelib_airflow.api import shapes
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
from statelib_airflow.api.threads import reading

Name = Annotated[PipelineName, Depends(reads_pipeline)]
Side = Annotated[int, Query(ge=0, le=MAX_ID)]
Sort = Literal[
    "checkpoint_id", "created_at_ms", "duration_ms", "size_bytes", "uploaded_bytes", "entries", "keys", "keys_changed"
]
Words = Annotated[str, Query(pattern=r"^([A-Z]{1,20}(,[A-Z]{1,20}){0,9})?$")]
"""Names of states or kinds, with commas between."""

router = APIRouter(prefix="/api", dependencies=[Depends(signed_in), Depends(reads_dags)])


@router.get("/me")
def me(user: User) -> JSONResponse:
    """Who is asking. There is no token: no route changes anything."""
    return JSONResponse({"name": user.get_name()})


@router.get("/pipelines")
@reading
def pipelines(user: User, request: Request) -> JSONResponse:
    """The pipelines whose DAG the user may read."""
    here = deployment()
    names = readable(user, overview.names(here))
    may = triggerable(user, names)
    views = overview.overview(here, names)
    path = _path(request)
    shown = [shapes.pipeline_json(view, view.name in may, path) for view in views]
    return JSONResponse({"pipelines": shown, "now_ms": now_ms()})


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
) -> JSONResponse:
    """One page of a history."""
    here = deployment()
    overview.check_known(here, pipeline)
    wanted = PageRequest(limit, offset, sort, order == "desc", _words(state), _words(kind), q.strip())
    page = here.existing_catalog().browsing.page(pipeline, wanted)
    path = _path(request)
    rows = [shapes.checkpoint_json(entry, path) for entry in page.entries]
    return JSONResponse({"total": page.total, "checkpoints": rows, "now_ms": now_ms()})


@router.get("/pipelines/{name}/checkpoints/{checkpoint_id}")
@reading
def checkpoint(pipeline: Name, checkpoint_id: Id, request: Request) -> JSONResponse:
    """All that is known of one checkpoint."""
    found = portrait(deployment(), pipeline, CheckpointId(checkpoint_id))
    return JSONResponse(shapes.portrait_json(found, _path(request)))


@router.get("/pipelines/{name}/compare")
@reading
def comparison(pipeline: Name, left: Side, right: Side, request: Request) -> JSONResponse:
    """Two checkpoints side by side."""
    found = compare(deployment(), pipeline, CheckpointId(left), CheckpointId(right))
    return JSONResponse(shapes.comparison_json(found, _path(request)))


@router.get("/storage")
@reading
def storage(user: User) -> JSONResponse:
    """What each pipeline that the user may read has on storage."""
    here = deployment()
    used = overview.storage_now(here, readable(user, overview.names(here)))
    rows = [{"name": name, **shapes.usage_json(usage)} for name, usage in used.items()]
    return JSONResponse({"pipelines": rows, "now_ms": now_ms()})


@router.get("/pipelines/{name}/storage")
@reading
def pipeline_storage(pipeline: Name) -> JSONResponse:
    """What a pipeline has on storage now, and had over time."""
    here = deployment()
    overview.check_known(here, pipeline)
    now = overview.storage_now(here, [pipeline])[pipeline]
    samples = overview.storage_samples(here, pipeline)
    rows = [{"at_ms": sample.at_ms, **shapes.usage_json(sample.usage)} for sample in samples]
    return JSONResponse({"now": {"name": pipeline, **shapes.usage_json(now)}, "samples": rows, "now_ms": now_ms()})


@router.get("/runs/{dag_id}/{run_id:path}")
@reading
def run(pipeline: Annotated[PipelineName, Depends(reads_run)], dag_id: str, run_id: str) -> JSONResponse:
    """The checkpoint or savepoint that a DAG run began; null for a run that began none."""
    here = deployment()
    overview.check_known(here, pipeline)
    found = here.existing_catalog().browsing.begun_by(pipeline, f"{dag_id}/{run_id}/")
    return JSONResponse({"pipeline": pipeline, "checkpoint_id": found})


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _path(request: Request) -> str:
    """Airflow's own path, '' or ``/airflow``: what lies before ours."""
    return str(request.scope.get("root_path", "")).removesuffix(URL_PREFIX)
