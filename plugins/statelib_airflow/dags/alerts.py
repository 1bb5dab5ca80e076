"""The alerts of DAGs: the notifiers that are called, and the deadlines of a run."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from statelib.definition.parts.durations import milliseconds
from statelib.definition.parts.model import Notify
from statelib_airflow.airflow_internals import deadline_alert
from statelib_airflow.notifications import StatelibNotifier


def notifiers(name: str, entries: Iterable[Notify]) -> list[dict[str, Any]]:
    """Return the arguments of a StatelibNotifier per entry of ``alerts.notify``; without entries, of one that logs.
    ``name``: the pipeline or group that the alert names."""
    chosen = [{"notifier": entry.notifier, "arguments": dict(entry.arguments)} for entry in entries]
    return [{"pipeline": name, **notifier} for notifier in chosen or [{}]]


def deadlines(wanted: Iterable[tuple[str, dict[str, Any]]]) -> list[Any] | None:
    """Return the deadlines of a run as Airflow takes them. ``wanted``: per deadline the longest duration, as in
    ``alerts.deadline``, and the arguments of its notifier.

    They are counted from when the run was queued, because intervals of a backfill lie in the past."""
    return [
        deadline_alert(timedelta(milliseconds=milliseconds(longest)), StatelibNotifier, arguments)
        for longest, arguments in wanted
    ] or None
