"""A program that prints the answers and logs of the page State, and the content of the DAGs, as a JSON object of texts
by their origin. It has the environment of Airflow's processes; its arguments are the catalogs, which it uses in
turn."""

import json
import os
import sys
from typing import Any

from airflow.api_fastapi.app import create_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.dag_processing.dagbag import DagBag
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.serialization.serialized_objects import DagSerialization
from airflow.settings import engine
from fastapi.testclient import TestClient
from statelib_airflow.api import rights
from statelib_airflow.api.app import page_app

from demo.places import CHECKOUT

SETTLED = {"name": "sales", "checkpoint_id": "1", "dag_id": "sales.checkpoint", "run_id": "nobody's", "path": "x"}
MORE = {"compare": "?left=1&right=2"}


def answers(catalogs: list[str]) -> dict[str, str]:
    """Return the answers of every route, by the number of the catalog. Each begins with its status."""
    import_all_models()
    Base.metadata.create_all(engine)
    create_auth_manager()
    app: Any = page_app()
    app.dependency_overrides[rights.signed_in] = lambda: SimpleAuthManagerUser(username="ada", role="ADMIN")
    client = TestClient(app, raise_server_exceptions=False)
    texts = {}
    for number, url in enumerate(catalogs):
        os.environ["STATELIB_CATALOG"] = url
        connection = json.loads(os.environ["AIRFLOW_CONN_STATE"])
        # the URL has its own password, which that of the connection would replace
        connection |= {"password": None, "extra": {**connection["extra"], "catalog": url}}
        os.environ["AIRFLOW_CONN_STATE"] = json.dumps(connection)
        for route in app.routes:
            path = route.path.replace(":path", "").format(**SETTLED)
            answer = client.get(path + MORE.get(path.rpartition("/")[2], ""))
            texts[f"{number} {route.path}"] = f"{answer.status_code} {answer.headers} {answer.text}"
    return texts


def dags() -> dict[str, str]:
    """Return the DAGs in the form of Airflow's database, and the template fields of their tasks."""
    texts = {}
    for dag in DagBag(str(CHECKOUT / "dags")).dags.values():
        texts[f"dag {dag.dag_id}"] = json.dumps(DagSerialization.to_dict(dag), default=str)
        for task in dag.tasks:
            fields = {name: getattr(task, name, None) for name in task.template_fields}
            texts[f"task {task.task_id} of {dag.dag_id}"] = f"{fields!r} {task!r} {vars(task)!r}"
    return texts


if __name__ == "__main__":
    texts = {**dags(), **answers(sys.stdin.read().split())}
    sys.stdout.write("\n" + json.dumps(texts))
