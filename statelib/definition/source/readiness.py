"""What has to be there before the events of a data interval are taken for complete, as plain values."""

import json
from dataclasses import asdict, dataclass

from statelib.definition.declared import DeclaredPipeline
from statelib.definition.durations import milliseconds
from statelib.definition.model import Ready
from statelib.definition.source.intervals import first_intervals
from statelib.definition.source.parts import SourcePart, source_parts
from statelib.definition.source_templates import at_interval, is_whole_path
from statelib.model.checkpoint import DataInterval


@dataclass(frozen=True)
class PartRule:
    """What is waited for at one path. ``marker``, ``next_path``: None where the file does not ask for it.
    ``end_ms``: of the part's interval."""

    path: str
    end_ms: int
    marker: str | None = None
    next_path: str | None = None


@dataclass(frozen=True)
class ReadyRule:
    """What is waited for before an interval is applied. ``may_be_missing``: a path that is not there is an interval
    without events, once all else holds. ``asset``: None, or the URI of what only Airflow knows of."""

    parts: tuple[PartRule, ...]
    end_ms: int
    min_age_ms: int = 0
    may_be_missing: bool = False
    asset: str | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "ReadyRule":
        values = json.loads(text)
        parts = tuple(PartRule(**part) for part in values.pop("parts"))
        return cls(parts, **values)


def ready_rule(pipeline: DeclaredPipeline, data: str, interval: DataInterval) -> ReadyRule | None:
    """Return what ``source.ready`` asks for before this interval is applied; None where the file has no such rule.

    Raises what :func:`~statelib.definition.source.parts.source_parts` raises."""
    source, ready = pipeline.source, pipeline.source.ready
    if ready is None:
        return None
    parts = tuple(_rule(pipeline, ready, data, part) for part in source_parts(pipeline, data, interval))
    age_ms = milliseconds(ready.min_age) if ready.min_age else 0
    return ReadyRule(parts, interval.end_ms, age_ms, source.on_missing == "empty", ready.asset)


def _rule(pipeline: DeclaredPipeline, ready: Ready, data: str, part: SourcePart) -> PartRule:
    marker = next_path = None
    if ready.marker is not None:
        marker = at_interval(ready.marker, data, part.interval)
        if not is_whole_path(ready.marker):
            marker = f"{part.path.rstrip('/')}/{marker}"
    if ready.next_interval and pipeline.schedule is not None:
        (following,) = first_intervals(pipeline.schedule.cron, part.interval.end_ms, 1)
        next_path = pipeline.source.location(data, following)
    return PartRule(part.path, part.interval.end_ms, marker, next_path)
