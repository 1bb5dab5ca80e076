"""The URLs of the page "State", and of the pages of Airflow that it links to.

Every component of Airflow imports this module, so it imports very little.
"""

from urllib.parse import quote

URL_PREFIX = "/statelib"
"""The path of the page, its assets and its API, below Airflow's own path."""
PAGE, DAG_TAB, RUN_TAB = "state", "state-dag", "state-run"
"""The ``url_route`` of the page in the navigation, of the tab of a DAG, and of the tab of a DAG run."""


def run_page(dag_id: str, run_id: str) -> str:
    """Return the path of the page of a DAG run, below Airflow's own path."""
    return f"/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"


def framed(path: str, fragment: str) -> str:
    """Return the path of a view of the page inside Airflow's frame. ``path``: Airflow's own path, '' or ``/airflow``.

    Airflow passes the part after the route to the frame."""
    return f"{path}/plugin/{PAGE}{path}{URL_PREFIX}/#{fragment}"
