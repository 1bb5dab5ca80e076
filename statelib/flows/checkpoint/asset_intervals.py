"""The data interval of a run that updates of an asset started."""

from collections.abc import Sequence
from dataclasses import dataclass

from statelib.definition.pipeline import Pipeline
from statelib.definition.source.parts import range_text
from statelib.errors import InvalidRequestError
from statelib.flows.checkpoint.next_intervals import end_of_state
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval
from statelib.model.ids import PipelineName
from statelib.model.moments import moment_of


@dataclass(frozen=True)
class AssetUpdate:
    """One update of an asset. ``interval``: the interval that it names, None if it names none."""

    at_ms: int
    interval: DataInterval | None = None


def interval_of_updates(
    deployment: Deployment, pipeline: Pipeline, updates: Sequence[AssetUpdate]
) -> DataInterval | None:
    """Return the interval of a run that ``updates`` started: the range of the intervals that they name and that the
    state does not have yet. If they name none, it is the time from the end of the state to the last update. None if the
    state has all of it already.

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
    catalog, name = deployment.catalog(), PipelineName(pipeline.name)
    new = [each for each in named if catalog.applied(name, each) is None]
    return _range(pipeline, new) if new else None


def _until(deployment: Deployment, pipeline: Pipeline, end_ms: int) -> DataInterval | None:
    start_ms = end_of_state(deployment, pipeline)
    if start_ms is None:
        raise InvalidRequestError(
            f"pipeline {pipeline.name} has no state and no schedule: the start of its first interval is unknown",
            kind="no-start",
        )
    return DataInterval(start_ms, end_ms) if start_ms < end_ms else None


def _range(pipeline: Pipeline, intervals: Sequence[DataInterval]) -> DataInterval:
    """Return the range of intervals that follow each other or overlap."""
    first, *others = sorted(intervals, key=lambda each: (each.start_ms, each.end_ms))
    start_ms, end_ms = first.start_ms, first.end_ms
    for each in others:
        if each.start_ms > end_ms and pipeline.on_gap == "fail":
            raise InvalidRequestError(
                f"{pipeline.name}: the updates of the asset that started this run name {range_text(each)} after "
                f"{moment_of(end_ms).isoformat()}: the events in between would be lost",
                kind="interval-gap",
                hint="update the asset for the missing interval, and clear the run; or set 'on_gap: allow'",
            )
        end_ms = max(end_ms, each.end_ms)
    return DataInterval(start_ms, end_ms)
