"""The rehearsal of a restore by the gate: every N-th checkpoint is restored as the next run would do it.

A large checkpoint is restored by tasks of the Spark job before it is published, so that Airflow's task holds none of
its state.
"""

from statelib.definition.pipeline import Pipeline
from statelib.errors import StatelibError
from statelib.flows.restore.layout import RestoreLayout, lay_out
from statelib.flows.restore.live_state import rehearse_subtask
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import SnapshotKind
from statelib.model.key_groups import subtask_ranges
from statelib.model.record import CheckpointRecord
from statelib.quality.facts import RehearsedRange
from statelib.savepoints.opened import Checkpoint
from statelib.storage.registry import new_attempt


def layout_for_job(
    deployment: Deployment, pipeline: Pipeline, record: CheckpointRecord, opened: Checkpoint
) -> RestoreLayout | None:
    """Return the layout by which tasks of the job restore a checkpoint that is not published yet. None if no rehearsal
    is due, or if the gate itself shall do it, because the checkpoint is small.

    Raises as :func:`~statelib.flows.restore.layout.lay_out`."""
    manifest, catalog = opened.manifest, deployment.catalog()
    if manifest is None or pipeline.checks.rehearse_every is None or record.kind is SnapshotKind.SAVEPOINT:
        return None
    size_bytes = sum(file.size_bytes for file in manifest.files)
    lineage = catalog.lineage(record.pipeline, record.base) if record.base is not None else []
    if size_bytes < pipeline.checks.in_job_from_bytes or not _is_due(pipeline, len(lineage)):
        return None
    return lay_out(opened, record.parallelism, pipeline)


def rehearsed(
    deployment: Deployment,
    pipeline: Pipeline,
    record: CheckpointRecord,
    opened: Checkpoint,
    *,
    checkpoints: int,
    trusts_job: bool,
) -> tuple[RehearsedRange, ...] | None:
    """Return the results of the rehearsal of a checkpoint, per subtask; None if none is due. ``checkpoints``: the
    number of checkpoints in the history before it, so that a repeated run of the gate decides the same.
    ``trusts_job``: whether nothing is restored if the manifest says that the job has done it."""
    if not _is_due(pipeline, checkpoints):
        return None
    manifest = opened.manifest
    if trusts_job and manifest is not None and len(manifest.rehearsed) == record.parallelism:
        ranges = subtask_ranges(record.parallelism, manifest.schema.max_parallelism)
        parts = enumerate(zip(ranges, manifest.rehearsed, strict=True))
        return tuple(RehearsedRange(n, str(part), entries, "", by_job=True) for n, (part, entries) in parts)
    return _here(deployment, pipeline, opened, record.parallelism)


def _is_due(pipeline: Pipeline, checkpoints: int) -> bool:
    every = pipeline.checks.rehearse_every
    return every is not None and (checkpoints + 1) % every == 0


def _here(
    deployment: Deployment, pipeline: Pipeline, opened: Checkpoint, parallelism: int
) -> tuple[RehearsedRange, ...]:
    """Restore the snapshot in this process, subtask by subtask. Only one subtask's state is held at a time."""
    attempt = new_attempt()
    try:
        layout = lay_out(opened, parallelism, pipeline)
    except StatelibError as error:
        return (RehearsedRange(0, "all", 0, f"{error.kind}: {error.message}"),)
    results = []
    for subtask, key_groups in enumerate(layout.ranges):
        problem, entries = "", 0
        try:
            read = rehearse_subtask(pipeline, deployment, layout, subtask, attempt)
            entries = sum(statistics.total_entries for statistics in read)
        except StatelibError as error:
            problem = f"{error.kind}: {error.message}"
        results.append(RehearsedRange(subtask, str(key_groups), entries, problem))
    return tuple(results)
