"""Collect what the quality gate judges: from storage, by reading everything back."""

from collections.abc import Sequence
from dataclasses import replace

from statelib.coordinator.invariants import covers_exactly_once
from statelib.definition.pipeline import Pipeline
from statelib.errors import CorruptStateError, NotFoundError, UnsupportedError
from statelib.flows.restore.continuation import continuation
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import CheckpointManifest
from statelib.model.key_groups import KeyGroupRange, all_key_groups
from statelib.model.record import CheckpointRecord
from statelib.model.state import (
    EVENT_TIMERS,
    PROCESSING_TIMERS,
    KeyedStateSchema,
    StateStatistics,
    empty_statistics,
)
from statelib.quality.facts import Applied, CheckpointFacts, SourceHistory
from statelib.restore.schemas.compatibility import Compatibility
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.savepoints.stored_content import StoredContent, read_content
from statelib.storage.registry import PLACES


def collect_facts(
    deployment: Deployment,
    pipeline: Pipeline,
    record: CheckpointRecord,
    opened: Checkpoint,
    lineage: Sequence[CheckpointRecord],
) -> CheckpointFacts:
    """Files with their sizes and checksums, then, if all are whole, every entry counted again. ``lineage``: its base,
    the base's base and so on; where it is empty, nothing is compared with a base."""
    files = opened.manifest.files if opened.manifest else ()
    kind = PLACES.kind(opened.directory)
    findings = kind.verify_files(opened.directory, files, read_data=True, allowed_root=opened.allowed_root)
    whole = all(not finding.problem for finding in findings)
    ranges = tuple(handle.key_group_range for handle in opened.handles())
    whole = whole and _is_covered(opened, ranges)
    content, unreadable = _read_back(opened, deployment.scratch()) if whole else (None, "")
    base, source = None, None
    if lineage and opened.manifest is not None:
        before = open_checkpoint(lineage[0].directory, own=True)
        base = _base_statistics(pipeline, before, opened.manifest)
        source = _source_history(pipeline, lineage, before)
    return CheckpointFacts(
        record=record,
        manifest=opened.manifest,
        ranges=ranges,
        file_findings=tuple(findings),
        base_statistics=base,
        read_back=None if content is None else content.statistics,
        read_keys=None if content is None else content.keys,
        unreadable=unreadable,
        source=source,
    )


def _is_covered(opened: Checkpoint, ranges: tuple[KeyGroupRange, ...]) -> bool:
    """Entries of key groups that nobody holds, or that two hold, would be counted as wrong ones."""
    manifest = opened.manifest
    if manifest is None:
        return False
    return not manifest.schema.states or covers_exactly_once(ranges, manifest.schema.max_parallelism)


def _read_back(opened: Checkpoint, scratch: str) -> tuple[StoredContent | None, str]:
    """What is stored, or why it cannot be read although every file has its checksum."""
    try:
        return read_content(opened, scratch), ""
    except (CorruptStateError, NotFoundError, UnsupportedError) as error:
        return None, f"{error.kind}: {error.message}"


def _source_history(pipeline: Pipeline, lineage: Sequence[CheckpointRecord], before: Checkpoint) -> SourceHistory:
    position = before.position()
    applied = tuple(Applied(r.checkpoint_id, r.interval) for r in lineage if r.interval is not None)
    return SourceHistory(position.interval if position else None, applied, pipeline.on_gap == "allow")


def _base_statistics(
    pipeline: Pipeline, base: Checkpoint, manifest: CheckpointManifest
) -> tuple[StateStatistics, ...] | None:
    """The base's statistics, state by state as the pipeline has them now: a new state began empty. The digests of
    a migrated state are not those of its old values: nothing can be compared, so the new ones stand for them, as they
    do for what a drained savepoint has let fire."""
    if base.manifest is None:
        return None
    evolution = continuation(pipeline, base).evolution
    stored = {d.name: s for d, s in zip(evolution.found.states, base.manifest.statistics, strict=True)}
    recorded = {d.name: s for d, s in zip(manifest.schema.states, manifest.statistics, strict=True)}
    aligned = []
    for resolution in evolution.resolutions:
        before, now = stored.get(resolution.stored or ""), recorded.get(resolution.state)
        if before is None:
            before = empty_statistics(all_key_groups(manifest.schema.max_parallelism))
        elif resolution.compatibility is Compatibility.AFTER_MIGRATION and now is not None:
            before = replace(before, digests=now.digests)
        if manifest.drained and now is not None and _is_drained(resolution.state, manifest.schema):
            before = now
        aligned.append(before)
    return tuple(aligned)


def _is_drained(state: str, schema: KeyedStateSchema) -> bool:
    """Whether timers that fire at the end of event time may change a state: a windowed one, one with ``on_timer``, or
    their timers."""
    timers = {name for name in (d.name for d in schema.states) if name.startswith((EVENT_TIMERS, PROCESSING_TIMERS))}
    return state in timers or EVENT_TIMERS + state in timers
