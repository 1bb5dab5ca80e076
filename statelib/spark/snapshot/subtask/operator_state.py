"""The operator state of one subtask: restored, and completed before its snapshot."""

from dataclasses import asdict

from statelib.backends.operator.state import OperatorStateBackend
from statelib.backends.wrappers.changed_entries import ChangedEntries
from statelib.backends.wrappers.expiring import expiring_name
from statelib.definition.output_forms import rows_to_emit
from statelib.definition.pipeline import Pipeline
from statelib.flows.checkpoint.side_data import listed_states
from statelib.flows.checkpoint.snapshot_plan import SnapshotPlan
from statelib.formats.source_position import SOURCE_POSITION, TABLE_VERSIONS, element_of
from statelib.functions.mending.kept_delta import delta_name, interval_of_delta
from statelib.functions.user_code.hooks import SnapshotContext, call_hook
from statelib.model.checkpoint import SnapshotKind
from statelib.restore.operator import restore_operator
from statelib.savepoints.emitted_outputs import output_name
from statelib.savepoints.recorded_changes import changes_name
from statelib.spark.snapshot.subtask.recording import keep_changes, recorded_states


def restored_operator(pipeline: Pipeline, plan: SnapshotPlan, subtask: int) -> OperatorStateBackend:
    """Return the operator state of a subtask, restored, after the user's hook was called with it."""
    stored = plan.side_data[subtask]
    changes = map(changes_name, recorded_states(pipeline, plan, subtask))
    own_deltas = () if plan.keeps is None else (delta_name(plan.keeps, state) for state in pipeline.states)
    carried = (part.name for part in stored if interval_of_delta(part.name) is not None)
    lists = map(expiring_name, listed_states(pipeline, plan.record))
    own = (*changes, *map(output_name, pipeline.outputs), *own_deltas, *carried, *lists)
    names = dict.fromkeys((*pipeline.side_data, *own))
    side_data = (plan.stored_side_data(subtask, name) for name in names)
    operator = restore_operator(
        plan.layout.operator_states, plan.layout.operator_sources[subtask], side_data, rows_to_emit(pipeline)
    )
    call_hook("initialize_state", pipeline.hooks.initialize_state, _context(plan, subtask), operator)
    return operator


def finish_operator(
    pipeline: Pipeline,
    plan: SnapshotPlan,
    subtask: int,
    operator: OperatorStateBackend,
    recorder: ChangedEntries | None = None,
) -> None:
    """Call the user's hook on the operator state before its snapshot, and add the source position, the emitted rows and
    the recorded changes to it."""
    call_hook("snapshot_state", pipeline.hooks.snapshot_state, _context(plan, subtask), operator)
    _keep_position(plan, subtask, operator)
    for output, stream in operator.emitted.taken():
        operator.side_data(output_name(output)).write(stream)
    if recorder is not None:
        keep_changes(recorder, operator)


def _context(plan: SnapshotPlan, subtask: int) -> SnapshotContext:
    record = plan.record
    return SnapshotContext(
        checkpoint_id=record.checkpoint_id,
        savepoint=record.kind is SnapshotKind.SAVEPOINT,
        subtask=subtask,
        parallelism=record.parallelism,
        restored=record.base is not None,
        watermark_ms=plan.position.watermark_ms,
    )


def _keep_position(plan: SnapshotPlan, subtask: int, operator: OperatorStateBackend) -> None:
    """Store the source position as list state of the first subtask; nothing is stored before the first interval."""
    if subtask == 0 and plan.position.interval is not None:
        operator.register(SOURCE_POSITION)
        operator.list_state(SOURCE_POSITION.name).update([element_of(plan.position)])
        if plan.position.versions:
            operator.register(TABLE_VERSIONS)
            operator.list_state(TABLE_VERSIONS.name).update([asdict(version) for version in plan.position.versions])
