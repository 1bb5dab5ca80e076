"""The conditions for the events of a data interval to be complete, as plain values: one rule per source."""

import json
from dataclasses import asdict, dataclass
from datetime import tzinfo

from statelib.definition.declared import DeclaredPipeline
from statelib.definition.parts.durations import milliseconds
from statelib.definition.parts.source import Ready
from statelib.definition.source.intervals import first_intervals
from statelib.definition.source.parts import SourcePart, source_part, source_parts
from statelib.definition.source.templates import at_interval, is_whole_path
from statelib.model.checkpoint import DataInterval
from statelib.model.path_patterns import split_pattern


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
    """The conditions of one source before an interval is applied. ``source``: the source's name, '' if it is the only
    one. ``may_be_missing``: a path that does not exist is an interval without events, once the other conditions hold.
    ``asset``: URI of an Airflow asset, None if there is no such condition; only Airflow can check it. ``poke_ms``,
    ``timeout_ms``: the time between two checks by the DAG, and until it fails."""

    source: str
    parts: tuple[PartRule, ...]
    end_ms: int
    poke_ms: int
    timeout_ms: int
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
        return cls(parts=parts, **values)


def ready_rules(pipeline: DeclaredPipeline, data: str, interval: DataInterval) -> tuple[ReadyRule, ...]:
    """Return the conditions of each source with ``ready`` for this interval, in the order of the pipeline file.

    Raises the errors of :func:`~statelib.definition.source.parts.source_parts`."""
    if all(source.ready is None for source in pipeline.inputs.values()):
        return ()
    parts = source_parts(pipeline, data, interval)
    return tuple(
        _source_rule(pipeline, source.ready, data, [part for part in parts if part.field == field])
        for field, source in pipeline.inputs.items()
        if source.ready is not None
    )


def _source_rule(pipeline: DeclaredPipeline, ready: Ready, data: str, parts: list[SourcePart]) -> ReadyRule:
    return ReadyRule(
        source=parts[0].name,
        parts=tuple(_part_rule(pipeline, ready, data, part) for part in parts),
        end_ms=parts[-1].interval.end_ms,
        poke_ms=milliseconds(ready.poke_interval),
        timeout_ms=milliseconds(ready.timeout),
        min_age_ms=milliseconds(ready.min_age) if ready.min_age else 0,
        may_be_missing=parts[0].source.on_missing == "empty",
        asset=ready.asset,
    )


def marker_path(marker: str, data: str, part: SourcePart, zone: tzinfo) -> str:
    """Return the path of a marker for one part of a source: one of its own, or a name in the part's directory.
    ``data``: the value of ``{data}``; ``zone``: the time zone of the schedule."""
    path = at_interval(marker, data, part.interval, zone)
    if is_whole_path(marker) or part.path is None:
        return path
    return f"{split_pattern(part.path)[0].rstrip('/')}/{path}"


def _part_rule(pipeline: DeclaredPipeline, ready: Ready, data: str, part: SourcePart) -> PartRule:
    next_path = None
    marker = None if ready.marker is None else marker_path(ready.marker, data, part, pipeline.zone)
    if ready.next_interval and pipeline.cron_schedule is not None:
        (following,) = first_intervals(pipeline.cron_schedule, part.interval.end_ms, 1)
        next_path = source_part(part.source, part.field, data, following, pipeline.zone).path
    return PartRule(part.path, part.interval.end_ms, marker, next_path)
