"""Client for the calls of Airflow's REST API that the demonstration and the tests make."""

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
"""Statuses after which a request is repeated. On SQLite, a request can fail with one of the first two while another one
writes. The third stands for a request that got no answer."""


class AirflowRequestError(RuntimeError):
    """Airflow refused a request. The message contains its answer; ``status`` is 0 if there was none."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Run:
    """One DAG run as the API shows it. ``start`` is the start of its data interval; ``began`` and ``ended`` are when
    the run itself did."""

    dag_id: str
    run_id: str
    state: str
    start: datetime | None
    began: datetime | None
    ended: datetime | None

    @property
    def seconds(self) -> float:
        """Return how long the run took; 0 if it has not ended."""
        return (self.ended - self.began).total_seconds() if self.began and self.ended else 0.0


class AirflowClient:
    """Client of an API server on 127.0.0.1. ``token`` is the bearer token of a user; without one, the server must admit
    everybody."""

    def __init__(self, url: str, check_alive: Callable[[], None] = lambda: None, token: str = "") -> None:
        """Make a client. ``check_alive`` raises when a component of that Airflow has ended, so that no request waits
        for it in vain."""
        self.url = url
        self._authorization = {"Authorization": f"Bearer {token}"} if token else {}
        self._check_alive = check_alive
        self._one_at_a_time = threading.Lock()
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Make every later call, on any thread, raise AirflowRequestError."""
        self._stopped.set()

    def check(self) -> None:
        """Raise if a component of that Airflow has ended, or after :meth:`stop`."""
        if self._stopped.is_set():
            raise AirflowRequestError("stopped")
        self._check_alive()

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the decoded JSON of the answer. A GET is repeated while the database is busy. Raises
        AirflowRequestError for every status but 2xx."""
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
            headers={"Content-Type": "application/json", "Accept": "application/json", **self._authorization},
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
        """Return whether database, scheduler and DAG processor are all reported healthy."""
        try:
            health = self.call("GET", "/monitor/health")
        except (OSError, AirflowRequestError):
            return False
        return all(health[part]["status"] == "healthy" for part in ("metadatabase", "scheduler", "dag_processor"))

    def wait_for_scheduler(self, since: datetime, patience_s: float) -> None:
        """Return once the scheduler's loop has run after ``since``, so that it has processed every event of the
        executor until then. Raises AirflowRequestError when that takes too long."""
        deadline = time.monotonic() + patience_s
        while True:
            beat = self.call("GET", "/monitor/health")["scheduler"]["latest_scheduler_heartbeat"]
            if beat is not None and datetime.fromisoformat(beat) > since:
                return
            if time.monotonic() > deadline:
                raise AirflowRequestError(f"no heartbeat of the scheduler since {since}; the last one: {beat}")
            time.sleep(0.5)

    def dag_ids(self) -> set[str]:
        """Return the ids of all DAGs that Airflow has read."""
        return {dag["dag_id"] for dag in self.call("GET", "/dags?limit=1000")["dags"]}

    def import_errors(self) -> list[str]:
        """Return the stack trace of each DAG file that Airflow could not import."""
        return [error["stack_trace"] for error in self.call("GET", "/importErrors")["import_errors"]]

    def wait_for_dags(self, wanted: set[str], patience_s: float = 300.0) -> None:
        """Return once Airflow has read all the ``wanted`` DAGs. Raises AirflowRequestError when that takes too long."""
        deadline = time.monotonic() + patience_s
        while missing := wanted - self.dag_ids():
            if time.monotonic() > deadline:
                errors = "\n".join(self.import_errors()) or "no import errors"
                raise AirflowRequestError(f"no DAG {', '.join(sorted(missing))} after {patience_s:.0f} s: {errors}")
            time.sleep(0.3)

    def backfill(self, dag_id: str, first: str, last: str, at_once: int = 1) -> int:
        """Create a run for each interval from ``first`` to ``last`` (dates, both included), in order, and return the id
        of the backfill. Airflow starts up to ``at_once`` of the runs side by side.

        Waits while an older backfill of the DAG is closing. The DAG is paused until all runs are created: if a backfill
        meets a locked SQLite, Airflow deletes the runs again, and a scheduler that has started one of them ends. For
        the same reason, runs that have ended are run again with :meth:`clear`, not by a backfill that replaces them.
        Backfills are created one at a time, because two would lock each other out of SQLite."""
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
        """Pause the scheduling of a DAG, or resume it."""
        path = f"/dags/{dag_id}"
        self._write(path, {"is_paused": paused}, partial(self._dag_if_paused_is, paused), path, method="PATCH")

    def _dag_if_paused_is(self, paused: bool, path: str) -> Any:
        """Return the DAG if it is paused, or not paused, as wanted; None otherwise."""
        dag = self.call("GET", path)
        return dag if dag["is_paused"] is paused else None

    def _open_backfill(self, dag_id: str) -> Any:
        """Return the one open backfill of a DAG; None if there is none."""
        path = f"/backfills?dag_id={urllib.parse.quote(dag_id)}"
        return next((b for b in self.call("GET", path)["backfills"] if b["completed_at"] is None), None)

    def _write(
        self, path: str, body: Mapping[str, Any], find_made: Callable[[str], Any], name: str, method: str = "POST"
    ) -> Any:
        """Send a change, again while the database is busy, and return the answer. A failed try may have worked all the
        same: ``find_made(name)`` returns what it made, None if nothing."""
        for _ in range(BUSY_TRIES):
            try:
                return self.call(method, path, body)
            except AirflowRequestError as error:
                if error.status not in BUSY:
                    raise
            time.sleep(BUSY_PAUSE_S)
            if made := find_made(name):
                return made
        raise AirflowRequestError(f"{method} {path}: Airflow's database stayed locked", HTTPStatus.SERVICE_UNAVAILABLE)

    def wait_for_backfills(self, dag_id: str, patience_s: float = 300.0) -> None:
        """Return once no backfill of the DAG is open. Airflow allows one open backfill per DAG, and closes it up to 30
        s after its last run. Raises AirflowRequestError when that takes too long."""
        deadline = time.monotonic() + patience_s
        while self._open_backfill(dag_id):
            if time.monotonic() > deadline:
                raise AirflowRequestError(f"a backfill of {dag_id} is still open after {patience_s:.0f} s")
            time.sleep(0.5)

    def trigger(self, dag_id: str, conf: Mapping[str, Any], logical_date: str | None = None) -> str:
        """Start one run and return its id. The id is chosen here, so that a repeated request starts no second run."""
        run_id = f"by_hand__{datetime.now(UTC).isoformat()}"
        body = {"dag_run_id": run_id, "logical_date": logical_date, "conf": dict(conf)}
        self._write(f"/dags/{dag_id}/dagRuns", body, partial(self._run_or_none, dag_id), run_id)
        return run_id

    def _run_or_none(self, dag_id: str, run_id: str) -> Run | None:
        """Return the run; None if there is none of this id."""
        return next((run for run in self.runs(dag_id) if run.run_id == run_id), None)

    def clear(self, dag_id: str, run_id: str) -> None:
        """Run all tasks of a run again."""
        path = f"/dags/{dag_id}/dagRuns/{urllib.parse.quote(run_id, safe='')}/clear"
        self._write(path, {"dry_run": False, "only_failed": False}, lambda _: None, run_id)

    def fail(self, dag_id: str, run_id: str) -> None:
        """Mark a run as failed. Airflow ends its running tasks."""
        path = f"/dags/{dag_id}/dagRuns/{urllib.parse.quote(run_id, safe='')}"
        self._write(path, {"state": "failed"}, lambda _: None, run_id, method="PATCH")

    def run(self, dag_id: str, run_id: str) -> Run:
        """Return one run as it is now. Raises AirflowRequestError if there is none of this id."""
        return _run(self.call("GET", f"/dags/{dag_id}/dagRuns/{urllib.parse.quote(run_id, safe='')}"))

    def runs(self, dag_id: str) -> list[Run]:
        """Return all runs of a DAG in the order of their data intervals; runs without an interval come last."""
        answer = self.call("GET", f"/dags/{dag_id}/dagRuns?limit=1000")
        return sorted(map(_run, answer["dag_runs"]), key=lambda r: r.start or datetime.max.replace(tzinfo=UTC))

    def wait_for_run(
        self, dag_id: str, run_id: str, patience_s: float = 300.0, meanwhile: Callable[[], None] = lambda: None
    ) -> Run:
        """Return the run once it has finished. ``meanwhile()`` is called before each further look. Raises
        AirflowRequestError when that takes too long."""
        deadline = time.monotonic() + patience_s
        while (run := self.run(dag_id, run_id)).state not in FINISHED:
            if time.monotonic() > deadline:
                tasks = self.task_states(dag_id, run_id)
                raise AirflowRequestError(f"{dag_id} {run_id} is {run.state} after {patience_s:.0f} s; tasks: {tasks}")
            meanwhile()
            time.sleep(1)
        return run

    def question(self, run: Run, task_id: str) -> dict[str, Any]:
        """Return the question of a task that awaits input: subject, Markdown body, options."""
        return dict(self.call("GET", f"{_path(run.dag_id, run.run_id)}/{task_id}/-1/hitlDetails"))

    def answer(self, run: Run, task_id: str, option: str) -> None:
        """Answer the question of a task that awaits input, as a person does in Airflow's UI."""
        path = f"{_path(run.dag_id, run.run_id)}/{task_id}/-1/hitlDetails"
        for _ in range(BUSY_TRIES):
            try:
                self.call("PATCH", path, {"chosen_options": [option], "params_input": {}})
                return
            except AirflowRequestError as error:
                if error.status == HTTPStatus.CONFLICT:
                    return  # an earlier try was accepted, although its request failed
                if error.status not in BUSY:
                    raise
            time.sleep(BUSY_PAUSE_S)

    def task_states(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        """Return the state of each task of a run by task id; None for a task that is not scheduled yet."""
        return {task["task_id"]: task["state"] for task in self._tasks(dag_id, run_id)}

    def tries(self, run: Run) -> dict[str, int]:
        """Return the number of the last try of each task."""
        return {task["task_id"]: task["try_number"] for task in self._tasks(run.dag_id, run.run_id)}

    def xcom(self, run: Run, task_id: str, key: str = "return_value") -> Any:
        """Return the value that a task pushed under ``key``; None if Airflow has none."""
        path = f"{_path(run.dag_id, run.run_id)}/{task_id}/xcomEntries/{key}"
        try:
            return self.call("GET", path)["value"]
        except AirflowRequestError:
            return None

    def log(self, run: Run, task_id: str, number: int = 1, map_index: int = -1) -> list[str]:
        """Return the lines of the log of a try of a task, for people to read."""
        path = f"{_path(run.dag_id, run.run_id)}/{task_id}/logs/{number}?full_content=true&map_index={map_index}"
        return list(_log_lines(self.call("GET", path)["content"]))

    def failed_log(self, run: Run, lines: int = 40) -> str:
        """Return the last ``lines`` of the log of the first task that failed, for people to read."""
        for task in self._tasks(run.dag_id, run.run_id):
            if task["state"] == "failed":
                text = self.log(run, task["task_id"], task["try_number"], task["map_index"])
                return "\n".join([f"task {task['task_id']}, try {task['try_number']}:", *text[-lines:]])
        return "no task failed"

    def _tasks(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        answer = self.call("GET", _path(dag_id, run_id))
        return list(answer["task_instances"])


def _path(dag_id: str, run_id: str) -> str:
    """Return the API path of the task instances of a run."""
    return f"/dags/{dag_id}/dagRuns/{urllib.parse.quote(run_id, safe='')}/taskInstances"


def _run(body: Mapping[str, Any]) -> Run:
    """Return the run that the API describes in ``body``."""
    moments = (body["data_interval_start"], body["start_date"], body["end_date"])
    start, began, ended = (datetime.fromisoformat(m) if m else None for m in moments)
    return Run(body["dag_id"], body["dag_run_id"], body["state"], start, began, ended)


def _log_lines(content: Any) -> Iterator[str]:
    """Yield the lines of a task log: the message of each entry, and the exceptions that belong to it."""
    for entry in content if isinstance(content, list) else [content]:
        if not isinstance(entry, dict):
            yield str(entry)
            continue
        yield str(entry.get("event", ""))
        for detail in entry.get("error_detail") or ():
            yield f"  {detail.get('exc_type')}: {detail.get('exc_value')}"
