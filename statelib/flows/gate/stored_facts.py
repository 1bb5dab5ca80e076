"""Collect the facts that the quality gate judges by reading the whole snapshot back from storage."""

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
from statelib.model.session_state import timed_states
from statelib.model.state import StateStatistics, empty_statistics
from statelib.quality.facts import AppliedInterval, CheckpointFacts, SourceHistory
from statelib.restore.schemas.compatibility import Compatibility
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.stored_content import StoredContent, read_content
from statelib.storage.registry import PLACES


def collect_facts(
    deployment: Deployment,
    pipeline: Pipeline,
    record: CheckpointRecord,
    opened: Checkpoint,
    *,
    lineage: Sequence[CheckpointRecord],
    seeded_from: Checkpoint | None = None,
) -> CheckpointFacts:
    """Return the facts about a snapshot: the sizes and checksums of its files and, if all of them are whole, the number
    of its entries, counted again. ``lineage``: the records of its base, the base's base and so on; if it is empty,
    nothing is compared with a base. ``seeded_from``: the snapshot that takes the place of the base."""
    files = opened.manifest.files if opened.manifest else ()
    kind = PLACES.kind(opened.directory)
    findings = kind.verify_files(opened.directory, files, read_data=True, allowed_root=opened.allowed_root)
    whole = all(not finding.problem for finding in findings)
    ranges = tuple(handle.key_group_range for handle in opened.handles())
    whole = whole and _is_covered(opened, ranges)
    content, unreadable = _read_back(opened, deployment.scratch()) if whole else (None, "")
    base, source = None, None
    if lineage and opened.manifest is not None:
        before = deployment.open(lineage[0])
        if before.manifest is not None:
            base = _base_statistics(pipeline, before, before.manifest.statistics, opened.manifest)
        source = _source_history(pipeline, lineage, before)
    elif seeded_from is not None and opened.manifest is not None:
        stored = read_content(seeded_from, deployment.scratch()).statistics
        base = _base_statistics(pipeline, seeded_from, stored, opened.manifest)
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
    """Return whether each key group is in exactly one handle. Otherwise the entries are not counted, because all counts
    would be wrong."""
    manifest = opened.manifest
    if manifest is None:
        return False
    return not manifest.schema.states or covers_exactly_once(ranges, manifest.schema.max_parallelism)


def _read_back(opened: Checkpoint, scratch: str) -> tuple[StoredContent | None, str]:
    """Return the stored content and '', or None and the reason why it cannot be read although all checksums are
    right."""
    try:
        return read_content(opened, scratch), ""
    except (CorruptStateError, NotFoundError, UnsupportedError) as error:
        return None, f"{error.kind}: {error.message}"


def _source_history(pipeline: Pipeline, lineage: Sequence[CheckpointRecord], before: Checkpoint) -> SourceHistory:
    position = before.position()
    applied = tuple(AppliedInterval(r.checkpoint_id, r.interval) for r in lineage if r.interval is not None)
    return SourceHistory(position.interval if position else None, applied, pipeline.on_gap == "allow")


def _base_statistics(
    pipeline: Pipeline, base: Checkpoint, statistics: Sequence[StateStatistics], manifest: CheckpointManifest
) -> tuple[StateStatistics, ...]:
    """Return the base's statistics per present state of the pipeline. A new state was empty.
    The digests of a migrated state cannot be compared with those of its old values, and timers that fired for a drained
    savepoint change states without events: for these, the present statistics are returned, so that they compare
    equal."""
    evolution = continuation(pipeline, base).evolution
    stored = {d.name: s for d, s in zip(evolution.found.states, statistics, strict=True)}
    recorded = {d.name: s for d, s in zip(manifest.schema.states, manifest.statistics, strict=True)}
    aligned = []
    for resolution in evolution.resolutions:
        before, now = stored.get(resolution.stored or ""), recorded.get(resolution.state)
        if before is None:
            before = empty_statistics(all_key_groups(manifest.schema.max_parallelism))
        elif resolution.compatibility is Compatibility.AFTER_MIGRATION and now is not None:
            before = replace(before, digests=now.digests)
        if manifest.drained and now is not None and resolution.state in timed_states(manifest.schema):
            before = now
        aligned.append(before)
    return tuple(aligned)
