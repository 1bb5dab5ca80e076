"""The plugin that Airflow loads by its entry point: the page "State" in its navigation, DAGs and DAG runs.

Every component of Airflow loads it, so it imports next to nothing: the page's FastAPI app is made at its first request.
"""

from typing import Any
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin

from statelib_airflow.addresses import DAG_TAB, PAGE, RUN_TAB, URL_PREFIX


class StatePage:
    """ASGI: hands everything to the app of the page, which is imported when somebody first asks for it."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        from statelib_airflow.api.app import page_app

        await page_app()(scope, receive, send)


def _view(name: str, destination: str, url_route: str, fragment: str) -> dict[str, str]:
    path = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")
    view = {"name": name, "destination": destination, "url_route": url_route, "href": f"{path}{URL_PREFIX}/{fragment}"}
    return view if destination != "nav" else {**view, "category": "browse"}


class StatelibPlugin(AirflowPlugin):
    """What Airflow is told: an app below ``/statelib``, and where it is shown."""

    name = "statelib"
    fastapi_apps = [{"app": StatePage(), "url_prefix": URL_PREFIX, "name": "State"}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        _view("State", "nav", PAGE, ""),
        _view("State", "dag", DAG_TAB, "#/dag/{DAG_ID}"),
        _view("State", "dag_run", RUN_TAB, "#/run/{DAG_ID}/{RUN_ID}"),
    ]
