"""The parts of a checkpoint: Flink's metadata, and statelib's manifest, which records how it was made."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from statelib.model.handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    KeyedStateHandle,
    OperatorStreamStateHandle,
    RelativeFileStateHandle,
    StreamStateHandle,
    segment_key,
)
from statelib.model.ids import AttemptId, CheckpointId, Epoch, PipelineName
from statelib.model.key_groups import KeyGroupRange
from statelib.model.operator_state import OperatorStateDescriptor
from statelib.model.state import KeyCounts, KeyedStateSchema, StateDescriptor, StateStatistics


class SnapshotKind(StrEnum):
    """The two kinds of snapshot. Retention deletes checkpoints; only the user deletes savepoints."""

    CHECKPOINT = "CHECKPOINT"
    SAVEPOINT = "SAVEPOINT"


@dataclass(frozen=True)
class OperatorSubtaskState:
    """The state of one subtask. All fields None: the subtask has no state.

    ``keyed`` and ``operator`` are Flink's managed state. The other fields occur only in files that Flink wrote:
    ``raw_keyed``, ``raw_operator``, ``finished``, and the in-flight buffers, which statelib does not keep:
    ``channel_handles`` is the number of their handles, ``channel_bytes`` their size in bytes, ``channel_streams``
    the streams that hold them."""

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
    """The state of one operator. ``subtasks`` holds (index, state); a subtask without state has no pair.

    ``operator_id`` is 16 bytes, the Murmur3-128 hash of the uid. ``name`` and ``uid`` are only stored
    by metadata version 5 and later; '' if they are not stored. ``finished``: all subtasks of the operator were
    done before the checkpoint. ``coordinator``: the state of Flink's source coordinator, as uninterpreted bytes."""

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
    """The content of Flink's ``_metadata`` file. ``properties``: Flink's ``CheckpointProperties``, a serialized Java
    object at the end of versions 4 and later."""

    checkpoint_id: int
    operators: tuple[OperatorState, ...]
    version: int = 3
    properties: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class DataInterval:
    """The half-open interval of event time [start_ms, end_ms), in epoch milliseconds UTC."""

    start_ms: int
    end_ms: int


@dataclass(frozen=True)
class TableVersion:
    """The version up to which the commits of a table have been applied.

    ``source``: the field of the source in the pipeline file. ``table``: the id that the table has given itself, which
    another table at the same place does not have. ``version``: the number of the commit.

    :meth:`none` stands for a table that had no commit to apply, so that all its commits belong to later runs."""

    source: str
    table: str
    version: int

    @classmethod
    def none(cls, source: str) -> "TableVersion":
        """Return the version of a source whose table does not exist yet or has no commit yet."""
        return cls(source, "", -1)


@dataclass(frozen=True)
class SourcePosition:
    """The position up to which the source has been applied. Because of it a repeated run changes nothing.

    ``interval`` is the last applied interval; None before the first. ``watermark_ms``: epoch milliseconds.
    ``versions``: of each source that is read by its commits."""

    interval: DataInterval | None
    watermark_ms: int
    versions: tuple[TableVersion, ...] = ()


NOTHING_APPLIED = SourcePosition(None, -(2**63))
"""The position before the first interval."""


@dataclass(frozen=True)
class SegmentRecord:
    """The place, size and checksums of one segment of a file that holds several. Fields as in :class:`FileRecord`."""

    start: int
    size_bytes: int
    crc32c: int
    xxh3: int | None = None


@dataclass(frozen=True)
class FileRecord:
    """The path, size and checksums of one file of a checkpoint. ``path`` is the same as in the handle: relative to
    the directory of ``_metadata``, or absolute. ``crc32c`` and ``xxh3`` (XXH3-64) are checksums of the whole
    file; the first versions of statelib wrote no ``xxh3``. ``segments``: the segments that this checkpoint refers
    to; empty if it refers to the whole file."""

    path: str
    size_bytes: int
    crc32c: int
    subtask: int
    key_group_range: KeyGroupRange
    xxh3: int | None = None
    segments: tuple[SegmentRecord, ...] = ()

    def identities(self) -> dict[str, tuple[int, int, int | None]]:
        """Return (size in bytes, crc32c, xxh3 or None) of the file and of each segment, by checksum key."""
        pieces = {
            segment_key(self.path, s.start, s.size_bytes): (s.size_bytes, s.crc32c, s.xxh3) for s in self.segments
        }
        return {self.path: (self.size_bytes, self.crc32c, self.xxh3), **pieces}

    def checksums(self) -> dict[str, tuple[int, int]]:
        """Return (size in bytes, crc32c) of the file and of each segment, by checksum key. A reader verifies the bytes
        with them."""
        return {key: (size_bytes, crc32c) for key, (size_bytes, crc32c, _) in self.identities().items()}


