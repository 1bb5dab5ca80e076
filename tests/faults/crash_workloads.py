"""Workloads during which a deployment is killed. Each may be repeated; a deployment recovers by repeating it."""

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
from sqlalchemy import create_engine

from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.operator.state import OperatorStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.backends.wrappers.changelog import ChangelogKeyedStateBackend
from statelib.catalog.tables.schema import ATTEMPT, CHECKPOINT, FILE, METADATA, REF
from statelib.definition.columns import event_schema
from statelib.definition.pipeline import Pipeline
from statelib.errors import RetryableError
from statelib.flows.checkpoint.declining import declining
from statelib.flows.checkpoint.publishing import publish
from statelib.flows.checkpoint.snapshot_plan import plan_snapshot
from statelib.flows.checkpoint.steps import abort, begin, register
from statelib.flows.cleanup.garbage import collect_garbage, dispose
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.cleanup.retention import retire
from statelib.flows.lifecycle.suspension import cancel, resume
from statelib.flows.recovery.rebuild import apply_rebuild, plan_rebuild
from statelib.flows.restore.holding import hold_source, release_source
from statelib.flows.restore.quarantine import release
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.fork import fork
from statelib.flows.savepoint.seeds import begin_seed
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.functions.interval import IntervalResult
from statelib.functions.state_function import Progress
from statelib.model.checkpoint import SnapshotKind
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.quality import QualityResult, Severity
from statelib.model.record import CheckpointRecord, CheckpointState, ClaimMode
from statelib.savepoints.commit_facts import commit_facts
from statelib.savepoints.opened import open_checkpoint
from statelib.spark.imports.seed_columns import STATE
from statelib.spark.imports.seed_rows import PutRows
from statelib.spark.snapshot.subtask.interval_events import Change, apply_events
from statelib.spark.snapshot.subtask.worker import Work, snapshot_subtask
from tests.faults.crash_world import FORK, NAME, World, abroad, events
from tests.support.worlds import day, owned

BASE = 3
"""The number of days that a world has applied."""
LAST = 5
"""The last day that it has applied once it has recovered."""


def history(world: World) -> None:
    """Make three days, a savepoint that its user keeps, one that gc has to remove, the files of an aborted attempt,
    and outside the storage a savepoint that is not in the catalog."""
    deployment = world.deployment
    run_day(deployment, NAME, 1)
    run_day(deployment, NAME, 2)
    save(deployment, "kept")
    run_day(deployment, NAME, 3)
    forget(deployment, save(deployment, "abroad", target=f"{deployment.root_uri()}-abroad"))
    deployment.catalog().cleanup.dispose(NAME, save(deployment, "doomed"))
    pipeline = deployment.pipeline(NAME)
    left = begin(deployment, pipeline, day(4), "test").checkpoint_id
    take(deployment, pipeline, left, events(4))
    abort(deployment, NAME, left, "given up")
    world.keep()


def take(
    deployment: Deployment,
    pipeline: Pipeline,
    checkpoint_id: CheckpointId,
    table: pa.Table | None = None,
    change: Change | None = None,
    tries: int = 1,
    seed: str = "",
) -> None:
    """Run the snapshot job, unless it was done before. An error is recorded, as the job does. ``tries``: how often
    each task runs; the driver discards the files of all but the first."""
    plan = plan_snapshot(deployment, pipeline, checkpoint_id, seed=seed)
    if plan is None:
        return
    table = event_schema(pipeline).empty_table() if table is None else table
    with declining(deployment, plan):
        parts = [table.filter(pa.array(mask)) for mask in owned(pipeline, plan, table)]
        work = Work(deployment, pipeline, plan)
        tasks = [(i, i + n * len(parts)) for n in range(tries) for i in range(len(parts))]
        reports = [snapshot_subtask(work, i, task, parts[i], change=change) for i, task in tasks]
        publish(deployment, pipeline, plan, len(table), reports)


