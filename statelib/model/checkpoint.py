"""What a checkpoint is: Flink's metadata, and statelib's manifest of how it came about."""

from dataclasses import dataclass, field
from enum import StrEnum

from statelib.model.handles import KeyedStateHandle, OperatorStreamStateHandle, StreamStateHandle
from statelib.model.ids import AttemptId, CheckpointId, Epoch, PipelineName
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateStatistics


class SnapshotKind(StrEnum):
    CHECKPOINT = "CHECKPOINT"
    SAVEPOINT = "SAVEPOINT"


@dataclass(frozen=True)
class OperatorSubtaskState:
    """State of one subtask; all None = the subtask has no state. ``keyed`` and ``operator`` are
    Flink's managed state; the raw ones, ``finished`` and ``channel_handles`` (how many handles of
    in-flight buffers there were; statelib does not keep them) occur in Flink's files only."""

    keyed: KeyedStateHandle | None = None
    operator: OperatorStreamStateHandle | None = None
    raw_keyed: KeyedStateHandle | None = None
    raw_operator: OperatorStreamStateHandle | None = None
    finished: bool = False
    channel_handles: int = 0


@dataclass(frozen=True)
class OperatorState:
    """State of one operator. ``subtasks`` maps index to state; missing index = no state.

    ``operator_id`` is 16 bytes, Murmur3-128 of the uid. ``name`` and ``uid`` are only stored
    by metadata version 5 and later; '' where unknown. ``finished``: all of its subtasks were
    done before the checkpoint. ``coordinator``: state of Flink's source coordinator, opaque."""

    operator_id: bytes
    parallelism: int
    max_parallelism: int
    subtasks: tuple[tuple[int, OperatorSubtaskState], ...]
    name: str = ""
    uid: str = ""
    coordinator: StreamStateHandle | None = None
    finished: bool = False


@dataclass(frozen=True)
class CheckpointMetadata:
    """The content of Flink's ``_metadata`` file."""

    checkpoint_id: int
    operators: tuple[OperatorState, ...]
    version: int = 3


@dataclass(frozen=True)
class DataInterval:
    """Half-open interval of event time [start_ms, end_ms), epoch milliseconds UTC."""

    start_ms: int
    end_ms: int


@dataclass(frozen=True)
class SourcePosition:
    """How far the source has been applied: the operator state that makes re-runs harmless.

    ``interval`` is the last applied one; None before the first."""

    interval: DataInterval | None
    watermark_ms: int


@dataclass(frozen=True)
class FileRecord:
    """A file of a checkpoint and what its bytes must be. ``path`` as in the handle: relative to
    the directory of ``_metadata``, or absolute. ``crc32c`` is of the whole file."""

    path: str
    size_bytes: int
    crc32c: int
    subtask: int
    key_group_range: KeyGroupRange


@dataclass(frozen=True)
class EventCounts:
    """Events of the interval: ``read`` by Spark's source = ``applied`` + ``null_key`` (dropped by
    the pipeline's ``on_null_key: drop``)."""

    read: int
    applied: int
    null_key: int


@dataclass(frozen=True)
class SubtaskReport:
    """What one subtask acknowledges: its state, the files of it, and the proof of its work.

    ``keyed`` is None for the EMPTY result. ``files``: those that were written and those of earlier
    checkpoints that are referred to again. ``statistics`` are in the schema's state order.
    ``uploaded_bytes``: written for this checkpoint, into files and inline.
    Small and picklable: it travels as a Spark task result."""

    subtask: int
    key_group_range: KeyGroupRange
    keyed: KeyedStateHandle | None
    files: tuple[FileRecord, ...]
    statistics: tuple[StateStatistics, ...] = field(repr=False)
    events: EventCounts
    restored_from: str
    """``empty``, ``remote``."""
    sync_ms: int
    async_ms: int
    uploaded_bytes: int = 0


@dataclass(frozen=True)
class CheckpointManifest:
    """statelib's own part of ``_metadata``, behind Flink's bytes: with it the catalog can be
    rebuilt and every byte and key verified. ``statistics`` cover the whole key-group range,
    in the schema's state order. ``generation`` counts the restores of the pipeline. ``files``: all
    that the checkpoint needs, those of earlier ones included; ``uploaded_bytes``: of state that was
    written for this one (None: not recorded)."""

    pipeline: PipelineName
    checkpoint_id: CheckpointId
    kind: SnapshotKind
    strategy: str
    epoch: Epoch
    attempt: AttemptId
    generation: int
    base: CheckpointId | None
    created_at_ms: int
    position: SourcePosition
    events: EventCounts
    schema: KeyedStateSchema
    files: tuple[FileRecord, ...]
    statistics: tuple[StateStatistics, ...] = field(repr=False)
    sync_ms: int = 0
    async_ms: int = 0
    uploaded_bytes: int | None = None
