"""What a checkpoint is: Flink's metadata, and statelib's manifest of how it came about."""

from dataclasses import dataclass, field
from enum import StrEnum

from statelib.model.handles import KeyedStateHandle, OperatorStreamStateHandle, StreamStateHandle, segment_key
from statelib.model.ids import AttemptId, CheckpointId, Epoch, PipelineName
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyCounts, KeyedStateSchema, StateStatistics


class SnapshotKind(StrEnum):
    CHECKPOINT = "CHECKPOINT"
    SAVEPOINT = "SAVEPOINT"


@dataclass(frozen=True)
class OperatorSubtaskState:
    """State of one subtask; all None = the subtask has no state. ``keyed`` and ``operator`` are
    Flink's managed state; the raw ones, ``finished`` and ``channel_handles`` (how many handles of
    in-flight buffers there were, of ``channel_bytes``, in ``channel_streams``; statelib does not keep them) occur in
    Flink's files only."""

    keyed: KeyedStateHandle | None = None
    operator: OperatorStreamStateHandle | None = None
    raw_keyed: KeyedStateHandle | None = None
    raw_operator: OperatorStreamStateHandle | None = None
    finished: bool = False
    channel_handles: int = 0
    channel_bytes: int = 0
    channel_streams: tuple[StreamStateHandle, ...] = ()


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
    """The content of Flink's ``_metadata`` file. ``properties``: Flink's own of the checkpoint, a Java object that
    versions 4 and later end with."""

    checkpoint_id: int
    operators: tuple[OperatorState, ...]
    version: int = 3
    properties: bytes = field(default=b"", repr=False)


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
class SegmentRecord:
    """A piece of a file that holds many, and what its bytes must be, as of a :class:`FileRecord`."""

    start: int
    size_bytes: int
    crc32c: int
    xxh3: int | None = None


@dataclass(frozen=True)
class FileRecord:
    """A file of a checkpoint and what its bytes must be. ``path`` as in the handle: relative to
    the directory of ``_metadata``, or absolute. ``crc32c`` and ``xxh3`` (XXH3-64) are of the whole
    file; the first statelib wrote no ``xxh3``. ``segments``: the pieces that this checkpoint refers
    to; empty where it refers to the whole file."""

    path: str
    size_bytes: int
    crc32c: int
    subtask: int
    key_group_range: KeyGroupRange
    xxh3: int | None = None
    segments: tuple[SegmentRecord, ...] = ()

    def identities(self) -> dict[str, tuple[int, int, int | None]]:
        """Of the file and of each segment: key -> (size in bytes, crc32c, xxh3 where it was kept)."""
        pieces = {
            segment_key(self.path, s.start, s.size_bytes): (s.size_bytes, s.crc32c, s.xxh3) for s in self.segments
        }
        return {self.path: (self.size_bytes, self.crc32c, self.xxh3), **pieces}

    def checksums(self) -> dict[str, tuple[int, int]]:
        """The same without xxh3: what the bytes are verified with when they are read."""
        return {key: (size_bytes, crc32c) for key, (size_bytes, crc32c, _) in self.identities().items()}


@dataclass(frozen=True)
class EventCounts:
    """Events of the interval: ``read`` by Spark's source = ``applied`` + ``null_key`` (dropped by
    the pipeline's ``on_null_key: drop``). ``late``: (state, events) of each state with windows, how many of
    those applied came too late for all of their windows in it."""

    read: int
    applied: int
    null_key: int
    late: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class RestoreMeasure:
    """How much one subtask read to restore its key groups before the snapshot, and how long that took."""

    size_bytes: int
    restore_ms: int


NO_ATTEMPT = AttemptId("")


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
    """``empty``, ``local`` (copies on the worker's own disk), ``remote``, ``mixed``."""
    sync_ms: int
    async_ms: int
    uploaded_bytes: int = 0
    attempt: AttemptId = NO_ATTEMPT
    """Of the task that reports; '' if it writes nothing. Two tries at one subtask have two."""

    def wrote(self, file: FileRecord) -> bool:
        """Whether a file was written by this very attempt: its name says so."""
        return bool(self.attempt) and file.path.rpartition("/")[2].startswith(f"{self.attempt}-")

    operator: OperatorStreamStateHandle | None = None
    """Operator state; None where none is registered."""
    restored: RestoreMeasure | None = None
    """None where there was nothing to restore."""
    upload_ms: int = 0
    """Of ``async_ms``: how long at least one stream waited on storage."""
    keys_changed: int | None = None
    """Distinct keys that events or timers of the interval wrote; None: not counted."""
    keys: KeyCounts | None = field(default=None, repr=False)
    """Distinct keys that have state now; None: not known, because those of the base are not."""


@dataclass(frozen=True)
class SnapshotMeasure:
    """What taking a checkpoint cost. ``sync_ms``, ``async_ms``, ``upload_ms``: of the slowest subtask, the last one
    the part of the asynchronous time that storage took. ``uploaded_bytes``: written for this checkpoint.
    ``keys_changed``: distinct keys that the interval's events or timers wrote. None: not recorded."""

    sync_ms: int
    async_ms: int
    upload_ms: int | None = None
    uploaded_bytes: int | None = None
    keys_changed: int | None = None


@dataclass(frozen=True)
class Origin:
    """A checkpoint of another pipeline that a fork began with, and whose files it may still refer to."""

    pipeline: PipelineName
    checkpoint_id: CheckpointId


@dataclass(frozen=True)
class CheckpointManifest:
    """statelib's own part of ``_metadata``, behind Flink's bytes: with it the catalog can be
    rebuilt and every byte and key verified. ``statistics`` cover the whole key-group range,
    in the schema's state order. ``generation`` counts the restores of the pipeline. ``files``: all
    that the checkpoint needs, those of earlier ones included; ``uploaded_bytes``: of state that was
    written for this one (None: not recorded). ``origins``: of a fork, and of what it is a fork of, as long as it
    needs files of theirs. ``restored_from`` and ``restores``: as in the reports, by subtask (empty: not recorded).
    ``uid``: of the operator that holds the state ('' : not recorded). ``upload_ms`` and ``keys_changed``: as in
    :class:`SnapshotMeasure`. ``drained``: event time went to its end before the snapshot, so that all event-time timers
    have fired and all windows are closed; ``position`` is still that of the base. ``keys``: distinct keys that have
    state, of the whole key-group range (None: not known, as in manifests of older versions and in what was built on
    them without reading all of it)."""

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
    origins: tuple[Origin, ...] = ()
    restored_from: tuple[str, ...] = ()
    restores: tuple[RestoreMeasure | None, ...] = ()
    uid: str = ""
    upload_ms: int | None = None
    keys_changed: int | None = None
    drained: bool = False
    keys: KeyCounts | None = field(default=None, repr=False)

    @property
    def entries(self) -> int:
        """How many entries all states have together."""
        return sum(statistics.total_entries for statistics in self.statistics)

    @property
    def total_keys(self) -> int | None:
        return None if self.keys is None else self.keys.total

    @property
    def measured(self) -> SnapshotMeasure:
        return SnapshotMeasure(self.sync_ms, self.async_ms, self.upload_ms, self.uploaded_bytes, self.keys_changed)
