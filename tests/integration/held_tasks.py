"""A user function that makes Spark's task attempts slow: chosen attempts wait in their processes, once they have
written their snapshot and before they acknowledge it.

Executors import it; what is held, and who came there, are files of the directory that ``HELD_TASKS`` names."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from statelib import crash_points

DIRECTORY = "HELD_TASKS"
POINT = "subtask: snapshot taken"


def update(events: pa.Table, state: pa.Table) -> pa.Table:
    """Count the events of each shop. From now on this process reports its attempts and makes them wait."""
    if _reached not in crash_points.armed:
        crash_points.armed.append(_reached)
    result = events.group_by("shop").aggregate([("item", "count")])
    new = result["item_count"].take(pc.index_in(state["shop"], value_set=result["shop"].combine_chunks()))
    return pa.table({"shop": state["shop"], "events": pc.add(pc.fill_null(state["events"], 0), new)})


def _reached(name: str) -> None:
    context = TaskContext.get()
    if name != POINT or context is None:
        return
    came = {"task": context.taskAttemptId(), **_executor()}
    place = _first_free(Path(os.environ[DIRECTORY]), f"{context.partitionId()}-{context.attemptNumber()}", came)
    while (place.parent / f"hold-{place.name}").exists():
        time.sleep(0.02)


def _executor() -> dict[str, str | int]:
    for process in psutil.Process().parents():
        line = process.cmdline()
        if "--executor-id" in line:
            return {"executor": line[line.index("--executor-id") + 1], "pid": process.pid}
    raise AssertionError("a task runs below an executor")


def _first_free(directory: Path, attempt: str, came: dict[str, str | int]) -> Path:
    written = directory / f"new-{os.getpid()}"
    written.write_text(json.dumps(came))
    for number in count():
        try:
            os.link(written, directory / f"{attempt}-{number}")
        except FileExistsError:
            continue
        written.unlink()
        return directory / f"{attempt}-{number}"
    raise AssertionError


@dataclass(frozen=True)
class Came:
    """A task attempt that has written its snapshot: Spark's id of the attempt, the id of its executor, and the
    executor's process id."""

    task: int
    executor: str
    pid: int


@dataclass(frozen=True)
class Held:
    """The test's side of the directory. The name of an attempt is ``<subtask>-<Spark's number of the attempt>-<n>``:
    a copy or a retry of a task has another number, but in a stage that is run once more the numbers begin at 0
    again, so ``n`` counts the attempts of the same number, from 0."""

    directory: Path

    @contextmanager
    def holding(self, *attempts: str) -> Iterator[None]:
        """Hold attempts until the block ends; then all of them continue."""
        for name in attempts:
            (self.directory / f"hold-{name}").touch()
        try:
            yield
        finally:
            for name in attempts:
                self.release(name)

    def release(self, name: str) -> None:
        (self.directory / f"hold-{name}").unlink(missing_ok=True)

    def came(self, name: str) -> Came | None:
        """Return the attempt, or None as long as it has not written its snapshot."""
        try:
            return Came(**json.loads((self.directory / name).read_text()))
        except FileNotFoundError:
            return None
