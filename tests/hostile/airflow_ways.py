"""Pass hostile names and paths to everything that Airflow offers: ``python -m tests.hostile.airflow_ways <root>``.

They are passed to every route of the page "State", in every place of its path, to every text of every trigger form,
and to the flows behind them. The program prints a JSON object."""

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from airflow.api_fastapi.app import create_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowException
from airflow.settings import engine
from fastapi.testclient import TestClient
from statelib_airflow.api import pages, rights
from statelib_airflow.api.app import page_app
from statelib_airflow.dags import forms

from statelib.flows.restore.steps import plan_restore
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.views.verification import verify_pipeline
from statelib.model.record import ClaimMode
from tests.hostile.corpus import tricks
from tests.hostile.jail import Jail

PIPELINE = """\
name: sales
source: {path: "{data}/{start}-{end}", columns: {shop: string}}
key: [shop]
states: {seen: {kind: value, value: {agg: count}}}
backend: heap
parallelism: 1
"""
SETTLED = {"name": "sales", "checkpoint_id": "1", "dag_id": "sales.checkpoint", "run_id": "x", "path": "index.html"}
MEANT = re.compile(forms.ABSOLUTE_PATH, re.IGNORECASE)
PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")


def client() -> tuple[TestClient, list[str]]:
    """Return a client that is signed in as an administrator, and the routes."""
    import_all_models()
    Base.metadata.create_all(engine)
    create_auth_manager()
    app: Any = page_app()
    app.dependency_overrides[rights.signed_in] = lambda: SimpleAuthManagerUser(username="ada", role="ADMIN")
    return TestClient(app, raise_server_exceptions=False, follow_redirects=False), [r.path for r in app.routes]


def addresses(routes: list[str], trick: str) -> Iterator[tuple[str, str]]:
    """Yield each path parameter of each route, and the route's address with the trick in place of it."""
    sent = quote(trick.encode("utf-8", "surrogatepass"), safe="").replace(".", "%2E")
    for route in routes:
        for wanted in PARAMETER.findall(route):
            parts = {**SETTLED, wanted: sent}
            yield wanted, PARAMETER.sub(lambda match, parts=parts: parts[match[1]], route)


def ask(jail: Jail, statuses: Counter[int]) -> None:
    """Send a request to a route. Only the id of a run may be any text, and the answer may be that no run of that id
    began a checkpoint."""
    asked, routes = client()
    asked.get("/api/pipelines")  # Modules that are imported late are imported now.
    for trick in tricks(jail.outside):
        for part, address in addresses(routes, trick):
            answer: list[Any] = []
            jail.try_it("page", address[:80], partial(_text, asked, address, answer))
            statuses[answer[0]] += 1
            if not (400 <= answer[0] < 500 or (answer[0] == 200 and part == "run_id")):
                jail.wrong.append(f"{address[:80]}: {answer[0]}")


def _text(asked: TestClient, address: str, statuses: list[int]) -> str:
    answer = asked.get(address)
    statuses.append(answer.status_code)
    return answer.text


def fill_in(jail: Jail, refused: Counter[str]) -> None:
    """Count how often the form of each DAG refuses a trick in a field that is no free text."""
    made = {
        "savepoint": forms.savepoint_form(), "restore": forms.restore_form(128), "dispose": forms.dispose_form(),
        "cleanup": forms.cleanup_form(), "verify": forms.verify_form(["sales"]),
    }  # fmt: skip
    fields = {f"{form}.{name}": param for form, params in made.items() for name, param in params.items()}
    for name, param in fields.items():
        refused[name] = sum(map(partial(_refuses, param), tricks(jail.outside)))


def _refuses(param: Param, trick: str) -> bool:
    try:
        param.resolve(trick)
    except (AirflowException, ValueError):
        return True
    return False


def flows(jail: Jail) -> None:
    """Call the flows with each trick directly, without a form. Absolute paths are left out: a user may mean them."""
    deployment = jail.deployment
    pipeline = deployment.pipeline("sales")
    begin = partial(begin_savepoint, deployment, pipeline, note="", owner="x")
    for number, trick in enumerate(tricks(jail.outside)):
        name = f"{number} {trick[:30]!a}"
        jail.try_it("format", name, partial(begin, format=trick, target=None, key=f"f{number}"))
        jail.try_it("verify", name, partial(verify_pipeline, deployment, trick))
        if not MEANT.match(trick):
            jail.try_it("restore", name, partial(plan_restore, deployment, pipeline, trick, None, ClaimMode.NO_CLAIM))
            jail.try_it("target", name, partial(begin, format="canonical", target=trick, key=f"t{number}"))


def main(root: str) -> None:
    jail = Jail(Path(root))
    (jail.root / "pipelines" / "sales.yaml").write_text(PIPELINE)
    pages.DIST = jail.root / "dist"
    pages.DIST.mkdir()
    (pages.DIST / "index.html").write_text("<title>State</title>")
    os.environ.update(jail.environment)
    statuses: Counter[int] = Counter()
    refused: Counter[str] = Counter()
    ask(jail, statuses)
    fill_in(jail, refused)
    flows(jail)
    wrong = [line for line in jail.wrong if ": socket.__new__ " not in line]
    counts = {"tried": jail.tried, "refused": jail.refused, "forms": refused, "statuses": statuses}
    print(json.dumps({"wrong": wrong, "tricks": len(tricks(jail.outside)), **counts}))


if __name__ == "__main__":
    main(sys.argv[1])
