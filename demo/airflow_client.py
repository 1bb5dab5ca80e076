"""The few calls of Airflow's REST API that the demonstration and the tests make."""

import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any

FINISHED = ("success", "failed")
BUSY_TRIES, BUSY_PAUSE_S = 40, 0.5
ANSWER_S = 60.0
BUSY = (HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)
"""On SQLite, a request can fail so while another one writes: it is made again, as is one without an answer."""


class AirflowRequestError(RuntimeError):
    """Airflow refused a request; the message holds its answer, ``status`` is 0 if there was none."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Run:
    """One DAG run as the API shows it. ``start`` is the start of its data interval."""

    dag_id: str
    run_id: str
    state: str
    start: datetime | None
    began: datetime | None
    ended: datetime | None

    @property
    def seconds(self) -> float:
        return (self.ended - self.began).total_seconds() if self.began and self.ended else 0.0


class AirflowClient:
    """Talks to an API server on 127.0.0.1: to one that lets everybody in, or with the ``token`` of who is signed in."""

    def __init__(self, url: str, check_alive: Callable[[], None] = lambda: None, token: str = "") -> None:
        """``check_alive`` raises when a part of that Airflow has ended: no request waits for the dead."""
        self.url = url
        self._signed_in = {"Authorization": f"Bearer {token}"} if token else {}
        self._check_alive = check_alive
        self._one_at_a_time = threading.Lock()
        self._stopped = threading.Event()

    def stop(self) -> None:
        """From now on every call, on any thread, raises AirflowRequestError."""
        self._stopped.set()

    def check(self) -> None:
        """Raises when a part of that Airflow has ended, or after :meth:`stop`."""
        if self._stopped.is_set():
            raise AirflowRequestError("stopped")
        self._check_alive()

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """JSON of the answer; to read is tried again while the database is busy. Raises AirflowRequestError for every
        status but 2xx."""
        tries = BUSY_TRIES if method == "GET" else 1
        while True:
            try:
                return self._call(method, path, body)
            except AirflowRequestError as error:
                tries -= 1
                if error.status not in BUSY or not tries:
                    raise
            time.sleep(BUSY_PAUSE_S)

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        self.check()
        request = urllib.request.Request(  # noqa: S310
            f"{self.url}/api/v2{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Accept": "application/json", **self._signed_in},
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:  # noqa: S310
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")[:1000]
            raise AirflowRequestError(f"{method} {path}: {error.code} {text}", error.code) from None
        except (TimeoutError, ConnectionResetError) as error:
            how = f"within {ANSWER_S:g} s" if isinstance(error, TimeoutError) else "before the connection was closed"
            message = f"{method} {path}: no answer {how}"
            raise AirflowRequestError(message, HTTPStatus.GATEWAY_TIMEOUT) from None

    def healthy(self) -> bool:
        """Whether database, scheduler and DAG processor all report themselves healthy."""
        try:
            health = self.call("GET", "/monitor/health")
        except (OSError, AirflowRequestError):
            return False
        return all(health[part]["status"] == "healthy" for part in ("metadatabase", "scheduler", "dag_processor"))

    def wait_for_scheduler(self, since: datetime, patience_s: float) -> None:
        """Return once the scheduler has gone through its loop after ``since``: it has taken what the executor told it
        until then. Raises AirflowRequestError when that takes too long."""
        deadline = time.monotonic() + patience_s
        while True:
            beat = self.call("GET", "/monitor/health")["scheduler"]["latest_scheduler_heartbeat"]
            if beat is not None and datetime.fromisoformat(beat) > since:
                return
            if time.monotonic() > deadline:
                raise AirflowRequestError(f"no heartbeat of the scheduler since {since}; the last one: {beat}")
            time.sleep(0.5)

    def dag_ids(self) -> set[str]:
        return {dag["dag_id"] for dag in self.call("GET", "/dags?limit=1000")["dags"]}

    def import_errors(self) -> list[str]:
        return [error["stack_trace"] for error in self.call("GET", "/importErrors")["import_errors"]]

    def wait_for_dags(self, wanted: set[str], patience_s: float = 120.0) -> None:
        """Return once all of them are known. Raises AirflowRequestError when that takes too long."""
        deadline = time.monotonic() + patience_s
        while missing := wanted - self.dag_ids():
            if time.monotonic() > deadline:
                errors = "\n".join(self.import_errors()) or "no import errors"
                raise AirflowRequestError(f"no DAG {', '.join(sorted(missing))} after {patience_s:.0f} s: {errors}")
            time.sleep(0.3)

    def backfill(self, dag_id: str, first: str, last: str, at_once: int = 1) -> int:
        """Create a run for each interval from ``first`` to ``last`` (dates, both included), in order; Airflow starts
        ``at_once`` of them side by side.
        Waits while an older backfill of the DAG is closing. The DAG is paused until all runs are there: of a backfill
        that finds SQLite locked Airflow deletes the runs again, and a scheduler that has taken one of them ends.
        For the same reason runs that ended are run again with :meth:`clear`, not by a backfill that replaces them.
        Two at once would lock each other out of it."""
        body: dict[str, Any] = {
            "dag_id": dag_id,
            "from_date": f"{first}T00:00:00Z",
            "to_date": f"{last}T00:00:00Z",
            "reprocess_behavior": "none",
            "max_active_runs": at_once,
            "run_backwards": False,
            "dag_run_conf": {},
        }
        self.wait_for_backfills(dag_id)
        with self._one_at_a_time:
            self.pause(dag_id, True)
            try:
                return int(self._write("/backfills", body, self._open_backfill, dag_id)["id"])
            finally:
                self.pause(dag_id, False)

    def pause(self, dag_id: str, paused: bool = True) -> None:
        """Stop or start the scheduling of a DAG."""
        path = f"/dags/{dag_id}"
        self._write(path, {"is_paused": paused}, partial(self._found_paused, paused), path, method="PATCH")

    def _found_paused(self, paused: bool, path: str) -> Any:
        dag = self.call("GET", path)
        return dag if dag["is_paused"] is paused else None

    def _open_backfill(self, dag_id: str) -> Any:
        """The one open backfill of a DAG; None if there is none."""
        path = f"/backfills?dag_id={urllib.parse.quote(dag_id)}"
        return next((b for b in self.call("GET", path)["backfills"] if b["completed_at"] is None), None)

    def _write(
        self, path: str, body: Mapping[str, Any], made: Callable[[str], Any], name: str, method: str = "POST"
    ) -> Any:
        """Ask for a change, again while the database is busy. A failed try may have worked all the same:
        ``made(name)`` finds what it made, None if nothing."""
        for _ in range(BUSY_TRIES):
            try:
                return self.call(method, path, body)
            except AirflowRequestError as error:
                if error.status not in BUSY:
                    raise
            time.sleep(BUSY_PAUSE_S)
            if found := made(name):
                return found
        raise AirflowRequestError(f"{method} {path}: Airflow's database stayed locked", HTTPStatus.SERVICE_UNAVAILABLE)

    def wait_for_backfills(self, dag_id: str, patience_s: float = 90.0) -> None:
        """Airflow closes a backfill up to 30 s after its last run, and allows one a DAG."""
        deadline = time.monotonic() + patience_s
        while self._open_backfill(dag_id):
            if time.monotonic() > deadline:
                raise AirflowRequestError(f"a backfill of {dag_id} is still open after {patience_s:.0f} s")
            time.sleep(0.5)

    def trigger(self, dag_id: str, conf: Mapping[str, Any], logical_date: str | None = None) -> str:
        """Start one run; returns its id, chosen here so that a repeated request starts no second one."""
        run_id = f"by_hand__{datetime.now(UTC).isoformat()}"
        body = {"dag_run_id": run_id, "logical_date": logical_date, "conf": dict(conf)}
        self._write(f"/dags/{dag_id}/dagRuns", body, partial(self._run_or_none, dag_id), run_id)
        return run_id

    def _run_or_none(self, dag_id: str, run_id: str) -> Run | None:
        return next((run for run in self.runs(dag_id) if run.run_id == run_id), None)

    def clear(self, dag_id: str, run_id: str) -> None:
        """Run all tasks of a run again."""
        path = f"/dags/{dag_id}/dagRuns/{urllib.parse.quote(run_id, safe='')}/clear"
        self._write(path, {"dry_run": False, "only_failed": False}, lambda _: None, run_id)

    def fail(self, dag_id: str, run_id: str) -> None:
        """Mark a run as failed: what it runs is ended."""
        path = f"/dags/{dag_id}/dagRuns/{urllib.parse.quote(run_id, safe='')}"
        self._write(path, {"state": "failed"}, lambda _: None, run_id, method="PATCH")

    def run(self, dag_id: str, run_id: str) -> Run:
        return _run(self.call("GET", f"/dags/{dag_id}/dagRuns/{urllib.parse.quote(run_id, safe='')}"))

    def runs(self, dag_id: str) -> list[Run]:
        """All runs of a DAG, by data interval."""
        answer = self.call("GET", f"/dags/{dag_id}/dagRuns?limit=1000")
        return sorted(map(_run, answer["dag_runs"]), key=lambda r: r.start or datetime.max.replace(tzinfo=UTC))

    def wait_for_run(
        self, dag_id: str, run_id: str, patience_s: float = 300.0, meanwhile: Callable[[], None] = lambda: None
    ) -> Run:
        """The finished run; ``meanwhile()`` is called at every look. Raises AirflowRequestError when that takes too
        long."""
        deadline = time.monotonic() + patience_s
        while (run := self.run(dag_id, run_id)).state not in FINISHED:
            if time.monotonic() > deadline:
                raise AirflowRequestError(f"{dag_id} {run_id} is still {run.state} after {patience_s:.0f} s")
            meanwhile()
            time.sleep(0.4)
        return run

    def question(self, run: Run, task_id: str) -> dict[str, Any]:
        """What a task that awaits input asks a person: subject, Markdown body, options."""
        return dict(self.call("GET", f"{_path(run.dag_id, run.run_id)}/{task_id}/-1/hitlDetails"))

    def answer(self, run: Run, task_id: str, option: str) -> None:
        """Answer as a person would in Airflow's UI."""
        path = f"{_path(run.dag_id, run.run_id)}/{task_id}/-1/hitlDetails"
        for _ in range(BUSY_TRIES):
            try:
                self.call("PATCH", path, {"chosen_options": [option], "params_input": {}})
                return
            except AirflowRequestError as error:
                if error.status == HTTPStatus.CONFLICT:
                    return  # the try before was heard
                if error.status not in BUSY:
                    raise
            time.sleep(BUSY_PAUSE_S)

    def task_states(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        return {task["task_id"]: task["state"] for task in self._tasks(dag_id, run_id)}

    def tries(self, run: Run) -> dict[str, int]:
        """Number of the last try of each task."""
        return {task["task_id"]: task["try_number"] for task in self._tasks(run.dag_id, run.run_id)}

    def xcom(self, run: Run, task_id: str, key: str = "return_value") -> Any:
        """What a task left behind; None if it left nothing."""
        path = f"{_path(run.dag_id, run.run_id)}/{task_id}/xcomEntries/{key}"
        try:
            return self.call("GET", path)["value"]
        except AirflowRequestError:
            return None

    def failed_log(self, run: Run, lines: int = 40) -> str:
        """The end of the log of the task that failed, for people."""
        for task in self._tasks(run.dag_id, run.run_id):
            if task["state"] == "failed":
                path = f"{_path(run.dag_id, run.run_id)}/{task['task_id']}/logs/{task['try_number']}"
                path += f"?full_content=true&map_index={task['map_index']}"
                text = list(_log_lines(self.call("GET", path)["content"]))
                return "\n".join([f"task {task['task_id']}, try {task['try_number']}:", *text[-lines:]])
        return "no task failed"

    def _tasks(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        answer = self.call("GET", _path(dag_id, run_id))
        return list(answer["task_instances"])


def _path(dag_id: str, run_id: str) -> str:
    return f"/dags/{dag_id}/dagRuns/{urllib.parse.quote(run_id, safe='')}/taskInstances"


def _run(body: Mapping[str, Any]) -> Run:
    moments = (body["data_interval_start"], body["start_date"], body["end_date"])
    start, began, ended = (datetime.fromisoformat(m) if m else None for m in moments)
    return Run(body["dag_id"], body["dag_run_id"], body["state"], start, began, ended)


def _log_lines(content: Any) -> Iterator[str]:
    for entry in content if isinstance(content, list) else [content]:
        if not isinstance(entry, dict):
            yield str(entry)
            continue
        yield str(entry.get("event", ""))
        for detail in entry.get("error_detail") or ():
            yield f"  {detail.get('exc_type')}: {detail.get('exc_value')}"