@dataclass(frozen=True)
class SideDataRecord:
    """Side data that a subtask keeps under one name. ``key_group_range``: the key groups of the subtask. ``handle``:
    a whole file, which has a :class:`FileRecord` too, or the bytes themselves if they are few.

    After rescaling, a subtask may have several records of one name, and several subtasks may refer to one file."""

    name: str
    key_group_range: KeyGroupRange
    handle: FileStateHandle | RelativeFileStateHandle | ByteStreamStateHandle = field(repr=False)


@dataclass(frozen=True)
class EventCounts:
    """The numbers of events of the interval. ``read`` by Spark's source = ``applied`` + ``null_key`` (dropped by
    the pipeline's ``on_null_key: drop``). ``late``: per state with windows, (state, number of applied events that came
    too late for all of their windows in that state). ``without_user_key``: per map that left out applied events because
    they have no user key, (state, number of them)."""

    read: int
    applied: int
    null_key: int
    late: tuple[tuple[str, int], ...] = ()
    without_user_key: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class RestoreMeasure:
    """The bytes that one subtask read to restore its key groups before the snapshot, and the time it took."""

    size_bytes: int
    restore_ms: int


NO_ATTEMPT = AttemptId("")


@dataclass(frozen=True)
class Delta:
    """The description of a part of a change log that has partial values of aggregates, of the key groups of one
    subtask.

    The run that wrote it had not read the state. ``statistics`` describe the partial values, in the schema's state
    order. A delta is open until the state is written as a whole again."""

    checkpoint_id: CheckpointId
    key_group_range: KeyGroupRange
    statistics: tuple[StateStatistics, ...] = field(repr=False)

    @property
    def entries(self) -> int:
        """Number of partial values of all states together."""
        return sum(statistics.total_entries for statistics in self.statistics)


@dataclass(frozen=True)
class SubtaskReport:
    """The acknowledgement of one subtask: its state handles, files, statistics and measurements.

    ``keyed`` is None if the subtask has no keyed state. ``files``: the files that were written, and the files of
    earlier checkpoints that are referred to again. ``statistics`` are in the schema's state order.
    ``uploaded_bytes``: bytes written for this checkpoint, into files and inline.
    The report is small and picklable, because it is sent as the result of a Spark task."""

    subtask: int
    key_group_range: KeyGroupRange
    keyed: KeyedStateHandle | None
    files: tuple[FileRecord, ...]
    statistics: tuple[StateStatistics, ...] = field(repr=False)
    events: EventCounts
    restored_from: str
    """One of ``empty``, ``local`` (copies on the worker's own disk), ``remote``, ``mixed``; ``touched`` where only the
    entries that events touch were read, ``copied`` where nothing was restored, because the snapshot is a copy of what
    is stored, and ``blind`` where only a delta was written."""
    sync_ms: int
    async_ms: int
    uploaded_bytes: int = 0
    attempt: AttemptId = NO_ATTEMPT
    """The attempt of the task that reports; '' if it writes nothing. Each try of a subtask has its own attempt."""

    def wrote(self, file: FileRecord) -> bool:
        """Return whether this attempt wrote the file. The name of a file begins with its attempt."""
        return bool(self.attempt) and file.path.rpartition("/")[2].startswith(f"{self.attempt}-")

    operator: OperatorStreamStateHandle | None = None
    """Operator state; None if no operator state is registered."""
    restored: RestoreMeasure | None = None
    """None if there was nothing to restore."""
    upload_ms: int = 0
    """The part of ``async_ms`` during which at least one stream waited for storage."""
    keys_changed: int | None = None
    """Number of distinct keys that events or timers of the interval wrote; None if not counted."""
    keys: KeyCounts | None = field(default=None, repr=False)
    """Number of distinct keys that have state after the interval, per key group; None if the base has no such count."""
    side_data: tuple[SideDataRecord, ...] = ()
    """The side data of user code."""
    deltas: tuple[Delta, ...] = ()
    """The open deltas of the subtask's key groups, the oldest first; ``statistics`` do not count them."""


