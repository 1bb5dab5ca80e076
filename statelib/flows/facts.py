"""Collect what the quality gate judges: from storage, by reading everything back."""

from statelib.flows.opened import Checkpoint, open_checkpoint
from statelib.flows.wiring import PLACES, Deployment
from statelib.model.key_groups import KeyGroupRange, prefix_width
from statelib.model.record import CheckpointRecord
from statelib.model.state import StateStatistics, empty_statistics, merge_statistics
from statelib.quality.facts import CheckpointFacts
from statelib.serializers.rows import statistics_of


def collect_facts(deployment: Deployment, record: CheckpointRecord) -> CheckpointFacts:
    """Files with their sizes and checksums, then, if all are whole, every entry counted again."""
    opened = open_checkpoint(record.directory, own=True, storage_root=deployment.storage_root)
    files = opened.manifest.files if opened.manifest else ()
    kind = PLACES.kind(opened.directory)
    findings = kind.verify_files(opened.directory, files, read_data=True, allowed_root=opened.allowed_root)
    whole = all(not finding.problem for finding in findings)
    base = None
    if record.base is not None:
        base = open_checkpoint(deployment.catalog().get(record.pipeline, record.base).directory, own=True)
    return CheckpointFacts(
        record=record,
        manifest=opened.manifest,
        ranges=tuple(handle.key_group_range for handle in opened.handles()),
        file_findings=tuple(findings),
        base_statistics=base.manifest.statistics if base and base.manifest else None,
        read_back=read_statistics(opened, deployment.work_directory) if whole else None,
    )


def read_statistics(opened: Checkpoint, scratch: str | None = None) -> tuple[StateStatistics, ...]:
    """Count and digest what is really stored, in the schema's state order."""
    schema = opened.schema()
    whole = KeyGroupRange(0, schema.max_parallelism - 1)
    totals = [empty_statistics(whole) for _ in schema.states]
    for index, rows in opened.rows(scratch):
        found = statistics_of(rows, prefix_width(schema.max_parallelism), whole)
        totals[index] = merge_statistics(whole, [totals[index], found])
    return tuple(totals)
