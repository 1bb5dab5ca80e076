"""The restore story: find the checkpoint, say what would happen, then make it the pipeline's head."""

import json
from dataclasses import asdict, dataclass

from statelib.catalog.catalog import Catalog
from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError
from statelib.flows.adoption import adopt_snapshot, check_adoptable
from statelib.flows.opened import Checkpoint, open_checkpoint
from statelib.flows.snapshot import RestoreLayout, lay_out
from statelib.flows.wiring import Deployment
from statelib.model.handles import ByteStreamStateHandle, IncrementalRemoteKeyedStateHandle, stream_handles
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.key_groups import check_parallelism
from statelib.model.record import CheckpointRecord, CheckpointState, ClaimMode, PipelineHead
from statelib.restore.schemas import check_same_schema
from statelib.restore.volume import bytes_to_read, entries_to_read


@dataclass(frozen=True)
class SubtaskRead:
    """What one subtask of the next run restores from: the key groups of each handle, and how much it reads.
    ``entries``: None where nothing tells."""

    subtask: int
    key_groups: str
    handles: tuple[str, ...]
    size_bytes: int
    entries: int | None

    def __str__(self) -> str:
        entries = "unknown" if self.entries is None else f"{self.entries:,}"
        handles = ", ".join(self.handles)
        return (
            f"subtask {self.subtask} (key groups {self.key_groups}) reads {len(self.handles)} handle(s): {handles}; "
            f"{self.size_bytes:,} bytes, {entries} entries"
        )


HOLD_MS = 24 * 3_600_000
"""How long a restore that never came to its end keeps its source from being let go of."""


