"""Collect the facts that the pipeline's own ``checks`` judge, once the checkpoint is proved to be whole."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from statelib.definition.checks.quality import split_field
from statelib.definition.expectations import EXPECTATIONS, class_name
from statelib.definition.pipeline import Pipeline
from statelib.errors import StatelibError
from statelib.flows.gate.rehearsing import rehearsed
from statelib.flows.gate.state_sample import SampledKeyGroups, choose, sample
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import CheckpointManifest, SnapshotKind
from statelib.model.record import CheckpointRecord, CheckpointState
from statelib.quality.facts import (
    CheckpointFacts,
    Comparison,
    StateSample,
    Trend,
    UserExpectation,
)
from statelib.savepoints.opened import Checkpoint


def with_checks(
    deployment: Deployment,
    pipeline: Pipeline,
    facts: CheckpointFacts,
    opened: Checkpoint,
    lineage: Sequence[CheckpointRecord],
    *,
    trusts_job: bool = False,
) -> CheckpointFacts:
    """Return ``facts`` with what the pipeline's checks need added. ``lineage`` and ``trusts_job``: as for
    :func:`~statelib.flows.gate.stored_facts.collect_facts`.

    Nothing is added for a savepoint, which is a copy of a state that was judged when its checkpoint was registered, and
    nothing for a snapshot whose content differs from what was recorded."""
    manifest = facts.manifest
    if facts.record.kind is SnapshotKind.SAVEPOINT or manifest is None or not _is_sound(facts, manifest):
        return facts
    checks = pipeline.checks
    history = _history(lineage, checks.drift.history)
    samples = dict(_samples(deployment, pipeline, opened, manifest))
    return replace(
        facts,
        trends=tuple(trends_of(deployment, pipeline, history, opened, manifest)),
        comparisons=tuple(_comparisons(deployment, pipeline, history[-1:], samples)),
        samples=samples,
        expectations=tuple(_expectations(pipeline)),
        rehearsal=rehearsed(
            deployment, pipeline, facts.record, opened, checkpoints=len(lineage), trusts_job=trusts_job
        ),
    )


def _is_sound(facts: CheckpointFacts, manifest: CheckpointManifest) -> bool:
    """Return whether the content that was read is the content that the manifest records."""
    read = facts.read_back
    if read is None or not len(read) == len(manifest.statistics) == len(manifest.schema.states):
        return False
    groups = facts.read_key_groups(manifest.schema.max_parallelism)
    return all(
        len(a.entries) == len(b.entries)
        and bool((a.entries[groups] == b.entries[groups]).all() and (a.digests[groups] == b.digests[groups]).all())
        for a, b in zip(read, manifest.statistics, strict=True)
    )


def _history(lineage: Sequence[CheckpointRecord], length: int) -> list[CheckpointRecord]:
    """Return the newest ``length`` completed checkpoints of the lineage, the oldest first."""
    completed = [r for r in lineage if r.state is CheckpointState.COMPLETED]
    return completed[:length][::-1]


def trends_of(
    deployment: Deployment,
    pipeline: Pipeline,
    history: list[CheckpointRecord],
    opened: Checkpoint,
    manifest: CheckpointManifest,
) -> Iterator[Trend]:
    """Yield the numbers that are compared with those of ``history``: of the checkpoint, and of each state."""
    size, entries = pipeline.checks.drift.size_bytes, pipeline.checks.drift.entries
    if size is not None:
        # A savepoint that was restored has another format, and so another size than a checkpoint of the same state.
        of_checkpoints = [r.size_bytes for r in history if r.kind is SnapshotKind.CHECKPOINT]
        before = tuple(size for size in of_checkpoints if size is not None)
        size_bytes = opened.metadata_size_bytes + sum(f.size_bytes for f in manifest.files)
        yield Trend("size_bytes", "checkpoint", before, size_bytes, size.most, size.level)
    if entries is not None:
        past = [_entries_by_state(_open(deployment, r)) for r in history]
        earlier = {state.name: state.renamed_from for state in pipeline.schema().states}
        for state, statistics in manifest.statistics_by_state():
            if state.name not in pipeline.states:
                continue  # timers, and what else belongs to a declared state, have no trend of their own
            names = (state.name, *earlier.get(state.name, ()))
            before = tuple(by_state[name] for by_state in past for name in names if name in by_state)
            yield Trend("entries", state.name, before, statistics.total_entries, entries.most, entries.level)


def _entries_by_state(opened: Checkpoint | None) -> dict[str, int]:
    manifest = opened.manifest if opened else None
    if manifest is None:
        return {}
    return {state.name: statistics.total_entries for state, statistics in manifest.statistics_by_state()}


def _open(deployment: Deployment, record: CheckpointRecord) -> Checkpoint | None:
    """Open an older checkpoint; None if it cannot be read, which is no fault of the checkpoint that is judged."""
    try:
        return deployment.open(record)
    except StatelibError:
        return None


def _samples(
    deployment: Deployment, pipeline: Pipeline, opened: Checkpoint, manifest: CheckpointManifest
) -> Iterator[tuple[str, StateSample]]:
    """Yield (name of the state, sample of its entries) for each state that a check refers to."""
    checks = pipeline.checks
    wanted = {e.state for e in checks.expectations}
    wanted |= {split_field(name, pipeline.states)[0] for name in (*checks.drift.null_rate, *checks.drift.distribution)}
    for state, statistics in manifest.statistics_by_state():
        if state.name in wanted:
            chosen = choose(statistics, checks.sample_rows)
            yield state.name, sample(opened, state.name, pipeline.key, chosen, deployment.scratch())


def _comparisons(
    deployment: Deployment,
    pipeline: Pipeline,
    last: list[CheckpointRecord],
    samples: Mapping[str, StateSample],
) -> Iterator[Comparison]:
    drift = pipeline.checks.drift
    rules = [("null_rate", name, rule.most, rule.level) for name, rule in drift.null_rate.items()]
    rules += [("distribution", name, rule.psi, rule.level) for name, rule in drift.distribution.items()]
    if not rules:
        return
    base = _open(deployment, last[0]) if last else None
    before: dict[str, StateSample | None] = {}
    for measure, name, most, level in rules:
        state, column = split_field(name, pipeline.states)
        now = samples.get(state)
        if now is None or column not in now.table.column_names:  # the pipeline file was changed since the snapshot
            yield Comparison(measure, name, None, pa.chunked_array([], pa.null()), most, level)
            continue
        if state not in before:
            before[state] = _base_sample(deployment, pipeline, base, now)
        then = before[state]
        has_column = then is not None and column in then.table.column_names
        values = then.table[column] if then is not None and has_column else None
        note = f"state {state}: {now.note}" if now.note else ""
        yield Comparison(measure, name, values, now.table[column], most, level, note)


def _base_sample(
    deployment: Deployment, pipeline: Pipeline, base: Checkpoint | None, now: StateSample
) -> StateSample | None:
    """Return a sample of the base's entries in the same key groups; None if the base has no such state, or cannot be
    read."""
    if base is None or base.manifest is None:
        return None
    stored = {descriptor.name for descriptor in base.manifest.schema.states}
    names = [name for name in (now.state, *pipeline.states[now.state].renamed_from) if name in stored]
    if not names:
        return None
    chosen = SampledKeyGroups(now.key_groups, pipeline.checks.sample_rows)
    try:
        return sample(base, names[0], pipeline.key, chosen, deployment.scratch())
    except StatelibError:
        return None


def _expectations(pipeline: Pipeline) -> Iterator[UserExpectation]:
    for wanted in pipeline.checks.expectations:
        yield UserExpectation(
            state=wanted.state,
            library_name=class_name(wanted.expect),
            text=wanted.describe(),
            parameters=wanted.parameters,
            severity=wanted.level,
            needs_all_rows=EXPECTATIONS[wanted.expect].all_rows,
        )
