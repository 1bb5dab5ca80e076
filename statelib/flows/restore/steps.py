"""The restore story: find the checkpoint, say what would happen, then make it the pipeline's head."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from statelib.catalog.catalog import Catalog
from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError
from statelib.flows.continuation import Continuation, continuation
from statelib.flows.quarantine import check_not_quarantined
from statelib.flows.restore.adoption import adopt_snapshot, check_adoptable
from statelib.flows.restore.estimate import newest_throughput
from statelib.flows.restore.identity import row_of
from statelib.flows.restore_layout import RestoreLayout, lay_out
from statelib.flows.wiring import Deployment
from statelib.model.amounts import amount
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.key_groups import check_parallelism
from statelib.model.record import CheckpointRecord, CheckpointState, ClaimMode, PipelineHead
from statelib.restore.volume import bytes_to_read, entries_to_read
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.storage.registry import PLACES
from statelib.visible import as_markdown, visible


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
        entries = "unknown entries" if self.entries is None else amount(self.entries, "entry")
        handles = ", ".join(self.handles)
        return (
            f"subtask {self.subtask} (key groups {self.key_groups}) reads"
            f" {amount(len(self.handles), 'handle')}: {handles}; {amount(self.size_bytes, 'byte')}, {entries}"
        )


HOLD_MS = 24 * 3_600_000
"""How long a restore that never came to its end keeps its source from being let go of."""


AFTER_DRAINING = (
    "its event-time timers have fired and its windows are closed; later events of these windows begin them again, empty"
)
"""What a restore of a drained savepoint means for the intervals that follow it."""


@dataclass(frozen=True)
class RestorePlan:
    """A dry run of a restore. ``checkpoint_id`` is None where ``directory`` is not in the catalog.
    ``abandoned``: checkpoints of the present history that will not be part of the new one.
    ``aborts``: checkpoints and savepoints under way, which the restore gives up.
    ``replay_from_ms``: where the restored state ends; ``replay_until_ms``: the start of the last
    interval that is left behind, None if none is. ``states``: what becomes of each state of the pipeline;
    ``non_restored``: state of the snapshot that is left out, because that was allowed.
    ``estimate_ms``: how long the slowest subtask reads if it is as fast as the restore before checkpoint
    ``estimated_from`` was, the newest that was measured; None if none was. ``keys``: distinct ones, None where they are
    not known. ``drained``: see :data:`AFTER_DRAINING`."""

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
    states: tuple[str, ...]
    non_restored: tuple[str, ...]
    estimate_ms: int | None = None
    estimated_from: int | None = None
    keys: int | None = None
    drained: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "RestorePlan":
        values = json.loads(text)
        reads = tuple(SubtaskRead(**{**read, "handles": tuple(read["handles"])}) for read in values["reads"])
        sequences = {name: tuple(values[name]) for name in ("abandoned", "aborts", "states", "non_restored")}
        return RestorePlan(**{**values, **sequences, "reads": reads})

    def estimate(self) -> str:
        """How long the slowest subtask restores, for people."""
        if self.estimate_ms is None:
            return "unknown, no restore from storage was measured yet"
        return f"about {self.estimate_ms / 1000:.1f} s, as fast as before checkpoint {self.estimated_from}"

    def describe(self) -> str:
        """The plan as Markdown, for logs and for the person who approves it. Names out of a snapshot are only text."""
        name = f"checkpoint {self.checkpoint_id}" if self.checkpoint_id is not None else self.directory
        keys, entries = ("unknown" if n is None else f"{n:,}" for n in (self.keys, self.entries))
        lines = [
            f"**Restore `{self.pipeline}` to {as_markdown(name)}** ({self.claim_mode})",
            f"- directory: `{visible(self.directory).replace('`', chr(39))}`",
            f"- keys: {keys}",
            f"- entries: {entries}",
            f"- slowest subtask: {self.estimate()}",
            f"- parallelism: {self.old_parallelism} → {self.parallelism}",
            f"- leaves behind: {', '.join(map(str, self.abandoned)) or 'nothing'}",
            f"- aborts, because it is under way: {', '.join(map(str, self.aborts)) or 'nothing'}",
        ]
        if self.drained:
            lines.append(f"- **drained**: {AFTER_DRAINING}")
        lines += [f"- {as_markdown(line)}" for line in self.states]
        lines += [f"- **not restored**: {as_markdown(line)}" for line in self.non_restored]
        return "\n".join(lines + [f"- {as_markdown(str(line))}" for line in self.reads])


def find_checkpoint(
    deployment: Deployment, pipeline: PipelineName, checkpoint: str
) -> tuple[CheckpointRecord | None, Checkpoint]:
    """By id, or by the path of a directory, which leads to the snapshot that lies there, wherever the catalog has it;
    the record is None where it is none of the pipeline's.

    Raises NotFoundError; InvalidRequestError (``not-completed``, ``quarantined``) for one that never completed,
    whichever pipeline took it."""
    catalog = deployment.catalog()
    if not checkpoint.isdecimal():
        opened = open_checkpoint(checkpoint, storage_root=deployment.storage_root)
        row = row_of(deployment, pipeline, opened)
        if row is None:
            return None, opened
        record = _completed(row)
        if record.directory.rstrip("/") != opened.directory.rstrip("/"):
            opened = open_checkpoint(record.directory, storage_root=deployment.storage_root)
        return (record if record.pipeline == pipeline else None), opened
    record = _completed(catalog.get(pipeline, CheckpointId(int(checkpoint))))
    return record, open_checkpoint(record.directory, own=True, storage_root=deployment.storage_root)


def _completed(record: CheckpointRecord) -> CheckpointRecord:
    check_not_quarantined(record)
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
    ``max-parallelism-changed``, ``state-schema-changed``, ``non-restored-state``, ``other-pipeline``,
    ``other-operator``, and what :func:`~statelib.savepoints.held_files.check_files` raises),
    UnsupportedError (``foreign-snapshot``).
    """
    name = PipelineName(pipeline.name)
    record, opened = find_checkpoint(deployment, name, checkpoint)
    source = _check_restorable(pipeline, opened)
    if claim_mode is ClaimMode.CLAIM and not checkpoint.isdecimal():
        _check_claimed(checkpoint, opened)
    catalog = deployment.catalog()
    head = catalog.head(name)
    new = parallelism if parallelism is not None else head.parallelism or pipeline.parallelism
    check_parallelism(new, pipeline.max_parallelism)
    position, manifest = opened.position(), opened.manifest
    abandoned = _abandoned(catalog, head, record)
    reads = _reads(lay_out(opened, new, pipeline), pipeline.backend)
    throughput = newest_throughput(catalog, name, deployment.storage_root)
    return RestorePlan(
        pipeline=name,
        checkpoint_id=record.checkpoint_id if record else None,
        directory=opened.directory,
        claim_mode=claim_mode,
        parallelism=new,
        old_parallelism=source.opened.keyed_operator().parallelism,
        keys=record.keys if record else manifest.total_keys if manifest else None,
        entries=manifest.entries if manifest else None,
        replay_from_ms=position.interval.end_ms if position and position.interval else None,
        replay_until_ms=max((r.interval.start_ms for r in abandoned if r.interval), default=None),
        abandoned=tuple(r.checkpoint_id for r in abandoned),
        aborts=tuple(sorted(r.checkpoint_id for r in catalog.list(name, (CheckpointState.PENDING,)))),
        reads=reads,
        states=source.resolutions(),
        non_restored=source.non_restored(),
        estimate_ms=throughput.slowest_ms(read.size_bytes for read in reads) if throughput else None,
        estimated_from=throughput.checkpoint_id if throughput else None,
        drained=manifest is not None and manifest.drained,
    )