@dataclass(frozen=True)
class RestorePlan:
    """A dry run of a restore. ``checkpoint_id`` is None where ``directory`` is not in the catalog.
    ``abandoned``: checkpoints of the present history that will not be part of the new one.
    ``aborts``: checkpoints and savepoints under way, which the restore gives up.
    ``replay_from_ms``: where the restored state ends; ``replay_until_ms``: the start of the last
    interval that is left behind, None if none is."""

    pipeline: str
    checkpoint_id: int | None
    directory: str
    claim_mode: str
    parallelism: int
    old_parallelism: int
    entries: int | None
    replay_from_ms: int | None
    replay_until_ms: int | None
    abandoned: tuple[int, ...]
    aborts: tuple[int, ...]
    reads: tuple[SubtaskRead, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "RestorePlan":
        values = json.loads(text)
        reads = tuple(SubtaskRead(**{**read, "handles": tuple(read["handles"])}) for read in values["reads"])
        sequences = {name: tuple(values[name]) for name in ("abandoned", "aborts")}
        return RestorePlan(**{**values, **sequences, "reads": reads})

    def describe(self) -> str:
        """The plan as Markdown, for logs and for the person who approves it."""
        name = f"checkpoint {self.checkpoint_id}" if self.checkpoint_id is not None else self.directory
        entries = "unknown" if self.entries is None else f"{self.entries:,}"
        lines = [
            f"**Restore `{self.pipeline}` to {name}** ({self.claim_mode})",
            f"- directory: `{self.directory}`",
            f"- entries: {entries}",
            f"- parallelism: {self.old_parallelism} → {self.parallelism}",
            f"- leaves behind: {', '.join(map(str, self.abandoned)) or 'nothing'}",
            f"- aborts, because it is under way: {', '.join(map(str, self.aborts)) or 'nothing'}",
        ]
        return "\n".join(lines + [f"- {line}" for line in self.reads])


def find_checkpoint(
    deployment: Deployment, pipeline: PipelineName, checkpoint: str
) -> tuple[CheckpointRecord | None, Checkpoint]:
    """By id, or by the path of a directory. Raises NotFoundError; InvalidRequestError
    (``not-completed``) for one that never completed."""
    catalog = deployment.catalog()
    if not checkpoint.isdecimal():
        opened = open_checkpoint(checkpoint, storage_root=deployment.storage_root)
        known = [r for r in catalog.list(pipeline) if r.directory.rstrip("/") == opened.directory.rstrip("/")]
        return (_completed(known[0]) if known else None), opened
    record = _completed(catalog.get(pipeline, CheckpointId(int(checkpoint))))
    return record, open_checkpoint(record.directory, own=True, storage_root=deployment.storage_root)


def _completed(record: CheckpointRecord) -> CheckpointRecord:
    if record.state is not CheckpointState.COMPLETED:
        raise InvalidRequestError(
            f"checkpoint {record.pipeline}/{record.checkpoint_id} is {record.state}: "
            "only a COMPLETED one can be restored",
            kind="not-completed",
            hint=f"statelib checkpoints list --pipeline {record.pipeline}",
        )
    return record


def plan_restore(
    deployment: Deployment, pipeline: Pipeline, checkpoint: str, parallelism: int | None, claim_mode: ClaimMode
) -> RestorePlan:
    """What a restore would do; changes nothing. What the next run could not restore is refused here.

    Raises NotFoundError, InvalidRequestError (``not-completed``, ``bad-parallelism``, ``backend-changed``,
    ``max-parallelism-changed``, ``state-schema-changed``, ``other-pipeline``, ``claim-outside-root``),
    UnsupportedError (``foreign-snapshot``).
    """
    name = PipelineName(pipeline.name)
    record, opened = find_checkpoint(deployment, name, checkpoint)
    _check_restorable(pipeline, opened)
    if claim_mode is ClaimMode.CLAIM:
        _check_claim(opened)
    catalog = deployment.catalog()
    head = catalog.head(name)
    new = parallelism if parallelism is not None else head.parallelism or pipeline.parallelism
    check_parallelism(new, pipeline.max_parallelism)
    position, statistics = opened.position(), opened.manifest.statistics if opened.manifest else None
    abandoned = _abandoned(catalog, head, record)
    return RestorePlan(
        pipeline=name,
        checkpoint_id=record.checkpoint_id if record else None,
        directory=opened.directory,
        claim_mode=claim_mode,
        parallelism=new,
        old_parallelism=opened.keyed_operator().parallelism,
        entries=sum(s.total_entries for s in statistics) if statistics is not None else None,
        replay_from_ms=position.interval.end_ms if position and position.interval else None,
        replay_until_ms=max((r.interval.start_ms for r in abandoned if r.interval), default=None),
        abandoned=tuple(r.checkpoint_id for r in abandoned),
        aborts=tuple(sorted(r.checkpoint_id for r in catalog.list(name, (CheckpointState.PENDING,)))),
        reads=_reads(lay_out(opened, new, pipeline), pipeline.backend),
    )


def _reads(layout: RestoreLayout, backend: str) -> tuple[SubtaskRead, ...]:
    return tuple(
        SubtaskRead(
            subtask=subtask,
            key_groups=str(key_groups),
            handles=tuple(str(source.handle.key_group_range) for source in sources),
            size_bytes=bytes_to_read(key_groups, sources, backend),
            entries=entries_to_read(key_groups, sources),
        )
        for subtask, (key_groups, sources) in enumerate(zip(layout.ranges, layout.sources, strict=True))
    )


def _check_restorable(pipeline: Pipeline, opened: Checkpoint) -> None:
    """Whether the pipeline, as it is defined now, can go on from the snapshot."""
    name, manifest = PipelineName(pipeline.name), opened.manifest
    if manifest is not None and manifest.pipeline != name:
        raise InvalidRequestError(
            f"{opened.directory} is a snapshot of pipeline {manifest.pipeline}, not of {name}", kind="other-pipeline"
        )
    check_adoptable(name, opened)
    check_same_schema(pipeline.schema(), opened.schema())
    if pipeline.backend == "heap" and any(isinstance(h, IncrementalRemoteKeyedStateHandle) for h in opened.handles()):
        raise InvalidRequestError(
            f"{opened.directory} holds RocksDB's files, pipeline {name} has the backend heap",
            kind="backend-changed",
            hint="a canonical savepoint restores into any backend: take one with the old backend",
        )


def _check_claim(opened: Checkpoint) -> None:
    """Claiming makes the files ours to delete, so none may lie outside the claimed directory; those that the
    pipeline's own checkpoints share are ours already."""
    reader = opened.reader()
    for stream in (s for handle in opened.handles() for s in stream_handles(handle)):
        if isinstance(stream, ByteStreamStateHandle):
            continue
        try:
            reader.locate(stream)
        except InvalidRequestError as error:
            raise InvalidRequestError(
                f"{opened.directory} refers to {stream.path}, which lies outside it: it cannot be claimed",
                kind="claim-outside-root",
                hint="restore with claim mode NO_CLAIM",
            ) from error


def apply_restore(deployment: Deployment, pipeline: Pipeline, plan: RestorePlan, owner: str) -> PipelineHead:
    """Make the plan's checkpoint the pipeline's head; the next run builds on it."""
    catalog = deployment.catalog()
    name = PipelineName(pipeline.name)
    checkpoint_id = plan.checkpoint_id
    if checkpoint_id is None:
        opened = open_checkpoint(plan.directory, storage_root=deployment.storage_root)
        checkpoint_id = adopt_snapshot(deployment, name, opened).checkpoint_id
    claim = plan.claim_mode == ClaimMode.CLAIM
    return catalog.restore(name, CheckpointId(checkpoint_id), plan.parallelism, owner, claim=claim)


def hold_source(deployment: Deployment, plan: RestorePlan, holder: str) -> None:
    """Keep retention and gc away from the plan's checkpoint until :func:`release_source`, a day at most.

    A snapshot that is not in the catalog belongs to its user and needs no holding. Raises
    InvalidRequestError (``not-completed``) if the checkpoint was let go of since it was planned.
    """
    if plan.checkpoint_id is not None:
        cleanup = deployment.catalog().cleanup
        cleanup.pin(PipelineName(plan.pipeline), CheckpointId(plan.checkpoint_id), f"restore:{holder}", HOLD_MS)


def release_source(deployment: Deployment, plan: RestorePlan, holder: str) -> None:
    """The restore is over: as the head, its checkpoint is safe."""
    deployment.catalog().cleanup.unpin(PipelineName(plan.pipeline), f"restore:{holder}")


def _abandoned(catalog: Catalog, head: PipelineHead, record: CheckpointRecord | None) -> list[CheckpointRecord]:
    if head.head is None:
        return []
    kept = {r.checkpoint_id for r in catalog.lineage(head.pipeline, record.checkpoint_id)} if record else set()
    return [r for r in catalog.lineage(head.pipeline, head.head) if r.checkpoint_id not in kept]


def rehearsal_layout(
    deployment: Deployment, pipeline: Pipeline, checkpoint: str, parallelism: int | None
) -> RestoreLayout:
    """What the tasks of a rehearsal restore; raises as :func:`plan_restore` does."""
    plan = plan_restore(deployment, pipeline, checkpoint, parallelism, ClaimMode.NO_CLAIM)
    opened = open_checkpoint(plan.directory, storage_root=deployment.storage_root)
    return lay_out(opened, plan.parallelism, pipeline)
