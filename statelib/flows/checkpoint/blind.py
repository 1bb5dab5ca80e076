"""The choice of the subtasks that apply an interval without reading the state: they write a delta."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from statelib.definition.parts.model import CheckpointSettings
from statelib.definition.pipeline import Pipeline
from statelib.flows.restore.layout import RestoreLayout
from statelib.model.checkpoint import SnapshotKind
from statelib.model.handles import ChangelogStateBackendHandleImpl, log_streams
from statelib.model.record import CheckpointRecord
from statelib.restore.live.logged import open_log
from statelib.restore.plan import RestoreSource
from statelib.snapshots.uploads.previous import PreviousSnapshot

log = logging.getLogger(__name__)


def reasons_to_read(
    pipeline: Pipeline, record: CheckpointRecord, layout: RestoreLayout, previous: Sequence[PreviousSnapshot]
) -> tuple[str, ...]:
    """Return the reason of each subtask for which it has to read its state, '' if it leaves the state unread. Return
    nothing if ``checkpoint.blind`` is not set, or if the snapshot is not the checkpoint of an interval. The choices are
    logged."""
    settings = pipeline.checkpoint
    if not settings.blind or record.kind is not SnapshotKind.CHECKPOINT or record.interval is None:
        return ()
    reasons = tuple(_reason_to_read(settings, layout, subtask, files) for subtask, files in enumerate(previous))
    for reason in dict.fromkeys(reasons):
        subtasks = ", ".join(str(subtask) for subtask, other in enumerate(reasons) if other == reason)
        if reason:
            log.info("the state is read by subtask %s: %s", subtasks, reason)
        else:
            log.info("the state is left unread by subtask %s (blind): a delta is added to its change log", subtasks)
    return reasons


def continued_files(previous: PreviousSnapshot, sources: Sequence[RestoreSource], blind: bool) -> PreviousSnapshot:
    """Return the files of the base that a subtask may refer to. One that reads open deltas writes the state as a whole,
    so that its change log begins anew."""
    folds = not blind and any(source.deltas for source in sources)
    return replace(previous, changelog=None) if folds else previous


def _reason_to_read(
    settings: CheckpointSettings, layout: RestoreLayout, subtask: int, previous: PreviousSnapshot
) -> str:
    """Return the reason why a subtask has to read its state, '' if there is none."""
    sources = layout.sources[subtask]
    if not sources:
        return "there is no base"
    handle = open_log(layout.schema, layout.ranges[subtask], sources)
    if handle is None or previous.changelog is None:
        return "the base is no change log of these key groups and states that this run can continue"
    return reason_to_materialise(settings, handle)


def reason_to_materialise(settings: CheckpointSettings, handle: ChangelogStateBackendHandleImpl) -> str:
    """Return why a run has to write the state as a whole instead of adding to its change log, '' if it need not."""
    if len(handle.log) >= settings.materialize_after_checkpoints:
        return f"its change log has {len(handle.log)} parts (materialize_after_checkpoints)"
    size_bytes = sum(stream.size_bytes for stream in log_streams(handle))
    if size_bytes >= settings.materialize_after_bytes:
        return f"its change log has {size_bytes} bytes (materialize_after_bytes)"
    return ""