def _reads(layout: RestoreLayout, backend: str) -> tuple[SubtaskRead, ...]:
    return tuple(
        SubtaskRead(
            subtask=subtask,
            key_groups=str(key_groups),
            handles=tuple(str(source.handle.key_group_range) for source in sources),
            size_bytes=bytes_to_read(layout.schema, key_groups, sources, backend),
            entries=entries_to_read(key_groups, sources),
        )
        for subtask, (key_groups, sources) in enumerate(zip(layout.ranges, layout.sources, strict=True))
    )


def _check_restorable(pipeline: Pipeline, opened: Checkpoint) -> Continuation:
    """How the pipeline, as it is defined now, can go on from the snapshot."""
    name, manifest = PipelineName(pipeline.name), opened.manifest
    if manifest is not None and manifest.pipeline not in (name, *pipeline.renamed_from):
        raise InvalidRequestError(
            f"{opened.directory} is a snapshot of pipeline {manifest.pipeline}, not of {name}",
            kind="other-pipeline",
            hint=f"if {name} was called so, say 'renamed_from: {manifest.pipeline}' in its pipeline file",
        )
    return check_state(pipeline, opened)


def check_state(pipeline: Pipeline, opened: Checkpoint) -> Continuation:
    """How the pipeline's schema and backend go on from the snapshot's state, whichever pipeline took it."""
    check_adoptable(PipelineName(pipeline.name), opened)
    return continuation(pipeline, opened).check()