def run_day(
    deployment: Deployment,
    name: PipelineName,
    number: int,
    pipeline: Pipeline | None = None,
    change: Change | None = None,
) -> None:
    """Take the checkpoint of a day with the same steps as the tasks of the DAG."""
    pipeline = pipeline or deployment.pipeline(name)
    begun = begin(deployment, pipeline, day(number), "test")
    if not begun.already_completed:
        take(deployment, pipeline, begun.checkpoint_id, events(number), change)
        register(deployment, pipeline, begun.checkpoint_id)


def save(deployment: Deployment, key: str, target: str | None = None) -> CheckpointId:
    pipeline = deployment.pipeline(NAME)
    form = "native" if pipeline.backend == "rocksdb" else "canonical"
    begun = begin_savepoint(deployment, pipeline, format=form, target=target, note="", owner="test", key=key)
    if not begun.already_completed:
        take(deployment, pipeline, begun.checkpoint_id)
        register(deployment, pipeline, begun.checkpoint_id)
    return begun.checkpoint_id


def forget(deployment: Deployment, number: CheckpointId) -> None:
    """Delete the rows of a checkpoint from the catalog, so that it looks like one of another deployment."""
    engine = create_engine(deployment.catalog_url)
    with engine.begin() as connection:
        for table in (REF, ATTEMPT, CHECKPOINT):
            connection.execute(table.delete().where(table.c.pipeline == NAME, table.c.checkpoint_id == number))
        connection.execute(FILE.delete().where(FILE.c.created_by == number))
    engine.dispose()


def interval(deployment: Deployment) -> None:
    run_day(deployment, NAME, 4)


def first(deployment: Deployment) -> None:
    run_day(deployment, FORK, 1)


def compaction(deployment: Deployment) -> None:
    """Take a checkpoint in which RocksDB's files are merged, so that none of the base's is referred to, or in which
    a change log is replaced by a whole snapshot."""
    pipeline = deployment.pipeline(NAME)
    checkpoint = pipeline.checkpoint.model_copy(update={"materialize_after_bytes": 1})
    run_day(deployment, NAME, 4, pipeline.model_copy(update={"checkpoint": checkpoint}), compacting)


def compacting(
    pipeline: Pipeline,
    backend: KeyedStateBackend,
    table: pa.Table,
    progress: Progress,
    operator: OperatorStateBackend,
) -> IntervalResult:
    applied = apply_events(pipeline, backend, table, progress, operator)
    inner = backend.inner if isinstance(backend, ChangelogKeyedStateBackend) else backend
    if isinstance(inner, RocksDBKeyedStateBackend):
        for family in inner._families.values():
            family.compact_range(None, None)
    return applied


def blind(deployment: Deployment) -> None:
    """Take a checkpoint that leaves the state of a change log unread and adds a delta."""
    _run_blind_day(deployment, 4, 9)


def merged(deployment: Deployment) -> None:
    """Take a checkpoint that merges the deltas of the one before with the state."""
    _run_blind_day(deployment, 4, 9)
    _run_blind_day(deployment, LAST, 1)


def _run_blind_day(deployment: Deployment, number: int, most: int) -> None:
    """Take the checkpoint of a day. It leaves its state unread if its change log has less than ``most`` parts."""
    pipeline = deployment.pipeline(NAME)
    checkpoint = pipeline.checkpoint.model_copy(update={"blind": True, "materialize_after_checkpoints": most})
    run_day(deployment, NAME, number, pipeline.model_copy(update={"checkpoint": checkpoint}))


def savepoint(deployment: Deployment) -> None:
    save(deployment, "new")


def rescale(deployment: Deployment) -> None:
    restore(deployment, str(of_day(deployment, BASE).checkpoint_id), 3, ClaimMode.NO_CLAIM)
    run_day(deployment, NAME, 4)


def claim(deployment: Deployment) -> None:
    restore(deployment, str(savepoint_of(deployment, "savepoint:kept").checkpoint_id), None, ClaimMode.CLAIM)
    run_day(deployment, NAME, 3)
    run_day(deployment, NAME, 4)


