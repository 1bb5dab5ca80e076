"""A real API server of Airflow's with the page "State" over a small deployment, and users of every role."""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, insert, update

from demo.airflow_process import free_ports
from demo.places import CHECKOUT, Places, environment
from statelib.catalog.tables.schema import CHECKPOINT, QUALITY_RESULT
from statelib.flows.checkpoint.steps import register
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from tests.integration.shop import environment as shop_environment
from tests.integration.shop import open_shop
from tests.support.worlds import publish_here

ROLES = {"nora": "", "vera": "viewer", "eddie": "user", "olga": "op", "ada": "admin", "tom": "user", "gus": "user"}
"""The roles of the users: without any right, viewer, editor, operator, administrator; Tom has rights only on the
DAGs of tours, and Gus only on the savepoint DAG of sales, as if sales were in a group."""
RUN = "manual__2013-01-05T00:00:00+00:00"
QUARANTINED, REPORTED = 3, 7
PATIENCE_S = 300.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Server:
    """A running API server. ``routes``: path and methods of each route of the page, from the app itself. ``tokens``:
    by user."""

    url: str
    routes: list[tuple[str, list[str]]]
    tokens: dict[str, str] = field(default_factory=dict)

    def call(
        self, path: str, user: str | None = None, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a request like a browser in which ``user`` is signed in: with the session's cookie and nothing else."""
        cookie = {"Cookie": f"_token={self.tokens[user]}"} if user else {}
        request = urllib.request.Request(self.url + path, method=method, headers={**cookie, **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return Answer(answer.status, dict(answer.headers), answer.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, dict(error.headers), error.read())

    def get(self, path: str, user: str | None = "vera") -> Any:
        """Return the JSON answer of the page's API."""
        answer = self.call(f"/statelib/api/{path}", user)
        assert answer.status == 200, answer.body
        return answer.json


def page_world(root: Path) -> Deployment:
    """Return the shop's deployment, in which 3 is quarantined as well, and 7 is a savepoint of a DAG run with a
    report and a verdict."""
    deployment = open_shop(root)
    pipeline = deployment.pipeline("sales")
    owner = f"sales.savepoint/{RUN}/begin/1"
    begun = begin_savepoint(deployment, pipeline, format="canonical", target=None, note="100%", owner=owner, key="page")
    publish_here(deployment, pipeline, begun.checkpoint_id)
    report = Path(deployment.docs_directory) / "sales" / f"chk-{REPORTED}-x"
    (report / "validations").mkdir(parents=True)
    (report / "index.html").write_text("<h1>complete</h1>")
    (report / "validations" / "a.html").write_text("<p>a</p>")
    (report.parent / "secret.html").write_text("secret")
    (report / "link.html").symlink_to(report.parent / "secret.html")
    (report / "run.js").write_text("alert(1)")
    assert (
        register(deployment, pipeline, begun.checkpoint_id, (report / "index.html").as_uri()).checkpoint_id == REPORTED
    )
    engine = create_engine(deployment.catalog_url)
    with engine.begin() as connection:
        connection.execute(
            update(CHECKPOINT)
            .where(CHECKPOINT.c.pipeline == "sales", CHECKPOINT.c.checkpoint_id == QUARANTINED)
            .values(state="QUARANTINED")
        )
        connection.execute(insert(QUALITY_RESULT), [*verdict_rows(1, passed=0), *verdict_rows(2, passed=1)])
    engine.dispose()
    (Path(deployment.pipelines_directory) / "broken.yaml").write_text("name: broken\nbackend: steam\n")
    return deployment


def verdict_rows(run: int, passed: int) -> list[dict[str, object]]:
    """Return the rows of one run of the gate: one expectation with severity FAIL and one with WARN."""
    common = {"pipeline": "sales", "checkpoint_id": REPORTED, "run": run, "check_group": "state", "at_ms": run}
    one = {"position": 0, "check_name": "no key is null", "severity": "FAIL", "passed": passed}
    two = {"position": 1, "check_name": "keys drift little", "severity": "WARN", "passed": 0}
    facts = {"checked": 6, "failed": 1, "sentences": '["twice as many keys"]'}
    return [{**common, **facts, **part} for part in (one, two)]


@contextmanager
def state_page(root: Path, deployment: Deployment) -> Iterator[Server]:
    """Yield the server once it answers. Its process has ended when the block ends."""
    ports = free_ports()
    places = Places(work=root / "airflow")
    places.make_directories()
    routes, log = root / "routes.json", root / "server.log"
    command = [sys.executable, "-m", "tests.integration.airflow_server", str(ports.api), str(routes)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=_environment(places, ports, deployment, root), stdout=output, stderr=output
        )
    url = f"http://127.0.0.1:{ports.api}"
    try:
        _wait(url, process, log)
        server = Server(url, [(path, methods) for path, methods in json.loads(routes.read_text())])
        server.tokens.update({user: _sign_in(url, user) for user in ROLES})
        yield server
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _environment(places: Places, ports: Any, deployment: Deployment, root: Path) -> dict[str, str]:
    passwords = root / "passwords.json"
    passwords.write_text(json.dumps({user: f"{user}'s" for user in ROLES}))
    return {
        **environment(places, ports),
        **shop_environment(deployment),
        "PYTHONPATH": str(CHECKOUT),
        "TEST_PAGE_DIST": str(root / "dist"),
        "AIRFLOW__CORE__AUTH_MANAGER": "tests.integration.airflow_server.FencedAuthManager",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{user}:{role}" for user, role in ROLES.items()),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        "AIRFLOW__API_AUTH__JWT_SECRET": "a secret of these tests, and long enough for the signature of tokens",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
    }


def _wait(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/api/v2/version", timeout=10):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"no API server: {log.read_text(errors='replace')[-3000:]}")


def _sign_in(url: str, user: str) -> str:
    """Sign in by the request that Airflow's form sends, and return the token."""
    body = json.dumps({"username": user, "password": f"{user}'s"}).encode()
    request = urllib.request.Request(f"{url}/auth/token", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(json.loads(answer.read())["access_token"])
