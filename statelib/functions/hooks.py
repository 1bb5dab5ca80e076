"""User code at the two moments of a subtask's operator state: after it was restored, and before it is snapshotted.

Source: CheckpointedFunction of Flink (initializeState, snapshotState).
"""

from dataclasses import dataclass

from statelib.backends.operator import OperatorStateBackend
from statelib.functions.resolve import resolve
from statelib.model.ids import CheckpointId


@dataclass(frozen=True)
class SnapshotContext:
    """The snapshot that a hook is called for, and the subtask that it is called in.

    ``restored``: whether the state comes from an earlier snapshot; False in a pipeline's first run. ``savepoint``:
    whether this is a savepoint, which applies no events. ``watermark_ms``: event time of the state as it is
    snapshotted, the last millisecond of the newest interval."""

    checkpoint_id: CheckpointId
    savepoint: bool
    subtask: int
    parallelism: int
    restored: bool
    watermark_ms: int


def call_hook(name: str, reference: str | None, context: SnapshotContext, operator: OperatorStateBackend) -> None:
    """Call the function ``reference`` as the hook of that name, as ``hook(context, operator)``; None is no hook.

    What it returns is not used. Raises what :func:`resolve` and the function raise."""
    if reference is None:
        return
    try:
        resolve(reference)(context, operator)
    except Exception as error:
        error.add_note(f"in hooks.{name}, {reference}, of subtask {context.subtask}")
        raise
