"""The recording of a run's changes for published feeds, which spares the publisher from comparing two checkpoints."""

from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.operator.state import OperatorStateBackend
from statelib.backends.wrappers.changed_entries import ChangedEntries
from statelib.definition.pipeline import Pipeline
from statelib.definition.published_columns import published_state
from statelib.flows.checkpoint.snapshot_plan import SnapshotPlan
from statelib.model.checkpoint import SnapshotKind
from statelib.savepoints.recorded_changes import changes_name


def recorded_states(pipeline: Pipeline, plan: SnapshotPlan, subtask: int) -> tuple[str, ...]:
    """Return the states whose changes the subtask records: those that have a feed or a table that is merged, and that
    the base of a checkpoint has in the same form. Without a base all entries are new, and a table begins with them."""
    if plan.record.kind is not SnapshotKind.CHECKPOINT or plan.record.base is None:
        return ()
    published = [each for each in pipeline.publish.values() if each.takes_changes]
    states = dict.fromkeys(published_state(pipeline, publication).name for publication in published)
    stored = [source.schema.states for source in plan.layout.sources[subtask]]
    schema = plan.layout.schema.as_recorded()
    return tuple(state for state in states if all(schema.state(state) in descriptors for descriptors in stored))


def recording(pipeline: Pipeline, plan: SnapshotPlan, subtask: int, backend: KeyedStateBackend) -> ChangedEntries:
    """Return the backend in a wrapper that records the changes of :func:`recorded_states`."""
    return ChangedEntries(backend, recorded_states(pipeline, plan, subtask))


def keep_changes(recorder: ChangedEntries, operator: OperatorStateBackend) -> None:
    """Store the recorded changes as side data of the checkpoint."""
    for state, stream in recorder.recorded():
        operator.side_data(changes_name(state)).write(stream)
