"""The built front end and the pages of quality reports: files with the content type, caching and CSP they need."""

from pathlib import Path, PurePosixPath
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException
from fastapi.responses import Response

from statelib.errors import NotFoundError
from statelib.flows.views.report import page_below, report_page
from statelib.model.ids import CheckpointId, PipelineName
from statelib_airflow.api.rights import Id, reads_dags, reads_pipeline, signed_in
from statelib_airflow.api.settings import deployment
from statelib_airflow.api.threads import reading

DIST = Path(__file__).resolve().parent.parent / "page" / "dist"
"""The directory of the built front end."""
BUILD = "plugins/statelib_airflow/page/build.sh .work/page --install"
PAGE_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; frame-src 'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
)
REPORT_CSP = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; "
    "frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
)
CONTENT_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webp": "image/webp",
    ".woff2": "font/woff2",
}
_NOT_BUILT = f"""<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>State</title></head><body>
<h1>The page is not built</h1><p>Run <code>{BUILD}</code> in the checkout of statelib and load this page again.</p>
</body></html>"""

router = APIRouter(dependencies=[Depends(signed_in), Depends(reads_dags)], include_in_schema=False)


@router.get("/")
@reading
def index() -> Response:
    """Return the page itself. Browsers do not cache it, because it names the assets of its own build."""
    if not (DIST / "index.html").is_file():
        return Response(_NOT_BUILT, 503, media_type=CONTENT_TYPES[".html"])
    headers = {"Content-Security-Policy": PAGE_CSP, "Cache-Control": "no-cache"}
    return Response(page_below(str(DIST), "index.html", "page"), 200, headers, CONTENT_TYPES[".html"])


@router.get("/assets/{path:path}")
@reading
def asset(path: str) -> Response:
    """Return a file of the build. Its name has a hash of its content, so that browsers may cache it for ever."""
    if _type(path) is None or not DIST.is_dir():
        raise NotFoundError(f"there is no asset {path}", kind="missing-file", hint=f"{BUILD} builds the page")
    headers = {"Content-Security-Policy": PAGE_CSP, "Cache-Control": "private, max-age=31536000, immutable"}
    return Response(page_below(str(DIST), f"assets/{path}", "page"), 200, headers, _type(path))


@router.get("/api/pipelines/{name}/checkpoints/{checkpoint_id}/report/{path:path}")
@reading
def report(pipeline: Annotated[PipelineName, Depends(reads_pipeline)], checkpoint_id: Id, path: str) -> Response:
    """Return a page of the quality report of a checkpoint. It runs no scripts."""
    entry = deployment().existing_catalog().browsing.entry(pipeline, CheckpointId(checkpoint_id))
    content_type = _type(path or "index.html")
    if content_type is None or content_type == CONTENT_TYPES[".js"]:
        raise HTTPException(404, f"a report has no file {path}")
    headers = {"Content-Security-Policy": REPORT_CSP, "Cache-Control": "private, no-cache"}
    return Response(report_page(entry, path), 200, headers, content_type)


def _type(path: str) -> str | None:
    return CONTENT_TYPES.get(PurePosixPath(path).suffix.lower())
