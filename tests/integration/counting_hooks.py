"""Hooks that count, in each subtask, the snapshots that were taken of its state, and note what they were called for."""

import pyarrow as pa

from statelib.backends.operator.state import OperatorStateBackend
from statelib.functions.user_code.hooks import SnapshotContext


def initialize_state(context: SnapshotContext, operator: OperatorStateBackend) -> None:
    """Add up the counts that rescaling brought together."""
    snapshots = operator.list_state("snapshots")
    counted = snapshots.get()
    assert context.restored or not counted
    snapshots.update([sum(counted)])
    operator.list_state("calls").clear()


def snapshot_state(context: SnapshotContext, operator: OperatorStateBackend) -> None:
    snapshots, events = operator.list_state("snapshots"), operator.list_state("events")
    snapshots.update([sum(snapshots.get()) + 1])
    call = {"id": context.checkpoint_id, "savepoint": context.savepoint, "subtask": context.subtask}
    more = {"of": context.parallelism, "restored": context.restored, "at": context.watermark_ms}
    operator.list_state("calls").add(call | more | {"events": sum(events.get())})
    events.clear()


def update(events: pa.Table, state: pa.Table, operator: OperatorStateBackend) -> pa.Table:
    """Store one event per shop; the hook stores the number of events."""
    operator.list_state("events").add(len(events))
    return pa.table({"shop": state["shop"], "n": [1] * len(state)})


def fail(context: SnapshotContext, operator: OperatorStateBackend) -> None:
    raise OSError("no more room for notes")
