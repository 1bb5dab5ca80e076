"""The part of a checkpoint that runs in one Spark task: it restores the subtask's key groups, applies its events, takes
the snapshot and acknowledges it."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.operator.state import OperatorStateBackend
from statelib.backends.wrappers.changelog import DeltaKeyedStateBackend
from statelib.backends.wrappers.written_keys import WrittenKeys
from statelib.crash_points import crash_point
from statelib.definition.columns import keyed_events
from statelib.definition.pipeline import Pipeline
from statelib.flows.checkpoint.snapshot_plan import SnapshotPlan
from statelib.flows.restore.layout import RestoreLayout
from statelib.flows.wiring import Deployment, now_ms
from statelib.functions.interval import IntervalResult
from statelib.functions.state_function import Progress
from statelib.model.checkpoint import EventCounts, SnapshotKind, SubtaskReport
from statelib.model.choices import NATIVE_SAVEPOINT, REFERRING, Backend
from statelib.model.failure import CheckpointFailureReason
from statelib.model.handles import IncrementalRemoteKeyedStateHandle
from statelib.model.ids import AttemptId
from statelib.model.state import KeyCounts
from statelib.model.task_error import noting_task_error
from statelib.restore.check import count_keys, expected_statistics
from statelib.restore.live.base import reuses_database
from statelib.restore.plan import RestoreSource
from statelib.snapshots.execution import Executed, SnapshotExecutionType, executed_snapshot, expired
from statelib.snapshots.strategies.side_data import SideDataSnapshotStrategy
from statelib.snapshots.strategy import SnapshotStrategy
from statelib.snapshots.uploads.records import file_records
from statelib.spark.session.termination import unwound_by_signal
from statelib.spark.snapshot.subtask.deltas import report_of_delta
from statelib.spark.snapshot.subtask.interval_events import Change, apply_events
from statelib.spark.snapshot.subtask.kept_deltas import change_of, touched_keys
from statelib.spark.snapshot.subtask.local_recovery import local_recovery
from statelib.spark.snapshot.subtask.operator_state import finish_operator, restored_operator
from statelib.spark.snapshot.subtask.recording import recording
from statelib.spark.snapshot.subtask.restored import TOUCHED, RestoredState, restored_state
from statelib.spark.snapshot.subtask.strategies import copying_strategy, logging_backend, strategy_of
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.ports.views import CheckpointStreamFactory
from statelib.storage.references import decode_reference
from statelib.storage.wrappers.task_owned_streams import TaskOwnedStreams
from statelib.storage.wrappers.timed_streams import TimedStreams
from statelib.telemetry.logs import bound

log = logging.getLogger(__name__)

COPIED = "copied"
"""The value of ``restored_from`` for a subtask that restored no state, because its files were copied."""

_ASYNC = CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION


@dataclass(frozen=True)
class Work:
    """The input that all tasks of a snapshot share. It can be pickled."""

    deployment: Deployment
    pipeline: Pipeline
    plan: SnapshotPlan


def snapshot_subtask(
    work: Work,
    subtask: int,
    task: int,
    events: pa.Table,
    clock: Callable[[], int] = now_ms,
    *,
    change: Change | None = None,
) -> SubtaskReport:
    """Take the snapshot of one subtask and return its report. ``task``: the id of the Spark task, which is different
    for each try of the same subtask. ``clock``: returns milliseconds since the epoch. ``change``: None stands for
    :func:`change_of`.

    SIGTERM, SIGHUP and the deadline of the checkpoint end it at once; its files are then removed."""
    checkpoint_id, attempt = work.plan.record.checkpoint_id, task_attempt(work.plan.attempt, task)
    with (
        bound(pipeline=work.pipeline.name, checkpoint_id=checkpoint_id, attempt=attempt, subtask=subtask),
        unwound_by_signal(),
        ExitStack() as reported,
    ):
        change = change or change_of(work.plan)
        source = _unchanged_base(work, subtask, len(events), change)
        if source is not None:
            report = _copied_subtask(work, subtask, attempt, source, clock=clock, reported=reported)
        else:
            report = _snapshot_subtask(work, subtask, attempt, events, clock=clock, reported=reported, change=change)
        log.info(
            "%d events applied, snapshot taken in %d + %d ms", report.events.applied, report.sync_ms, report.async_ms
        )
        return report


def _snapshot_subtask(
    work: Work,
    subtask: int,
    attempt: AttemptId,
    events: pa.Table,
    *,
    clock: Callable[[], int],
    reported: ExitStack,
    change: Change,
) -> SubtaskReport:
    plan = work.plan
    keyed, null_keys = keyed_events(work.pipeline, events)
    with (
        local_recovery(work.deployment, work.pipeline, plan, subtask, attempt) as local,
        _restored(work, local.layout, subtask, attempt, keyed, clock=clock) as restored,
    ):
        crash_point("subtask: restored")
        backend = logging_backend(work.pipeline, plan, subtask, restored.backend)
        operator = restored_operator(work.pipeline, work.plan, subtask)
        applied, written = _applied(work, subtask, backend, operator, keyed, keys=restored.keys, change=change)
        crash_point("subtask: events applied")
        make = partial(strategy_of, work.pipeline, plan, subtask, uid=attempt, local=local.directories)
        with noting_task_error(plan.attempt, subtask, _ASYNC), closing(make(backend, operator)) as strategy:
            taken, upload_ms = _snapshot(work, strategy, operator, subtask, attempt, clock=clock, reported=reported)
            result = taken.result
            crash_point("subtask: snapshot taken")
            local.complete(result)
            crash_point("subtask: local copies kept")
            report = SubtaskReport(
                subtask=subtask,
                key_group_range=plan.layout.ranges[subtask],
                keyed=result.keyed,
                files=file_records((*result.streams, *result.reused), subtask, backend.key_group_range),
                statistics=backend.statistics(),
                events=EventCounts(len(events), len(keyed), null_keys, applied.late, applied.without_user_key),
                restored_from=TOUCHED if restored.is_partial else local.restored_from(subtask),
                sync_ms=taken.sync_ms,
                async_ms=taken.async_ms,
                uploaded_bytes=sum(written.size_bytes for written in result.streams),
                attempt=attempt,
                operator=result.operator,
                side_data=result.side_data,
                restored=restored.measure(),
                upload_ms=upload_ms,
                keys_changed=written.keys_changed,
                keys=_keys(work, subtask, written),
            )
        return report_of_delta(plan, report) if plan.is_blind(subtask) else report


def _applied(
    work: Work,
    subtask: int,
    backend: KeyedStateBackend,
    operator: OperatorStateBackend,
    events: pa.Table,
    *,
    keys: KeyCounts | None,
    change: Change,
) -> tuple[IntervalResult, WrittenKeys]:
    """Change the keyed state and the operator state of the subtask by its events; return (result, what was written).
    ``keys``: the number of keys of the backend, None if it is unknown."""
    recorder = recording(work.pipeline, work.plan, subtask, backend)
    written = WrittenKeys(recorder, keys)
    if isinstance(backend, DeltaKeyedStateBackend):
        change = partial(apply_events, deleted=backend.delete)
    result = change(work.pipeline, written, events, _progress(work.plan), operator)
    finish_operator(work.pipeline, work.plan, subtask, operator, recorder)
    return result, written


def _progress(plan: SnapshotPlan) -> Progress:
    return Progress(plan.base_position.watermark_ms, plan.position.watermark_ms, plan.drains)


def _unchanged_base(work: Work, subtask: int, events: int, change: Change) -> RestoreSource | None:
    """Return the source from which a native savepoint of RocksDB can be copied without a restore; None if there is
    none. The base is such a source if it has the same key groups and states as the subtask, and nothing changes
    them."""
    plan = work.plan
    native = plan.record.kind is SnapshotKind.SAVEPOINT and plan.record.strategy == NATIVE_SAVEPOINT
    if not native or plan.drains or events or change is not apply_events or not plan.previous[subtask].stored:
        return None
    (source,) = plan.layout.sources[subtask]
    rocksdb = work.pipeline.backend == Backend.ROCKSDB and isinstance(source.handle, IncrementalRemoteKeyedStateHandle)
    return source if rocksdb and source.schema == plan.layout.schema.as_recorded() else None


def _copied_subtask(
    work: Work,
    subtask: int,
    attempt: AttemptId,
    source: RestoreSource,
    *,
    clock: Callable[[], int],
    reported: ExitStack,
) -> SubtaskReport:
    """Copy the files of the base as the subtask's part of a native savepoint. The gate reads all of it, as for any
    other snapshot."""
    plan, key_groups = work.plan, work.plan.layout.ranges[subtask]
    operator = restored_operator(work.pipeline, work.plan, subtask)
    finish_operator(work.pipeline, plan, subtask, operator)
    strategy = copying_strategy(plan, subtask, source, operator, attempt)
    with noting_task_error(plan.attempt, subtask, _ASYNC), closing(strategy):
        taken, upload_ms = _snapshot(work, strategy, operator, subtask, attempt, clock=clock, reported=reported)
    result = taken.result
    crash_point("subtask: snapshot taken")
    return SubtaskReport(
        subtask=subtask,
        key_group_range=key_groups,
        keyed=result.keyed,
        files=file_records((*result.streams, *result.reused), subtask, key_groups),
        statistics=expected_statistics(source, key_groups) or (),
        events=EventCounts(0, 0, 0),
        restored_from=COPIED,
        sync_ms=taken.sync_ms,
        async_ms=taken.async_ms,
        uploaded_bytes=sum(written.size_bytes for written in result.streams),
        attempt=attempt,
        operator=result.operator,
        side_data=result.side_data,
        upload_ms=upload_ms,
        keys_changed=0,
        keys=plan.layout.keys[subtask],
    )


def task_attempt(attempt: AttemptId, task: int) -> AttemptId:
    """Return the id of the attempt with its last 8 hex digits replaced by the id of a Spark task."""
    return AttemptId(f"{attempt[:24]}{task & 0xFFFFFFFF:08x}")


def _restored(
    work: Work,
    layout: RestoreLayout,
    subtask: int,
    attempt: AttemptId,
    events: pa.Table,
    *,
    clock: Callable[[], int],
) -> AbstractContextManager[RestoredState]:
    """Return the context of the live state with which a subtask applies ``events``."""
    return restored_state(
        work.deployment,
        work.pipeline,
        work.plan,
        layout,
        subtask,
        attempt=attempt,
        keys=lambda: touched_keys(work.pipeline, work.plan, subtask, events),
        clock=clock,
    )


def _keys(work: Work, subtask: int, written: WrittenKeys) -> KeyCounts | None:
    """Return the number of keys of the subtask after the interval; None if it is unknown, as with open deltas. If the
    number before the interval is unknown, the keys are counted, but only if a restore or a snapshot reads the whole
    state in any case."""
    layout = work.plan.layout
    if work.plan.is_blind(subtask):
        return None
    counted = written.keys_after()
    if counted is not None:
        return counted
    restored = (layout.schema, layout.ranges[subtask], layout.sources[subtask])
    reuses = work.pipeline.backend == Backend.ROCKSDB and reuses_database(*restored)
    return None if reuses and work.plan.record.strategy in REFERRING else count_keys(written)


def _snapshot(
    work: Work,
    strategy: SnapshotStrategy[Any],
    operator: OperatorStateBackend,
    subtask: int,
    attempt: AttemptId,
    *,
    clock: Callable[[], int],
    reported: ExitStack,
) -> tuple[Executed, int]:
    """Take the snapshot of the states and of the side data; return (result, milliseconds that the storage needed). Its
    files are removed if the context ``reported`` ends with an exception. Raises ConflictError
    (``checkpoint-expired``)."""
    plan = work.plan
    storage = work.deployment.worker_storage(work.pipeline)
    reference = decode_reference(plan.trigger)
    streams = TimedStreams(
        storage.resolve_checkpoint_storage_location(plan.record.checkpoint_id, reference, attempt, subtask)
    )
    taken = _execute(work, strategy, streams, clock=clock, reported=reported)
    if not operator.frozen_side_data():
        return taken, streams.clock.total_ms
    checkpoint = plan.record.kind is SnapshotKind.CHECKPOINT
    owned = TimedStreams(TaskOwnedStreams(storage, attempt, subtask)) if checkpoint else streams
    side_strategy = SideDataSnapshotStrategy(operator, plan.layout.ranges[subtask], refers=checkpoint)
    side = _execute(work, side_strategy, owned, clock=clock, reported=reported)
    crash_point("subtask: side data written")
    result = replace(
        taken.result,
        streams=(*taken.result.streams, *side.result.streams),
        reused=(*taken.result.reused, *side.result.reused),
        side_data=side.result.side_data,
    )
    upload_ms = sum(each.clock.total_ms for each in {streams, owned})
    return Executed(result, taken.sync_ms + side.sync_ms, taken.async_ms + side.async_ms), upload_ms


def _execute(
    work: Work,
    strategy: SnapshotStrategy[Any],
    streams: CheckpointStreamFactory,
    *,
    clock: Callable[[], int],
    reported: ExitStack,
) -> Executed:
    """Run a strategy until the deadline of the checkpoint. What it writes is removed if the context ``reported`` ends
    with an exception."""
    record = work.plan.record
    left_ms = None if record.deadline_ms is None else record.deadline_ms - clock()
    if left_ms is not None and left_ms <= 0:
        raise expired()
    log.info("snapshot begins: %s", strategy.description)
    snapshot = executed_snapshot(
        strategy,
        record.checkpoint_id,
        streams,
        CloseableRegistry(),
        execution=SnapshotExecutionType(work.pipeline.checkpoint.execution),
        timeout_s=None if left_ms is None else left_ms / 1000,
    )
    return reported.enter_context(snapshot)
