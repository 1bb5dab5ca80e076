"""All metrics, and the port that receives their values. Dashboards use names and tags: add new ones, change none.

There are few tags, each with few values, so that there is one time series per pipeline, not one per checkpoint.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

log = logging.getLogger(__name__)

Tags = Mapping[str, str]


class MetricKind(StrEnum):
    """The way in which a receiver combines the values of a metric."""

    COUNTER = "counter"
    """The values are added."""
    GAUGE = "gauge"
    """The last value counts."""
    TIMING = "timing"
    """The values are milliseconds; the receiver computes their distribution."""


@dataclass(frozen=True)
class Metric:
    """The description of one metric. ``tags``: the names of the tags that each of its values has."""

    name: str
    kind: MetricKind
    unit: str
    """The unit in the notation of OpenTelemetry (UCUM)."""
    meaning: str
    tags: tuple[str, ...]


class Telemetry(Protocol):
    """The port that receives the values of metrics. An implementation may do nothing. It must not wait for the
    network."""

    def emit(self, metric: Metric, value: float, tags: Tags) -> None: ...


class NoTelemetry:
    """A :class:`Telemetry` that discards all values."""

    def emit(self, metric: Metric, value: float, tags: Tags) -> None: ...


class Harmless:
    """A :class:`Telemetry` that passes values to another one and never raises: the first error of that one is logged,
    later errors are ignored."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._failed = False

    def emit(self, metric: Metric, value: float, tags: Tags) -> None:
        try:
            self._telemetry.emit(metric, value, tags)
        except Exception as error:  # noqa: BLE001 - an error of any type must not stop the checkpoint
            if not self._failed:
                log.warning("metrics cannot be sent, from %s on: %s", metric.name, error)
            self._failed = True


_OF_CHECKPOINT = ("pipeline", "kind", "strategy")
_OF_PIPELINE = ("pipeline",)
_COUNTER, _GAUGE, _TIMING = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.TIMING


def _timing(name: str, meaning: str) -> Metric:
    return Metric(f"statelib.checkpoint.{name}", _TIMING, "ms", meaning, _OF_CHECKPOINT)


def _gauge(name: str, unit: str, meaning: str) -> Metric:
    return Metric(f"statelib.checkpoint.{name}", _GAUGE, unit, meaning, _OF_CHECKPOINT)


def _counter(name: str, unit: str, meaning: str) -> Metric:
    return Metric(f"statelib.checkpoint.{name}", _COUNTER, unit, meaning, _OF_CHECKPOINT)


COMPLETED = _counter("completed", "{checkpoint}", "checkpoints and savepoints that were registered")
FAILURES = Metric(
    "statelib.checkpoint.failures",
    _COUNTER,
    "{checkpoint}",
    "checkpoints and savepoints that were aborted, by reason code; CHECKPOINT_SUBSUMED: a newer checkpoint replaced it",
    (*_OF_CHECKPOINT, "reason"),
)
DURATION = _timing("duration", "time from begin to commit")
SYNC_DURATION = _timing("sync_duration", "synchronous part of the slowest subtask")
ASYNC_DURATION = _timing("async_duration", "asynchronous part of the slowest subtask")
UPLOAD_DURATION = _timing(
    "upload_duration", "part of the asynchronous time spent waiting for storage, in the slowest subtask"
)
RESTORE_DURATION = _timing("restore_duration", "time that the slowest subtask took to restore its state")
LAG = _gauge("lag", "ms", "time from the end of the data interval to the commit")
SIZE = _gauge("size_bytes", "By", "size of all files that the checkpoint needs")
UPLOADED = _gauge("uploaded_bytes", "By", "bytes written for this checkpoint")
KEYS = _gauge(
    "keys", "{key}", "distinct keys that have an entry in any state (timers are not counted); not sent if not counted"
)
ENTRIES = _gauge("entries", "{entry}", "entries of all states together")
KEYS_CHANGED = _gauge("keys_changed", "{key}", "distinct keys that events or timers of the interval wrote")
STATE_ENTRIES = Metric(
    "statelib.checkpoint.state_entries", _GAUGE, "{entry}", "entries of one state", (*_OF_CHECKPOINT, "state")
)
EVENTS = _counter("events", "{event}", "events of the interval that were applied")
EVENTS_DROPPED = _counter("events_dropped", "{event}", "events without a key, dropped because of on_null_key: drop")
EVENTS_LATE = _counter(
    "events_late", "{event}", "events that came too late for all their windows, summed over all states"
)
EVENTS_WITHOUT_USER_KEY = _counter(
    "events_without_user_key",
    "{event}",
    "events that a map left out because they have no user key, summed over all states",
)
EVENTS_PER_SECOND = _gauge("events_per_second", "{event}/s", "applied events divided by the time from begin to commit")
RESTORES = Metric("statelib.restore.completed", _COUNTER, "{restore}", "restores of the pipeline", _OF_PIPELINE)
CHECKS = Metric(
    "statelib.gate.checks",
    _COUNTER,
    "{check}",
    "checks of the gate: severity is fail, quarantine or warn, result is passed or failed",
    (*_OF_PIPELINE, "severity", "result"),
)
VERIFIED = Metric(
    "statelib.verify.checkpoints",
    _COUNTER,
    "{checkpoint}",
    "completed checkpoints and savepoints that state_verify checked",
    _OF_PIPELINE,
)
VERIFIED_BYTES = Metric(
    "statelib.verify.read_bytes",
    _COUNTER,
    "By",
    "bytes that state_verify read and compared with the checksums",
    _OF_PIPELINE,
)
FAULTS = Metric(
    "statelib.verify.faults", _GAUGE, "{fault}", "faults that the last run of state_verify found", _OF_PIPELINE
)
DELETED_FILES = Metric("statelib.gc.deleted_files", _COUNTER, "{file}", "files that gc deleted", _OF_PIPELINE)
DELETED_BYTES = Metric("statelib.gc.deleted_bytes", _COUNTER, "By", "size of the files that gc deleted", _OF_PIPELINE)
ORPHANS = Metric("statelib.gc.orphan_files", _GAUGE, "{file}", "orphans that the last sweep found", _OF_PIPELINE)
ORPHAN_BYTES = Metric(
    "statelib.gc.orphan_bytes", _GAUGE, "By", "size of the orphans that the last sweep found", _OF_PIPELINE
)

METRICS = (
    COMPLETED, FAILURES, DURATION, SYNC_DURATION, ASYNC_DURATION, UPLOAD_DURATION, RESTORE_DURATION, LAG, SIZE,
    UPLOADED, KEYS, ENTRIES, KEYS_CHANGED, STATE_ENTRIES, EVENTS, EVENTS_DROPPED, EVENTS_LATE,
    EVENTS_WITHOUT_USER_KEY, EVENTS_PER_SECOND, RESTORES, CHECKS, VERIFIED, VERIFIED_BYTES, FAULTS, DELETED_FILES,
    DELETED_BYTES, ORPHANS, ORPHAN_BYTES,
)  # fmt: skip
"""All metrics, in the order of the documentation."""
