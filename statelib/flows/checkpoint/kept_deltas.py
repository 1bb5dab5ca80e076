"""The deltas of intervals that checkpoints keep for ``statelib mend``: which ones a new checkpoint refers to again."""

from collections.abc import Iterator

from statelib.definition.parts.durations import milliseconds
from statelib.definition.pipeline import Pipeline
from statelib.functions.mending.kept_delta import delta_name, interval_of_delta
from statelib.model.checkpoint import DataInterval, SnapshotKind
from statelib.model.record import CheckpointRecord
from statelib.savepoints.opened import Checkpoint


def carried_deltas(pipeline: Pipeline, record: CheckpointRecord, base: Checkpoint | None) -> tuple[str, ...]:
    """Return the names of the side data with the deltas of the base that a checkpoint keeps: those of
    ``checkpoint.mendable`` before the end of its interval. A savepoint keeps none. A correction keeps all, because it
    needs those from before ``mendable`` became shorter.

    None is kept across an interval without a delta, so the deltas of a checkpoint are always those of its newest
    intervals. None is kept across a change of a state: nothing can be computed from deltas of both definitions."""
    mendable = pipeline.checkpoint.mendable
    if mendable is None or record.kind is SnapshotKind.SAVEPOINT or base is None or changed_states(pipeline, base):
        return ()
    intervals = mendable_intervals(pipeline, base)
    if record.interval is not None:
        oldest_ms = record.interval.end_ms - milliseconds(mendable)
        intervals = tuple(interval for interval in intervals if interval.end_ms > oldest_ms)
    return tuple(delta_name(interval, state) for interval in intervals for state in pipeline.states)


def changed_states(pipeline: Pipeline, opened: Checkpoint) -> tuple[str, ...]:
    """Return the names of the states of a pipeline that a checkpoint has with another definition, or does not have."""
    stored = opened.schema().states
    return tuple(state.name for state in pipeline.schema().as_recorded().states if state not in stored)


def mendable_intervals(pipeline: Pipeline, opened: Checkpoint) -> tuple[DataInterval, ...]:
    """Return the intervals of which a checkpoint keeps the deltas of all states and key groups, the oldest first. There
    is none if it does not keep that of its newest interval, as when this was too large: an earlier one cannot be
    corrected without the effect of all later ones."""
    covered: dict[str, list[int]] = {}
    for record in opened.manifest.side_data if opened.manifest else ():
        covered.setdefault(record.name, []).extend(record.key_group_range)
    whole = list(range(pipeline.max_parallelism))

    def complete(interval: DataInterval) -> bool:
        names = (delta_name(interval, state) for state in pipeline.states)
        return all(sorted(covered.get(name, ())) == whole for name in names)

    intervals = tuple(sorted(filter(complete, set(_intervals(covered))), key=lambda interval: interval.start_ms))
    position = opened.position()
    return intervals if position is not None and position.interval in intervals else ()


def kept_interval(pipeline: Pipeline, record: CheckpointRecord) -> DataInterval | None:
    """Return the interval of which a checkpoint keeps the delta of its own events; None if it keeps none."""
    keeps = record.kind is SnapshotKind.CHECKPOINT and pipeline.checkpoint.mendable is not None
    return record.mends or record.interval if keeps else None


def _intervals(names: dict[str, list[int]]) -> Iterator[DataInterval]:
    for name in names:
        interval = interval_of_delta(name)
        if interval is not None:
            yield interval


def later_intervals(pipeline: Pipeline, opened: Checkpoint, mended: DataInterval) -> tuple[DataInterval, ...]:
    """Return the intervals after ``mended`` of which a checkpoint keeps the deltas, the oldest first."""
    return tuple(each for each in mendable_intervals(pipeline, opened) if each.start_ms >= mended.end_ms)
