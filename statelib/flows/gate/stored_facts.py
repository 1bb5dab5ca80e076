"""Collect the facts that the quality gate judges by reading the snapshot back from storage."""

from collections.abc import Sequence
from dataclasses import replace

from statelib.coordinator.invariants import covers_exactly_once
from statelib.definition.pipeline import Pipeline
from statelib.errors import CorruptStateError, NotFoundError, UnsupportedError
from statelib.flows.gate.reading import Reading, has_merged, reading_of
from statelib.flows.restore.continuation import continuation
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import CheckpointManifest
from statelib.model.key_groups import KeyGroupRange, all_key_groups
from statelib.model.record import CheckpointRecord
from statelib.model.session_state import timed_states
from statelib.model.state import StateStatistics, empty_statistics
from statelib.quality.facts import AppliedInterval, CheckpointFacts, PartialReading, SourceHistory
from statelib.restore.schemas.compatibility import Compatibility
from statelib.restore.stored.new_parts import written_key_groups
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.verification.stored_content import StoredContent, read_content, read_settled
from statelib.storage.ports.inventory import FileFinding
from statelib.storage.registry import PLACES


def collect_facts(
    deployment: Deployment,
    pipeline: Pipeline,
    record: CheckpointRecord,
    opened: Checkpoint,
    *,
    lineage: Sequence[CheckpointRecord],
    base_proved: bool = False,
    trusts_job: bool = False,
    seeded_from: Checkpoint | None = None,
) -> CheckpointFacts:
    """Return the facts about a snapshot: the sizes and checksums of its files and, if all of them are whole, the number
    of its entries, counted again. ``lineage``: the records of its base, the base's base and so on; if it is empty,
    nothing is compared with a base. ``base_proved``: whether the gate has proved the base, so that only a part of what
    it has too is read. ``trusts_job``: whether nothing is read if the manifest says that the job has read it.
    ``seeded_from``: the snapshot that takes the place of the base.
    If open deltas of the base were merged with the state, everything is read and compared with the manifest alone."""
    before = deployment.open(lineage[0]) if lineage and opened.manifest is not None else None
    merged = before is not None and has_merged(opened, before)
    reading = reading_of(pipeline, opened, before if base_proved else None, record=record, checkpoints=len(lineage))
    by_job = trusts_job and opened.manifest is not None and opened.manifest.read_by_job
    if by_job and opened.manifest is not None:
        reading = Reading((), frozenset(file.path for file in opened.manifest.files), ())
    findings = _verify_files(opened, reading)
    ranges = tuple(handle.key_group_range for handle in opened.handles())
    whole = all(not finding.problem for finding in findings) and _is_covered(opened, ranges)
    content, unreadable, written = _read_back(opened, reading, deployment.scratch()) if whole else (None, "", set())
    base, source = None, None
    if before is not None and opened.manifest is not None:
        if before.manifest is not None and not merged:
            base = base_statistics(pipeline, before, before.manifest.statistics, opened.manifest)
        source = _source_history(pipeline, lineage, before)
    elif seeded_from is not None and opened.manifest is not None:
        stored = read_content(seeded_from, deployment.scratch()).statistics
        base = base_statistics(pipeline, seeded_from, stored, opened.manifest)
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
        partial=_partial(opened, reading, written, by_job=by_job),
    )


def _verify_files(opened: Checkpoint, reading: Reading) -> list[FileFinding]:
    """Return one finding per file of the manifest, in its order. Files that are not read have their size compared."""
    kind, files = PLACES.kind(opened.directory), opened.manifest.files if opened.manifest else ()
    read = set(reading.files)
    by_path: dict[str, FileFinding] = {}
    for with_data in (True, False):
        part = [file for file in files if (file in read) is with_data]
        findings = kind.verify_files(opened.directory, part, with_data, allowed_root=opened.allowed_root)
        by_path |= {file.path: finding for file, finding in zip(part, findings, strict=True)}
    return [by_path[file.path] for file in files]


def _partial(opened: Checkpoint, reading: Reading, written: set[int], *, by_job: bool) -> PartialReading | None:
    if reading.key_groups is None or opened.manifest is None:
        return None
    groups = frozenset(group for part in reading.key_groups for group in part)
    skipped = {file.path for file in opened.manifest.files} - {file.path for file in reading.files}
    if by_job:
        written = set(all_key_groups(opened.manifest.schema.max_parallelism))
    return PartialReading(frozenset(skipped), groups, frozenset(written), by_job)


def _is_covered(opened: Checkpoint, ranges: tuple[KeyGroupRange, ...]) -> bool:
    """Return whether each key group is in exactly one handle. Otherwise the entries are not counted, because all counts
    would be wrong."""
    manifest = opened.manifest
    if manifest is None:
        return False
    return not manifest.schema.states or covers_exactly_once(ranges, manifest.schema.max_parallelism)


def _read_back(opened: Checkpoint, reading: Reading, scratch: str) -> tuple[StoredContent | None, str, set[int]]:
    """Return the stored content, '' and the key groups of which new files have entries. If something cannot be read
    although all checksums are right, return None and the reason."""
    written = set(reading.merged)
    try:
        if reading.key_groups is not None:
            for source in filter(reading.reads_a_part, replace(opened, settled=True).managed_sources()):
                written |= written_key_groups(source, reading.is_known)
        return read_settled(opened, scratch, reading.key_groups, reading.is_known), "", written
    except (CorruptStateError, NotFoundError, UnsupportedError) as error:
        return None, f"{error.kind}: {error.message}", written


def _source_history(pipeline: Pipeline, lineage: Sequence[CheckpointRecord], before: Checkpoint) -> SourceHistory:
    position = before.position()
    applied = tuple(AppliedInterval(r.checkpoint_id, r.interval) for r in lineage if r.interval is not None)
    return SourceHistory(position.interval if position else None, applied, pipeline.on_gap == "allow")


def base_statistics(
    pipeline: Pipeline, base: Checkpoint, statistics: Sequence[StateStatistics], manifest: CheckpointManifest
) -> tuple[StateStatistics, ...]:
    """Return the base's statistics per present state of the pipeline. A new state was empty.
    The digests of a migrated state cannot be compared with those of its old values, and timers that fired for a drained
    savepoint change states without events: for these, the present statistics are returned, so that they compare
    equal."""
    evolution = continuation(pipeline, base).evolution
    stored = {d.name: s for d, s in zip(evolution.found.states, statistics, strict=True)}
    recorded = {d.name: s for d, s in manifest.statistics_by_state()}
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
