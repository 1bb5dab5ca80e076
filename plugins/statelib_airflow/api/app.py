"""The FastAPI app of the page "State"; Airflow mounts it at ``/statelib``."""

from functools import cache

from fastapi import FastAPI

from statelib_airflow.api import pages, routes
from statelib_airflow.api.answers import Headers, handle_errors


@cache
def page_app() -> FastAPI:
    """Return the app of this process. Its routers check the user's rights, and it serves no API documentation."""
    app = FastAPI(title="State", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.include_router(routes.router)
    app.include_router(pages.router)
    app.add_middleware(Headers)
    handle_errors(app)
    return app
