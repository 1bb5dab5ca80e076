"""The rows of the catalog for checkpoints and pipelines, as plain values without SQL."""

import re
from dataclasses import dataclass
from enum import StrEnum

from statelib.model.checkpoint import DataInterval, EventCounts, FileRecord, SnapshotKind, SnapshotMeasure
from statelib.model.failure import CheckpointFailureReason
from statelib.model.ids import AttemptId, CheckpointId, Epoch, PipelineName
from statelib.model.termination import StopMode

_MEND_KEY = re.compile(r"mend:(-?[0-9]{1,16}):(-?[0-9]{1,16})@[0-9]+")


class CheckpointState(StrEnum):
    """The states of a checkpoint. The names are stored in the catalog."""

    PENDING = "PENDING"
    COMPLETED = "COMPLETED"
    QUARANTINED = "QUARANTINED"
    """Complete but set aside: it is not restored, and no checkpoint builds on it, until a person releases or disposes
    of it."""
    ABORTED = "ABORTED"
    DELETING = "DELETING"
    DELETED = "DELETED"


class Owner(StrEnum):
    """The owner of the files, who alone may delete them: retention and gc (SYSTEM), or only a person (USER)."""

    SYSTEM = "SYSTEM"
    USER = "USER"


class ClaimMode(StrEnum):
    """Flink's restore modes: with CLAIM the pipeline becomes the owner of the snapshot's files."""

    CLAIM = "CLAIM"
    NO_CLAIM = "NO_CLAIM"


def interval_key(interval: DataInterval, generation: int) -> str:
    """Return the key of the checkpoint of an interval. A repeated request for the same interval finds the same
    checkpoint, until a restore begins a new generation."""
    return f"{interval.start_ms}-{interval.end_ms}@{generation}"


def mend_key(interval: DataInterval, head: CheckpointId) -> str:
    """Return the key of the checkpoint that corrects an interval of the state of ``head``."""
    return f"mend:{interval.start_ms}:{interval.end_ms}@{head}"


def mended_interval(key: str) -> DataInterval | None:
    """Return the interval that the checkpoint with this key corrects; None if it corrects none."""
    match = _MEND_KEY.fullmatch(key)
    return DataInterval(int(match[1]), int(match[2])) if match else None


@dataclass(frozen=True)
class BeginRequest:
    """The request to begin a checkpoint or savepoint. ``interval`` is None for a savepoint, and for a checkpoint
    that ``mends`` an earlier interval. ``strategy``:
    ``canonical``, ``full`` or ``incremental``. ``parallelism`` is that of the pipeline file; a restore may have
    overridden it. ``key``: the idempotency key. ``target``: the directory URI of a savepoint, None = the storage's
    default. ``timeout_ms``: the longest time that it may stay pending, None = no limit. ``tolerable_failures``: the
    request is refused after more failures in a row, None = any number. ``decided_at``: the head of the pipeline when
    the request was made; the request is refused if the head has changed since. ``stop``: the pipeline begins no
    checkpoints after this savepoint; None: it continues."""

    pipeline: PipelineName
    kind: SnapshotKind
    interval: DataInterval | None
    strategy: str
    parallelism: int
    owner: str
    key: str
    target: str | None = None
    note: str = ""
    timeout_ms: int | None = None
    tolerable_failures: int | None = None
    decided_at: "PipelineHead | None" = None
    stop: StopMode | None = None
    mends: DataInterval | None = None


@dataclass(frozen=True)
class CheckpointRecord:
    """One row of the catalog's ``checkpoint`` table.

    ``directory``: absolute URI of the directory of ``_metadata``. ``base``: the checkpoint that it was built on, None
    if it began with empty state. ``generation``: number of restores of the pipeline before it began. ``key``: the
    idempotency key. The fields ``entries`` to ``report`` and ``measured`` are set when it becomes COMPLETED or
    QUARANTINED, ``completed_at_ms`` only when it becomes COMPLETED. ``entries``: number of entries of all states;
    ``keys``: number of distinct keys, None if not counted. ``failure`` and ``reason``: why it is ABORTED or
    QUARANTINED. ``deadline_ms``: the time at which it is aborted if it is still PENDING. ``begun_by``: the user or
    Airflow task (``dag_id/run_id/task_id/try_number``) that began it; '' if it was imported. ``stop``: the way in which
    the savepoint stops its pipeline; None if it does not."""

    pipeline: PipelineName
    checkpoint_id: CheckpointId
    kind: SnapshotKind
    state: CheckpointState
    owner: Owner
    epoch: Epoch
    key: str
    generation: int
    base: CheckpointId | None
    interval: DataInterval | None
    strategy: str
    parallelism: int
    directory: str
    created_at_ms: int
    attempt: AttemptId | None = None
    note: str = ""
    reason: str = ""
    completed_at_ms: int | None = None
    entries: int | None = None
    keys: int | None = None
    size_bytes: int | None = None
    events: EventCounts | None = None
    report: str = ""
    failure: CheckpointFailureReason | None = None
    deadline_ms: int | None = None
    begun_by: str = ""
    measured: SnapshotMeasure | None = None
    stop: StopMode | None = None

    @property
    def mends(self) -> DataInterval | None:
        """The earlier interval that it corrects; None if it corrects none. Its events are those of its base but for
        this interval."""
        return mended_interval(self.key)


def why(record: CheckpointRecord) -> str:
    """Return the reason code and text of an aborted or quarantined checkpoint; '' for any other checkpoint."""
    return ": ".join(part for part in (record.failure or "", record.reason) if part)


@dataclass(frozen=True)
class PipelineHead:
    """The current state of a pipeline. The next checkpoint builds on ``head`` (None = empty state).

    ``generation``: number of restores so far. ``parallelism`` is set by a restore that rescales and then overrides the
    pipeline file. ``cancelled``: the pipeline begins no checkpoints until it is resumed or restored."""

    pipeline: PipelineName
    epoch: Epoch
    generation: int
    head: CheckpointId | None
    parallelism: int | None
    cancelled: bool = False


@dataclass(frozen=True)
class CommitFacts:
    """The values that registering a checkpoint writes into the catalog. ``metadata_crc32c`` and
    ``metadata_size_bytes`` describe the whole ``_metadata`` file. ``files`` have absolute URIs. ``keys``: number of
    distinct keys, None if the manifest has no count."""

    attempt: AttemptId
    entries: int | None
    size_bytes: int
    events: EventCounts
    report: str
    metadata_crc32c: int
    metadata_size_bytes: int
    files: tuple[FileRecord, ...]
    measured: SnapshotMeasure | None = None
    keys: int | None = None