@dataclass(frozen=True)
class SnapshotMeasure:
    """The time and bytes that taking a checkpoint took. Fields that were not recorded are None.

    ``sync_ms``, ``async_ms`` and ``upload_ms`` are the values of the slowest subtask; ``upload_ms`` is the part of the
    asynchronous time that was spent waiting for storage. ``uploaded_bytes``: bytes written for this checkpoint.
    ``keys_changed``: number of distinct keys that events or timers of the interval wrote."""

    sync_ms: int
    async_ms: int
    upload_ms: int | None = None
    uploaded_bytes: int | None = None
    keys_changed: int | None = None


@dataclass(frozen=True)
class Origin:
    """The checkpoint of another pipeline that a fork began with. The fork may still refer to files of it."""

    pipeline: PipelineName
    checkpoint_id: CheckpointId


@dataclass(frozen=True)
class CheckpointManifest:
    """statelib's own part of ``_metadata``, stored after Flink's bytes. It is enough to rebuild the catalog and to
    verify every byte and key.

    ``generation``: number of restores of the pipeline so far. ``files``: all files that the checkpoint needs,
    including files of earlier checkpoints. ``statistics``: one element per state, in the schema's order, each for the
    whole key-group range. ``uploaded_bytes``: bytes of state written for this checkpoint (None: not recorded).
    ``origins``: of a fork, the checkpoints of other pipelines whose files it still needs. ``restored_from`` and
    ``restores``: from the reports, one element per subtask (empty: not recorded). ``uid``: uid of the operator that
    holds the state ('': not recorded). ``sync_ms``, ``async_ms``, ``upload_ms`` and ``keys_changed``: see
    :class:`SnapshotMeasure`. ``drained``: event time went to its end before the snapshot, so that all event-time
    timers have fired and all windows are closed; ``position`` is still that of the base. ``keys``: number of distinct
    keys that have state, per key group of the whole range (None: not counted, as in manifests of older versions and in
    checkpoints built on them without reading all state). ``side_data``: what user code keeps, subtask by subtask.
    ``seed``: where the state came from, if it was computed elsewhere ('': from the base and the events).
    ``deltas``: the open deltas, subtask by subtask, the oldest first. ``statistics`` are those of the state without
    them, and ``keys`` are then unknown. ``keys_below_deltas``: the number of keys of the state without open deltas, if
    there are some, as ``keys``. ``read_by_job``: whether tasks of the Spark job have read back what the gate would
    read, before this was written. ``rehearsed``: the number of entries that such a task restored as a test, per subtask
    (empty: nothing was restored). ``mends``: the interval before ``position`` whose events were applied in place of
    those that the base has of it. ``key``: the columns of the key in their order, if there are several: their types
    alone do not tell them apart. ``operator_states``: the states of the operator with the names of their fields, which
    Flink's part does not have."""

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
    side_data: tuple[SideDataRecord, ...] = ()
    seed: str = ""
    deltas: tuple[Delta, ...] = ()
    keys_below_deltas: KeyCounts | None = field(default=None, repr=False)
    read_by_job: bool = False
    rehearsed: tuple[int, ...] = ()
    mends: DataInterval | None = None
    key: tuple[str, ...] = ()
    operator_states: tuple[OperatorStateDescriptor, ...] = ()

    def statistics_by_state(self) -> Iterator[tuple[StateDescriptor, StateStatistics]]:
        """Yield (descriptor, statistics) of each state."""
        yield from zip(self.schema.states, self.statistics, strict=True)

    @property
    def entries(self) -> int | None:
        """Number of entries of all states together; None with open deltas, because it is known when they are read."""
        return None if self.deltas else sum(statistics.total_entries for statistics in self.statistics)

    def entries_by_state(self) -> tuple[tuple[str, int], ...]:
        """Return (name, number of entries) of each state; nothing with open deltas."""
        states = () if self.deltas else self.statistics_by_state()
        return tuple((state.name, statistics.total_entries) for state, statistics in states)

    def has_reordered_key(self, key: Sequence[str]) -> bool:
        """Return whether a column of the stored key has another place in ``key``. A column with another name in the
        same place was renamed."""
        return any(name in self.key and self.key[at : at + 1] != (name,) for at, name in enumerate(key))

    @property
    def total_keys(self) -> int | None:
        """Number of distinct keys that have state; None if not counted."""
        return None if self.keys is None else self.keys.total

    @property
    def measured(self) -> SnapshotMeasure:
        """The time and bytes that taking this checkpoint took."""
        return SnapshotMeasure(self.sync_ms, self.async_ms, self.upload_ms, self.uploaded_bytes, self.keys_changed)
