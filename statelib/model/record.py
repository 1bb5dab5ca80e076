"""What the catalog knows of checkpoints and pipelines: plain rows, no SQL."""

from dataclasses import dataclass
from enum import StrEnum

from statelib.model.checkpoint import DataInterval, EventCounts, FileRecord, SnapshotKind, SnapshotMeasure
from statelib.model.failure import CheckpointFailureReason
from statelib.model.ids import AttemptId, CheckpointId, Epoch, PipelineName
from statelib.model.termination import StopMode


class CheckpointState(StrEnum):
    PENDING = "PENDING"
    COMPLETED = "COMPLETED"
    QUARANTINED = "QUARANTINED"
    """Whole, and kept aside: never restored, never built on, until a person releases or disposes of it."""
    ABORTED = "ABORTED"
    DELETING = "DELETING"
    DELETED = "DELETED"


class Owner(StrEnum):
    """Who may delete the files: the system's retention and gc, or only its user."""

    SYSTEM = "SYSTEM"
    USER = "USER"


class ClaimMode(StrEnum):
    CLAIM = "CLAIM"
    NO_CLAIM = "NO_CLAIM"


@dataclass(frozen=True)
class BeginRequest:
    """Ask for a checkpoint or savepoint. ``interval`` is None for a savepoint. ``strategy``:
    ``canonical``, ``full`` or ``incremental``. ``parallelism`` is the pipeline's own; a restore may override it.
    ``target``: a savepoint's directory URI, None = the storage's default. ``timeout_ms``: how long it may stay
    pending, None = for ever. ``tolerable_failures``: more in a row, and it is refused; None = any number.
    ``decided_at``: where the pipeline stood when this was asked for; refused where it stands elsewhere by now.
    ``stop``: the pipeline begins no checkpoints from this savepoint on; None: it goes on."""

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


@dataclass(frozen=True)
class CheckpointRecord:
    """One row of the catalog's ``checkpoint`` table. ``directory``: absolute URI of the directory
    of ``_metadata``. ``base``: the checkpoint it was built on, None = from nothing.
    ``generation``: how often the pipeline had been restored when it began.
    The figures after ``reason`` are set when it is COMPLETED or QUARANTINED; ``completed_at_ms`` only by the former.
    ``entries``: of all states; ``keys``: distinct ones, None where they are not known.
    ``failure`` and ``reason``: why it is ABORTED or QUARANTINED.
    ``deadline_ms``: when it is aborted if it is still pending. ``begun_by``: who asked for it, of an Airflow task
    ``dag_id/run_id/task_id/try_number``; '' if it was imported. ``stop``: how the savepoint stops its pipeline; None if
    it does not."""

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


def why(record: CheckpointRecord) -> str:
    """Reason code and text of an aborted or quarantined checkpoint; '' of any other one."""
    return ": ".join(part for part in (record.failure or "", record.reason) if part)


@dataclass(frozen=True)
class PipelineHead:
    """Where a pipeline stands: the next checkpoint builds on ``head`` (None = empty state).
    ``parallelism`` is set by a restore that rescales, and then overrides the pipeline file.
    ``cancelled``: begins no checkpoints until it is resumed or restored."""

    pipeline: PipelineName
    epoch: Epoch
    generation: int
    head: CheckpointId | None
    parallelism: int | None
    cancelled: bool = False


@dataclass(frozen=True)
class CommitFacts:
    """What registering a checkpoint writes into the catalog. ``metadata_crc32c`` and ``metadata_size_bytes`` are of
    the whole ``_metadata`` file; ``files`` have absolute URIs; ``keys``: distinct ones, None where the manifest has no
    count of them."""

    attempt: AttemptId
    entries: int
    size_bytes: int
    events: EventCounts
    report: str
    metadata_crc32c: int
    metadata_size_bytes: int
    files: tuple[FileRecord, ...]
    measured: SnapshotMeasure | None = None
    keys: int | None = None
