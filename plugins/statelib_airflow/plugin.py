"""The plugin of Airflow that adds the page "State" to its navigation, to DAGs and to DAG runs.

Every component of Airflow loads this module by its entry point. It imports very little: the page's FastAPI app is made
at the first request.
"""

from typing import Any
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin

from statelib_airflow.addresses import DAG_TAB, PAGE, RUN_TAB, URL_PREFIX


class StatePage:
    """An ASGI application that passes every request to the app of the page. The first request imports that app."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        from statelib_airflow.api.app import page_app

        await page_app()(scope, receive, send)


def _view(name: str, destination: str, url_route: str, fragment: str) -> dict[str, str]:
    path = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")
    view = {"name": name, "destination": destination, "url_route": url_route, "href": f"{path}{URL_PREFIX}/{fragment}"}
    return view if destination != "nav" else {**view, "category": "browse"}


class StatelibPlugin(AirflowPlugin):
    """The app below ``/statelib``, and the places in Airflow where it is shown."""

    name = "statelib"
    fastapi_apps = [{"app": StatePage(), "url_prefix": URL_PREFIX, "name": "State"}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        _view("State", "nav", PAGE, ""),
        _view("State", "dag", DAG_TAB, "#/dag/{DAG_ID}"),
        _view("State", "dag_run", RUN_TAB, "#/run/{DAG_ID}/{RUN_ID}"),
    ]
