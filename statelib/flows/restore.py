"""The restore story: find the checkpoint, say what would happen, then make it the pipeline's head."""

import json
from dataclasses import asdict, dataclass

from statelib.catalog.catalog import Catalog
from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError
from statelib.flows.adoption import adopt_snapshot
from statelib.flows.opened import Checkpoint, open_checkpoint
from statelib.flows.snapshot import RestoreLayout, lay_out
from statelib.flows.wiring import Deployment
from statelib.model.handles import ByteStreamStateHandle, stream_handles
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.key_groups import check_parallelism
from statelib.model.record import CheckpointRecord, CheckpointState, ClaimMode, PipelineHead


@dataclass(frozen=True)
class RestorePlan:
    """A dry run of a restore. ``checkpoint_id`` is None where ``directory`` is not in the catalog.
    ``abandoned``: checkpoints of the present history that will not be part of the new one."""

    pipeline: str
    checkpoint_id: int | None
    directory: str
    claim_mode: str
    parallelism: int
    old_parallelism: int
    entries: int | None
    replay_from_ms: int | None
    abandoned: tuple[int, ...]
    reads: tuple[str, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "RestorePlan":
        values = json.loads(text)
        return RestorePlan(**{**values, "abandoned": tuple(values["abandoned"]), "reads": tuple(values["reads"])})

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
        ]
        return "\n".join(lines + [f"- {line}" for line in self.reads])


def find_checkpoint(
    deployment: Deployment, pipeline: PipelineName, checkpoint: str
) -> tuple[CheckpointRecord | None, Checkpoint]:
    """By id, or by the path of a directory. Raises NotFoundError; InvalidRequestError
    (``not-completed``) for an id that never completed."""
    catalog = deployment.catalog()
    if not checkpoint.isdecimal():
        opened = open_checkpoint(checkpoint, storage_root=deployment.storage_root)
        known = [r for r in catalog.list(pipeline) if r.directory.rstrip("/") == opened.directory.rstrip("/")]
        return (known[0] if known else None), opened
    record = catalog.get(pipeline, CheckpointId(int(checkpoint)))
    if record.state is not CheckpointState.COMPLETED:
        raise InvalidRequestError(
            f"checkpoint {pipeline}/{checkpoint} is {record.state}: only a COMPLETED one can be restored",
            kind="not-completed",
            hint=f"statelib checkpoints list --pipeline {pipeline}",
        )
    return record, open_checkpoint(record.directory, own=True, storage_root=deployment.storage_root)


def plan_restore(
    deployment: Deployment, pipeline: Pipeline, checkpoint: str, parallelism: int | None, claim_mode: ClaimMode
) -> RestorePlan:
    """What a restore would do; changes nothing.

    Raises NotFoundError, InvalidRequestError (``not-completed``, ``bad-parallelism``,
    ``max-parallelism-changed``, ``other-pipeline``), UnsupportedError (``claim-not-available``).
    """
    name = PipelineName(pipeline.name)
    record, opened = find_checkpoint(deployment, name, checkpoint)
    manifest = opened.manifest
    if manifest is not None and manifest.pipeline != name:
        raise InvalidRequestError(
            f"{opened.directory} is a snapshot of pipeline {manifest.pipeline}, not of {name}", kind="other-pipeline"
        )
    if claim_mode is ClaimMode.CLAIM:
        _check_claim(opened)
    catalog = deployment.catalog()
    head = catalog.head(name)
    old = opened.keyed_operator().parallelism
    new = parallelism or head.parallelism or pipeline.parallelism
    check_parallelism(new, pipeline.max_parallelism)
    layout = lay_out(opened, new, pipeline)
    reads = tuple(
        f"subtask {i} (key groups {r}) reads {len(s)} handle(s): {', '.join(str(x.handle.key_group_range) for x in s)}"
        for i, (r, s) in enumerate(zip(layout.ranges, layout.sources, strict=True))
    )
    position = opened.position()
    return RestorePlan(
        pipeline=name,
        checkpoint_id=record.checkpoint_id if record else None,
        directory=opened.directory,
        claim_mode=claim_mode,
        parallelism=new,
        old_parallelism=old,
        entries=sum(s.total_entries for s in manifest.statistics) if manifest else None,
        replay_from_ms=position.interval.end_ms if position and position.interval else None,
        abandoned=_abandoned(catalog, head, record),
        reads=reads,
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


def _abandoned(catalog: Catalog, head: PipelineHead, record: CheckpointRecord | None) -> tuple[int, ...]:
    if head.head is None:
        return ()
    kept = {r.checkpoint_id for r in catalog.lineage(head.pipeline, record.checkpoint_id)} if record else set()
    return tuple(r.checkpoint_id for r in catalog.lineage(head.pipeline, head.head) if r.checkpoint_id not in kept)


def rehearsal_layout(
    deployment: Deployment, pipeline: Pipeline, checkpoint: str, parallelism: int | None
) -> RestoreLayout:
    """What the tasks of a rehearsal restore; raises as :func:`plan_restore` does."""
    plan = plan_restore(deployment, pipeline, checkpoint, parallelism, ClaimMode.NO_CLAIM)
    opened = open_checkpoint(plan.directory, storage_root=deployment.storage_root)
    return lay_out(opened, plan.parallelism, pipeline)
