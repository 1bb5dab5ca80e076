"""Every metric there is, and the port that takes their values. Names and tags are for dashboards: they only grow.

Tags are few and have few values, so that a time series is a pipeline's, not a checkpoint's.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

log = logging.getLogger(__name__)

Tags = Mapping[str, str]


class MetricKind(StrEnum):
    COUNTER = "counter"
    """Values are added up."""
    GAUGE = "gauge"
    """The last value stands."""
    TIMING = "timing"
    """Milliseconds; receivers keep their distribution."""


@dataclass(frozen=True)
class Metric:
    name: str
    kind: MetricKind
    unit: str
    """As OpenTelemetry writes it (UCUM)."""
    meaning: str
    tags: tuple[str, ...]


class Telemetry(Protocol):
    """Takes values. May do nothing; must not wait for a receiver."""

    def emit(self, metric: Metric, value: float, tags: Tags) -> None: ...


class NoTelemetry:
    """Nobody listens."""

    def emit(self, metric: Metric, value: float, tags: Tags) -> None: ...


class Harmless:
    """A :class:`Telemetry` whose receiver may fail as it likes: the first failure is logged, none is raised."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._failed = False

    def emit(self, metric: Metric, value: float, tags: Tags) -> None:
        try:
            self._telemetry.emit(metric, value, tags)
        except Exception as error:  # noqa: BLE001 - whatever it is, the checkpoint matters more
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
    "checkpoints and savepoints that were aborted, by reason code; CHECKPOINT_SUBSUMED: a newer one took over",
    (*_OF_CHECKPOINT, "reason"),
)
DURATION = _timing("duration", "from begin to the commit")
SYNC_DURATION = _timing("sync_duration", "synchronous part of the slowest subtask")
ASYNC_DURATION = _timing("async_duration", "asynchronous part of the slowest subtask")
UPLOAD_DURATION = _timing("upload_duration", "of the asynchronous part, how long storage took, in the slowest subtask")
RESTORE_DURATION = _timing("restore_duration", "how long the slowest subtask restored its state before it began")
LAG = _gauge("lag", "ms", "from the end of the data interval to the commit: how old the state is when it is there")
SIZE = _gauge("size_bytes", "By", "all files that the checkpoint needs")
UPLOADED = _gauge("uploaded_bytes", "By", "what was written for this checkpoint")
KEYS = _gauge("keys", "{key}", "distinct keys that have state, whichever; not sent where not known")
ENTRIES = _gauge("entries", "{entry}", "entries of all states together")
KEYS_CHANGED = _gauge("keys_changed", "{key}", "distinct keys that events or timers of the interval wrote")
STATE_ENTRIES = Metric(
    "statelib.checkpoint.state_entries", _GAUGE, "{entry}", "entries of one state", (*_OF_CHECKPOINT, "state")
)
EVENTS = _counter("events", "{event}", "events of the interval that were applied")
EVENTS_DROPPED = _counter("events_dropped", "{event}", "events without a key, which on_null_key: drop left out")
EVENTS_LATE = _counter("events_late", "{event}", "events that came too late for all their windows, of all states")
EVENTS_PER_SECOND = _gauge("events_per_second", "{event}/s", "applied events by the time from begin to the commit")
RESTORES = Metric(
    "statelib.restore.completed", _COUNTER, "{restore}", "how often the pipeline was put back", _OF_PIPELINE
)
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
    "completed checkpoints and savepoints that state_verify looked after",
    _OF_PIPELINE,
)
VERIFIED_BYTES = Metric(
    "statelib.verify.read_bytes", _COUNTER, "By", "what it read, and compared with the checksums", _OF_PIPELINE
)
FAULTS = Metric("statelib.verify.faults", _GAUGE, "{fault}", "what its last run found damaged", _OF_PIPELINE)
DELETED_FILES = Metric("statelib.gc.deleted_files", _COUNTER, "{file}", "files that gc deleted", _OF_PIPELINE)
DELETED_BYTES = Metric("statelib.gc.deleted_bytes", _COUNTER, "By", "their size", _OF_PIPELINE)
ORPHANS = Metric("statelib.gc.orphan_files", _GAUGE, "{file}", "orphans that the last sweep found", _OF_PIPELINE)
ORPHAN_BYTES = Metric("statelib.gc.orphan_bytes", _GAUGE, "By", "their size", _OF_PIPELINE)

METRICS = (
    COMPLETED, FAILURES, DURATION, SYNC_DURATION, ASYNC_DURATION, UPLOAD_DURATION, RESTORE_DURATION, LAG, SIZE,
    UPLOADED, KEYS, ENTRIES, KEYS_CHANGED, STATE_ENTRIES, EVENTS, EVENTS_DROPPED, EVENTS_LATE, EVENTS_PER_SECOND,
    RESTORES, CHECKS, VERIFIED, VERIFIED_BYTES, FAULTS, DELETED_FILES, DELETED_BYTES, ORPHANS, ORPHAN_BYTES,
)  # fmt: skip
"""In the order of the documentation."""
