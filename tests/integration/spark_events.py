"""Spark's own record of its tasks: the event log of one application, as far as it is written."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Event = Mapping[str, Any]


def settings(directory: Path) -> list[str]:
    """Return the arguments of spark-submit by which the log is written to this directory, as one plain file."""
    conf = {"enabled": "true", "dir": f"file://{directory}", "rolling.enabled": "false", "compress": "false"}
    return [argument for name, value in conf.items() for argument in ("--conf", f"spark.eventLog.{name}={value}")]


@dataclass(frozen=True)
class Task:
    """The start of a task attempt. ``task`` is its id, unique in the application; ``partition`` its subtask."""

    stage: int
    stage_attempt: int
    partition: int
    task: int
    executor: str
    speculative: bool


@dataclass(frozen=True)
class EventLog:
    """The events of an application in the order in which they happened."""

    events: tuple[Event, ...]

    @staticmethod
    def of(directory: Path) -> "EventLog":
        (log,) = directory.iterdir()
        lines = log.read_text().splitlines(keepends=True)
        return EventLog(tuple(json.loads(line) for line in lines if line.endswith("\n")))

    def started(self) -> list[Task]:
        return [_task(event) for event in self._all("TaskStart")]

    def succeeded(self) -> set[int]:
        """Return the ids of the tasks that succeeded."""
        ended = self._all("TaskEnd")
        return {e["Task Info"]["Task ID"] for e in ended if e["Task End Reason"]["Reason"] == "Success"}

    def failures(self) -> set[str]:
        """Return the reasons of failed tasks, in Spark's words."""
        return {event["Task End Reason"]["Reason"] for event in self._all("TaskEnd")} - {"Success"}

    def stages(self, what: str = "Submitted") -> list[Event]:
        """Return every attempt at a stage, in the order in which they were submitted or completed."""
        return [event["Stage Info"] for event in self._all(f"Stage{what}")]

    def lost_executors(self) -> set[str]:
        return {event["Executor ID"] for event in self._all("ExecutorRemoved")}

    def _all(self, name: str) -> Iterator[Event]:
        return (event for event in self.events if event["Event"] == f"SparkListener{name}")


def _task(event: Event) -> Task:
    info = event["Task Info"]
    return Task(
        stage=event["Stage ID"],
        stage_attempt=event["Stage Attempt ID"],
        partition=info["Partition ID"],
        task=info["Task ID"],
        executor=info["Executor ID"],
        speculative=info["Speculative"],
    )