def restore(deployment: Deployment, checkpoint: str, parallelism: int | None, mode: ClaimMode) -> None:
    pipeline = deployment.pipeline(NAME)
    plan = plan_restore(deployment, pipeline, checkpoint, parallelism, mode)
    hold_source(deployment, plan, "test")
    apply_restore(deployment, pipeline, plan, "test")
    release_source(deployment, plan, "test")


def of_day(deployment: Deployment, number: int) -> CheckpointRecord:
    """Return the first completed checkpoint of a day."""
    records = deployment.catalog().list(NAME, {CheckpointState.COMPLETED})
    return min((r for r in records if r.interval == day(number)), key=lambda r: r.checkpoint_id)


def savepoint_of(deployment: Deployment, key: str) -> CheckpointRecord:
    return next(r for r in deployment.catalog().list(NAME) if r.key == key and r.state is CheckpointState.COMPLETED)


def gc(deployment: Deployment) -> None:
    retire(deployment)
    collect_garbage(deployment)
    orphans(deployment, dry_run=False, force=True, grace_ms=0)


def rebuild(deployment: Deployment) -> None:
    """Rebuild the catalog of a world whose catalog is empty."""
    if deployment.catalog().head(NAME).head is None:
        apply_rebuild(deployment, plan_rebuild(deployment))


def without_catalog(world: World) -> None:
    engine = create_engine(world.deployment.catalog_url)
    with engine.begin() as connection:
        for table in reversed(METADATA.sorted_tables):
            connection.execute(table.delete())
    engine.dispose()
    world.keep()


def disposed(deployment: Deployment) -> None:
    records = next(r for r in deployment.catalog().list(NAME) if r.key == "savepoint:kept")
    dispose(deployment, NAME, records.checkpoint_id)


def forked(deployment: Deployment) -> None:
    if deployment.catalog().head(FORK).head is None:
        fork(deployment, deployment.pipeline(FORK), of_day(deployment, BASE), "test")


def quarantine(deployment: Deployment) -> None:
    """Take a fourth day that the gate puts into quarantine, and release it."""
    aside = deployment.catalog().list(NAME, {CheckpointState.QUARANTINED})
    pipeline = deployment.pipeline(NAME)
    if not aside:
        begun = begin(deployment, pipeline, day(4), "test")
        if begun.already_completed:
            return
        take(deployment, pipeline, begun.checkpoint_id, events(4))
        record = deployment.catalog().get(NAME, begun.checkpoint_id)
        odd = QualityResult("drift", "entries", Severity.QUARANTINE, False, 1, 1, ("odd",))
        gate = deployment.catalog().gate
        gate.record_results(NAME, record.checkpoint_id, [odd])
        facts = commit_facts(open_checkpoint(record.directory, own=True, storage_root=deployment.storage_root), "")
        aside = [gate.set_aside(NAME, record.checkpoint_id, record.epoch, facts, "odd")]
    release(deployment, NAME, aside[0].checkpoint_id, "test", "fine")


def stopped(deployment: Deployment) -> None:
    """Let an attempt fail and abort its run, then cancel the pipeline and resume it."""
    if deployment.catalog().head(NAME).cancelled:
        resume(deployment, NAME, "test")
    pipeline = deployment.pipeline(NAME)
    begun = begin(deployment, pipeline, day(4), "test")
    if begun.already_completed:
        return
    try:
        take(deployment, pipeline, begun.checkpoint_id, events(4), failing)
    except RetryableError:
        abort(deployment, NAME, begun.checkpoint_id, "given up")
    cancel(deployment, NAME, "test")
    resume(deployment, NAME, "test")


def speculated(deployment: Deployment) -> None:
    """Run each task twice, as Spark does with speculation."""
    pipeline = deployment.pipeline(NAME)
    begun = begin(deployment, pipeline, day(4), "test")
    if not begun.already_completed:
        take(deployment, pipeline, begun.checkpoint_id, events(4), tries=2)
        register(deployment, pipeline, begun.checkpoint_id)


