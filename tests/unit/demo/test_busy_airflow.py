"""The client of Airflow's REST API while the database behind it is locked, as SQLite's can be."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from demo.airflow_client import AirflowClient, AirflowRequestError

LOCKED = 2


class BusyAirflow(ThreadingHTTPServer):
    """A server with one DAG and one run. Each method fails :data:`LOCKED` times before it works: it answers with an
    error at once, or it closes the connection without an answer after ``waits_s``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.failures = {"GET": LOCKED, "PATCH": LOCKED, "POST": LOCKED}
        self.paused, self.state = True, "running"
        self.waits_s = 0.0


class Handler(BaseHTTPRequestHandler):
    server: BusyAirflow

    def _answer(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        locked = self.server.failures[self.command] > 0
        self.server.failures[self.command] -= locked
        time.sleep(self.server.waits_s if locked else 0)
        if not locked:
            self.server.paused = body.get("is_paused", self.server.paused)
            self.server.state = body.get("state", self.server.state)
        if locked and self.server.waits_s:
            return
        self.send_response(500 if locked else 200)
        self.end_headers()
        self.wfile.write(json.dumps({"is_paused": self.server.paused, "state": self.server.state}).encode())

    do_GET = do_PATCH = do_POST = _answer  # noqa: N815

    def log_request(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def busy() -> Iterator[BusyAirflow]:
    with BusyAirflow() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def client(busy: BusyAirflow, monkeypatch: pytest.MonkeyPatch) -> AirflowClient:
    monkeypatch.setattr("demo.airflow_client.BUSY_PAUSE_S", 0.01)
    return AirflowClient(f"http://127.0.0.1:{busy.server_address[1]}")


def test_a_request_that_only_reads_is_repeated(client: AirflowClient) -> None:
    assert client.call("GET", "/dags/one")["is_paused"] is True


@pytest.mark.parametrize("waits_s", [0.0, 0.01, 0.5])
def test_pausing_a_dag_and_marking_a_run_are_repeated_until_they_succeed(
    client: AirflowClient, busy: BusyAirflow, waits_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("demo.airflow_client.ANSWER_S", 0.2)
    busy.waits_s = waits_s
    client.pause("one", False)
    busy.failures["PATCH"] = LOCKED
    client.fail("one", "run")
    assert (busy.paused, busy.state) == (False, "failed")
    assert busy.failures["PATCH"] == 0


def test_a_request_that_may_have_had_an_effect_is_not_repeated(client: AirflowClient, busy: BusyAirflow) -> None:
    with pytest.raises(AirflowRequestError, match="POST /dags: 500"):
        client.call("POST", "/dags", {})
    assert busy.failures["POST"] == LOCKED - 1
