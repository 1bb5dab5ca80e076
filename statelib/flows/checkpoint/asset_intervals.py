"""The data interval of a run that updates of an asset started."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from statelib.definition.pipeline import Pipeline
from statelib.definition.source.parts import range_text
from statelib.errors import InvalidRequestError
from statelib.flows.checkpoint.next_intervals import end_of_state
from statelib.flows.checkpoint.steps import update_hint
from statelib.flows.lifecycle.renaming import former_head
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval
from statelib.model.moments import epoch_ms, moment_of


@dataclass(frozen=True)
class AssetUpdate:
    """One update of an asset. ``interval``: the interval that it names, None if it names none."""

    at_ms: int
    interval: DataInterval | None = None


def interval_of_updates(
    deployment: Deployment, pipeline: Pipeline, updates: Sequence[AssetUpdate]
) -> DataInterval | None:
    """Return the interval of a run that ``updates`` started: the range of the intervals that they name and that the
    state does not have yet. If they name none, it is the time from the end of the state to the last update, or to
    ``schedule.end``. None if the state has all of it already. Intervals that are not :func:`in_schedule` are left out.

    Raises InvalidRequestError: ``interval-gap`` if the intervals do not follow each other, ``bad-interval`` if only
    some updates name one, ``no-start``."""
    named = [update.interval for update in updates if update.interval is not None]
    if not named:
        return _until(deployment, pipeline, max(update.at_ms for update in updates))
    if len(named) < len(updates):
        raise InvalidRequestError(
            f"{pipeline.name}: {len(named)} of the {len(updates)} updates of the asset that started this run name an "
            "interval: expected all of them or none",
            kind="bad-interval",
            hint="give each update an extra with start and end, or a partition",
        )
    new = _not_applied(deployment, pipeline, [each for each in named if in_schedule(pipeline, each)])
    return _range(pipeline, new) if new else None


def in_schedule(pipeline: Pipeline, interval: DataInterval) -> bool:
    """Return whether an interval ends after ``schedule.start`` and does not begin after ``schedule.end``. True if the
    pipeline has no schedule."""
    schedule = pipeline.schedule
    if schedule is None:
        return True
    is_begun = interval.end_ms > epoch_ms(schedule.start)
    return is_begun and (schedule.end is None or interval.start_ms <= epoch_ms(schedule.end))


def _not_applied(deployment: Deployment, pipeline: Pipeline, named: Sequence[DataInterval]) -> list[DataInterval]:
    """Return the intervals that the state does not have, neither as they are nor as parts of what it has.

    If gaps are allowed, a part is not enough: an interval of several updates may have times that none of them named."""
    catalog = deployment.catalog()
    head = former_head(deployment, pipeline) or catalog.head(pipeline.name)
    records = catalog.lineage(head.pipeline, head.head) if head.head is not None else []
    applied = {record.interval for record in records if record.interval is not None}
    ranges = [] if pipeline.on_gap == "allow" else _joined(applied)
    return [
        each
        for each in named
        if each not in applied
        and not any(one.start_ms <= each.start_ms and each.end_ms <= one.end_ms for one in ranges)
    ]


def _joined(intervals: Iterable[DataInterval]) -> list[DataInterval]:
    """Return the ranges of intervals that follow each other."""
    ranges: list[DataInterval] = []
    for each in sorted(intervals, key=lambda one: one.start_ms):
        if ranges and each.start_ms <= ranges[-1].end_ms:
            each = DataInterval(ranges.pop().start_ms, each.end_ms)  # noqa: PLW2901
        ranges.append(each)
    return ranges


def _until(deployment: Deployment, pipeline: Pipeline, end_ms: int) -> DataInterval | None:
    start_ms = end_of_state(deployment, pipeline)
    if start_ms is None:
        raise InvalidRequestError(
            f"pipeline {pipeline.name} has no state and no schedule: the start of its first interval is unknown",
            kind="no-start",
        )
    if pipeline.schedule is not None and pipeline.schedule.end is not None:
        end_ms = min(end_ms, epoch_ms(pipeline.schedule.end))
    return DataInterval(start_ms, end_ms) if start_ms < end_ms else None


def _range(pipeline: Pipeline, intervals: Sequence[DataInterval]) -> DataInterval:
    """Return the range of intervals that follow each other or overlap."""
    first, *others = sorted(intervals, key=lambda each: (each.start_ms, each.end_ms))
    start_ms, end_ms = first.start_ms, first.end_ms
    last_ms = max(each.end_ms for each in intervals)
    for each in others:
        if each.start_ms > end_ms and pipeline.on_gap == "fail":
            raise InvalidRequestError(
                f"{pipeline.name}: the updates of the asset that started this run name {range_text(each)} after "
                f"{moment_of(end_ms).isoformat()}: the events in between would be lost",
                kind="interval-gap",
                hint=f"{update_hint(start_ms, last_ms)}; or set 'on_gap: allow' in the pipeline file",
            )
        end_ms = max(end_ms, each.end_ms)
    return DataInterval(start_ms, end_ms)
