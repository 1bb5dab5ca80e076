"""The shapes of the responses of the page's API.

FastAPI makes the OpenAPI document from them, and ``make docs`` makes the page's ``api.ts`` from that document. A shape
that a view of the flows already declares is used as it is.
"""

from dataclasses import dataclass

from statelib.catalog.views.browsing import Ancestor
from statelib.flows.publication.steps import TableStanding
from statelib.flows.views.anatomy import CheckpointFile, OperatorStateFacts, SideDataFacts, StateFacts, SubtaskFacts
from statelib.flows.views.comparison import FileComparison, StateComparison
from statelib.model.checkpoint import DataInterval, SnapshotKind
from statelib.model.quality import QualityResult
from statelib.model.record import CheckpointState, Owner


@dataclass(frozen=True)
class ErrorResponse:
    """The response to a request that failed. ``kind``: the kind of error, for programs. ``hint``: what to do about it,
    '' if there is no advice."""

    kind: str
    message: str
    hint: str


@dataclass(frozen=True)
class SignedInUser:
    """The user of the page."""

    name: str


@dataclass(frozen=True)
class AppliedEvents:
    """The numbers of events of the interval: ``read`` by Spark's source = ``applied`` + ``null_key`` (dropped)."""

    read: int
    applied: int
    null_key: int


@dataclass(frozen=True)
class GateResult:
    """The newest run of the gate in numbers of checks. ``failed``: failed checks whose severity stops a checkpoint;
    ``warned``: the other failed checks."""

    passed: bool
    checked: int
    failed: int
    warned: int


@dataclass(frozen=True)
class RunLink:
    """A DAG run. ``href``: the path of its page in Airflow."""

    dag_id: str
    run_id: str
    href: str


@dataclass(frozen=True)
class CheckpointRow:
    """A checkpoint as the catalog has it. ``kind``, ``state``, ``owner`` and ``failure`` are the stored words: a later
    statelib may have stored words that this one does not have. ``mends``: the interval that it corrects, in place of
    ``interval``. ``run``: null if a command began the checkpoint."""

    pipeline: str
    checkpoint_id: int
    kind: SnapshotKind | str
    state: CheckpointState | str
    head: bool
    owner: Owner | str
    strategy: str
    parallelism: int
    generation: int
    base: int | None
    interval: DataInterval | None
    mends: DataInterval | None
    created_at_ms: int
    completed_at_ms: int | None
    duration_ms: int | None
    deadline_ms: int | None
    sync_ms: int | None
    async_ms: int | None
    upload_ms: int | None
    entries: int | None
    keys: int | None
    size_bytes: int | None
    uploaded_bytes: int | None
    keys_changed: int | None
    events: AppliedEvents | None
    note: str
    failure: str | None
    reason: str
    directory: str
    gate: GateResult | None
    report: bool
    run: RunLink | None


@dataclass(frozen=True)
class CheckpointDetail(CheckpointRow):
    """A checkpoint with its details. The contents of ``_metadata``, from ``max_parallelism`` to ``side_data``, are
    null if it cannot be read; ``problem`` then says why."""

    max_parallelism: int | None
    states: tuple[StateFacts, ...] | None
    states_total: int | None
    subtasks: tuple[SubtaskFacts, ...] | None
    files: tuple[CheckpointFile, ...] | None
    files_total: int | None
    operator_state: tuple[OperatorStateFacts, ...] | None
    side_data: tuple[SideDataFacts, ...] | None
    lineage: tuple[Ancestor, ...]
    quality: tuple[QualityResult, ...]
    problem: str | None


@dataclass(frozen=True)
class CheckpointList:
    """One page of the list of checkpoints. ``total``: the number of checkpoints on all pages together."""

    total: int
    checkpoints: tuple[CheckpointRow, ...]
    now_ms: int


@dataclass(frozen=True)
class DeclaredState:
    """A state of a pipeline file."""

    name: str
    kind: str
    type: str


@dataclass(frozen=True)
class UserRights:
    """The rights of the user on a pipeline."""

    read: bool
    trigger: bool


@dataclass(frozen=True)
class PipelineRow:
    """A pipeline with its head. The settings of its file are null if the file does not load or does not exist, and
    ``error`` says why. ``error`` also names a damaged row of the catalog. ``tables``: the names of its published
    tables."""

    name: str
    description: str
    schedule: str | None
    backend: str | None
    strategy: str | None
    parallelism: int | None
    max_parallelism: int | None
    states: tuple[DeclaredState, ...]
    tables: tuple[str, ...]
    head: CheckpointRow | None
    pending: CheckpointRow | None
    quarantined: int
    failures_in_a_row: int
    cancelled: bool
    generation: int
    error: str | None
    may: UserRights


@dataclass(frozen=True)
class PipelineList:
    """The pipelines that the user may read."""

    pipelines: tuple[PipelineRow, ...]
    now_ms: int


@dataclass(frozen=True)
class ComparisonDetail:
    """Two checkpoints with the differences between them. ``states`` and ``files`` are null if one of the two cannot be
    read; ``problem`` then says which and why. ``command``: the command that compares them key by key."""

    left: CheckpointRow
    right: CheckpointRow
    states: tuple[StateComparison, ...] | None
    files: FileComparison | None
    command: str
    problem: str | None


@dataclass(frozen=True)
class _Sizes:
    files: int
    live_bytes: int
    shared_bytes: int
    garbage_bytes: int
    savepoint_bytes: int
    amplification: float | None


@dataclass(frozen=True)
class StorageRow(_Sizes):
    """The storage that a pipeline uses now. ``shared_bytes`` is a part of ``live_bytes``. ``amplification``: the
    system's bytes on storage divided by the live ones; null if there are none."""

    name: str


@dataclass(frozen=True)
class StoragePoint(_Sizes):
    """The storage that a pipeline used at one time."""

    at_ms: int


@dataclass(frozen=True)
class StorageList:
    """The storage use of each pipeline that the user may read."""

    pipelines: tuple[StorageRow, ...]
    now_ms: int


@dataclass(frozen=True)
class StorageHistory:
    """The storage that a pipeline uses now and used earlier, the oldest sample first."""

    now: StorageRow
    samples: tuple[StoragePoint, ...]
    now_ms: int


@dataclass(frozen=True)
class TableList:
    """The published tables of a pipeline."""

    tables: tuple[TableStanding, ...]
    now_ms: int


@dataclass(frozen=True)
class RunCheckpoint:
    """The checkpoint or savepoint that a DAG run began; null if it began none."""

    pipeline: str
    checkpoint_id: int | None
