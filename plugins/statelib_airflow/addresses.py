"""Where the page "State" is, and how other pages of Airflow lead to it. Imported by every component: keep it light."""

from urllib.parse import quote

URL_PREFIX = "/statelib"
"""Below Airflow's own path; the page, its assets and its API lie there."""
PAGE, DAG_TAB, RUN_TAB = "state", "state-dag", "state-run"
"""The ``url_route`` of the page in the navigation, of the tab of a DAG, and of the tab of a DAG run."""


def run_page(dag_id: str, run_id: str) -> str:
    """Path, below Airflow's own, of the page of a DAG run."""
    return f"/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"


def framed(path: str, fragment: str) -> str:
    """Path of a page of ours in Airflow's frame; ``path``: Airflow's own, '' or ``/airflow``. Airflow hands what
    follows the route to the frame."""
    return f"{path}/plugin/{PAGE}{path}{URL_PREFIX}/#{fragment}"
