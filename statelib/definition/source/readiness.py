"""The conditions for the events of a data interval to be complete, as plain values."""

import json
from dataclasses import asdict, dataclass

from statelib.definition.declared import DeclaredPipeline
from statelib.definition.parts.durations import milliseconds
from statelib.definition.parts.source import Ready
from statelib.definition.source.intervals import first_intervals
from statelib.definition.source.parts import SourcePart, source_part, source_parts
from statelib.definition.source.templates import at_interval, is_whole_path
from statelib.model.checkpoint import DataInterval


@dataclass(frozen=True)
class PartRule:
    """The conditions at one path. ``path``: None if the source is no path. ``marker``, ``next_path``: paths that must
    exist, None if the pipeline file has no such condition. ``end_ms``: end of the part's interval."""

    path: str | None
    end_ms: int
    marker: str | None = None
    next_path: str | None = None


@dataclass(frozen=True)
class ReadyRule:
    """The conditions before an interval is applied. ``may_be_missing``: a path that does not exist is an interval
    without events, once the other conditions hold. ``asset``: URI of an Airflow asset, None if there is no such
    condition; only Airflow can check it."""

    parts: tuple[PartRule, ...]
    end_ms: int
    min_age_ms: int = 0
    may_be_missing: bool = False
    asset: str | None = None

    def to_json(self) -> str:
        """Return the rule as JSON text, which Airflow can serialize."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "ReadyRule":
        """Return the rule that :meth:`to_json` wrote."""
        values = json.loads(text)
        parts = tuple(PartRule(**part) for part in values.pop("parts"))
        return cls(parts, **values)


def ready_rule(pipeline: DeclaredPipeline, data: str, interval: DataInterval) -> ReadyRule | None:
    """Return the conditions of ``source.ready`` for this interval, None if the pipeline file has none.

    Raises the errors of :func:`~statelib.definition.source.parts.source_parts`."""
    source, ready = pipeline.source, pipeline.source.ready
    if ready is None:
        return None
    parts = tuple(_rule(pipeline, ready, data, part) for part in source_parts(pipeline, data, interval))
    age_ms = milliseconds(ready.min_age) if ready.min_age else 0
    return ReadyRule(parts, interval.end_ms, age_ms, source.on_missing == "empty", ready.asset)


def _rule(pipeline: DeclaredPipeline, ready: Ready, data: str, part: SourcePart) -> PartRule:
    marker = next_path = None
    if ready.marker is not None:
        marker = at_interval(ready.marker, data, part.interval, pipeline.zone)
        if not is_whole_path(ready.marker) and part.path is not None:
            marker = f"{part.path.rstrip('/')}/{marker}"
    if ready.next_interval and pipeline.schedule is not None:
        (following,) = first_intervals(pipeline.schedule, part.interval.end_ms, 1)
        next_path = source_part(pipeline.source, data, following, pipeline.zone).path
    return PartRule(part.path, part.interval.end_ms, marker, next_path)