def _check_claimed(path: str, opened: Checkpoint) -> None:
    """Only what lies where its user says that it lies may become the system's, to delete in time."""
    place = path.removesuffix("/_metadata")
    if PLACES.same_place(opened.directory, place) is not True:
        raise InvalidRequestError(
            f"{place} is the snapshot that the catalog has in {opened.directory}, or a copy of it",
            kind="known-elsewhere",
            hint="claim that by its id, or restore with claim mode NO_CLAIM",
        )


def apply_restore(deployment: Deployment, pipeline: Pipeline, plan: RestorePlan, owner: str) -> PipelineHead:
    """Make the plan's checkpoint the pipeline's head; the next run builds on it."""
    catalog = deployment.catalog()
    name = PipelineName(pipeline.name)
    checkpoint_id = plan.checkpoint_id
    if checkpoint_id is None:
        opened = open_checkpoint(plan.directory, storage_root=deployment.storage_root)
        checkpoint_id = adopt_snapshot(deployment, name, continuation(pipeline, opened).opened).checkpoint_id
    claim = plan.claim_mode == ClaimMode.CLAIM
    return catalog.restore(name, CheckpointId(checkpoint_id), plan.parallelism, owner, claim=claim)


def adopt_former(deployment: Deployment, pipeline: Pipeline, owner: str) -> PipelineHead | None:
    """Let a pipeline that never ran under its present name go on from where it stood under an earlier one.

    The newest checkpoint of the earlier name becomes its head, as a NO_CLAIM restore from its path would make
    it; None where no earlier name has one."""
    catalog = deployment.catalog()
    for name in pipeline.renamed_from:
        former = catalog.head(PipelineName(name))
        if former.head is not None:
            directory = catalog.get(former.pipeline, former.head).directory
            parallelism = former.parallelism or pipeline.parallelism
            plan = plan_restore(deployment, pipeline, directory, parallelism, ClaimMode.NO_CLAIM)
            return apply_restore(deployment, pipeline, plan, owner)
    return None


def hold_source(deployment: Deployment, plan: RestorePlan, holder: str) -> None:
    """Keep retention and gc away from the plan's checkpoint until :func:`release_source`, a day at most; also from
    another pipeline's, if it is that.

    A snapshot that is not in the catalog belongs to its user and needs no holding. Raises
    InvalidRequestError (``not-completed``) if the checkpoint was let go of since it was planned.
    """
    cleanup = deployment.catalog().cleanup
    for pipeline, checkpoint_id in _sources(deployment, plan):
        cleanup.pin(pipeline, checkpoint_id, f"restore:{holder}", HOLD_MS)


def release_source(deployment: Deployment, plan: RestorePlan, holder: str) -> None:
    """The restore is over: as the head, its checkpoint is safe."""
    cleanup = deployment.catalog().cleanup
    for pipeline, _ in _sources(deployment, plan):
        cleanup.unpin(pipeline, f"restore:{holder}")


@contextmanager
def holding_source(deployment: Deployment, plan: RestorePlan, holder: str) -> Iterator[None]:
    """Hold the plan's checkpoint while the block runs, however it ends."""
    hold_source(deployment, plan, holder)
    try:
        yield
    finally:
        release_source(deployment, plan, holder)


def _sources(deployment: Deployment, plan: RestorePlan) -> list[tuple[PipelineName, CheckpointId]]:
    """The catalog's rows of the plan's snapshot."""
    if plan.checkpoint_id is not None:
        return [(PipelineName(plan.pipeline), CheckpointId(plan.checkpoint_id))]
    return deployment.catalog().cleanup.living_in(plan.directory)


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