def failing(
    _pipeline: Pipeline, _backend: KeyedStateBackend, _table: pa.Table, _p: Progress, _o: OperatorStateBackend
) -> IntervalResult:
    raise RetryableError("the disk is on fire", kind="storage-io")


def imported(deployment: Deployment) -> None:
    """Restore from a savepoint that is not in the catalog; it still belongs to its user."""
    catalog = deployment.catalog()
    if not [r for r in catalog.list(NAME) if r.key.startswith("import:") and catalog.head(NAME).generation]:
        restore(deployment, abroad(deployment), None, ClaimMode.NO_CLAIM)
    run_day(deployment, NAME, 4)


def copied_fork(deployment: Deployment) -> None:
    if deployment.catalog().head(FORK).head is None:
        fork(deployment, deployment.pipeline(FORK), of_day(deployment, BASE), "test", copy=True)


def seeded(deployment: Deployment) -> None:
    """Begin a pipeline with a table that has the totals of the first day."""
    pipeline = deployment.pipeline(FORK)
    begun = begin_seed(deployment, pipeline, day(1).end_ms, "a table", "test")
    if not begun.already_completed:
        totals = events(1).group_by("shop").aggregate([("amount", "sum")]).rename_columns(["shop", f"{STATE}total"])
        take(deployment, pipeline, begun.checkpoint_id, totals, PutRows(("total",)), seed="a table")
        register(deployment, pipeline, begun.checkpoint_id)


def migrate(deployment: Deployment) -> None:
    """Migrate a new catalog."""
    replace(deployment, catalog_url=f"sqlite:///{deployment.data}/new.db").catalog().head(NAME)


CENTRAL = {
    "first": first,
    "interval": interval,
    "compaction": compaction,
    "savepoint": savepoint,
    "rescale": rescale,
    "claim": claim,
    "gc": gc,
    "rebuild": rebuild,
}
WORKLOADS: dict[str, Callable[[Deployment], None]] = CENTRAL | {
    "dispose": disposed,
    "fork": forked,
    "quarantine": quarantine,
    "stopped": stopped,
    "speculated": speculated,
    "import": imported,
    "copied fork": copied_fork,
    "seed": seeded,
    "blind": blind,
    "merged deltas": merged,
    "migrate": migrate,
}


def recover(deployment: Deployment, workload: str, *, from_the_task: bool = False) -> None:
    """Repeat the workload; ``from_the_task``: first like Airflow, which runs the killed task again, not the whole
    run. Then take the next days, and clean up until there is nothing to clean up any more."""
    if from_the_task:
        go_on(deployment)
    if not any(r.interval == day(LAST) for r in deployment.catalog().list(NAME, {CheckpointState.COMPLETED})):
        # Otherwise an earlier recovery has got further, and has cleaned up the files with which the workload begins.
        WORKLOADS[workload](deployment)
    run_day(deployment, NAME, 4)
    run_day(deployment, NAME, LAST)
    for _ in range(3):
        retire(deployment)
        collected = collect_garbage(deployment)
        swept = orphans(deployment, dry_run=False, force=True, grace_ms=0)
        if not any(c.files or c.checkpoints for c in collected) and not any(s.files for s in swept):
            return
    raise AssertionError("the cleanup finds something to do for ever")


def go_on(deployment: Deployment) -> None:
    for record in deployment.catalog().list(None, {CheckpointState.PENDING}):
        pipeline = deployment.pipeline(record.pipeline)
        if record.key.startswith("fork:") or record.note.startswith("seed from"):
            continue  # no task of Airflow does this
        number = None if record.interval is None else day_of(record)
        take(deployment, pipeline, record.checkpoint_id, None if number is None else events(number))
        register(deployment, pipeline, record.checkpoint_id)


def day_of(record: CheckpointRecord) -> int:
    assert record.kind is SnapshotKind.CHECKPOINT
    return next(number for number in range(1, LAST + 1) if day(number) == record.interval)
