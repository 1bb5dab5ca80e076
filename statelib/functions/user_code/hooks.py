"""Hooks: user code that runs after the operator state of a subtask is restored and before it is snapshotted.

Source: docs/spec/requirements.md R116, R117; CheckpointedFunction of Flink (initializeState, snapshotState).
"""

from dataclasses import dataclass

from statelib.backends.operator.state import OperatorStateBackend
from statelib.functions.user_code.resolve import resolve
from statelib.model.ids import CheckpointId


@dataclass(frozen=True)
class SnapshotContext:
    """The snapshot and the subtask for which a hook is called.

    ``restored`` is True if the state comes from an earlier snapshot, and False in the first run of a pipeline.
    ``savepoint`` is True for a savepoint, which applies no events. ``watermark_ms`` is the event time of the
    snapshotted state in epoch milliseconds: the last millisecond of the newest interval."""

    checkpoint_id: CheckpointId
    savepoint: bool
    subtask: int
    parallelism: int
    restored: bool
    watermark_ms: int


def call_hook(name: str, reference: str | None, context: SnapshotContext, operator: OperatorStateBackend) -> None:
    """Call the function ``reference`` as ``hook(context, operator)``. Do nothing if it is None.

    ``name`` is the name of the hook in the pipeline file. The result of the function is ignored. Raise what
    :func:`resolve` and the function raise."""
    if reference is None:
        return
    try:
        resolve(reference)(context, operator)
    except Exception as error:
        error.add_note(f"in hooks.{name}, {reference}, of subtask {context.subtask}")
        raise
