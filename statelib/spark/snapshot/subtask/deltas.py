"""The report of a subtask that has left its state unread and written a delta."""

from dataclasses import replace

from statelib.flows.checkpoint.snapshot_plan import SnapshotPlan
from statelib.model.checkpoint import Delta, SubtaskReport
from statelib.model.handles import ChangelogStateBackendHandleImpl

BLIND = "blind"
"""The value of ``restored_from`` for a subtask that restored no state, because it wrote only a delta."""


def report_of_delta(plan: SnapshotPlan, report: SubtaskReport) -> SubtaskReport:
    """Return the report of a subtask whose ``statistics`` are those of the partial values that it has written: they
    become those of a delta, unless there were no events, and the statistics of the state are those of the base."""
    (source,) = plan.layout.sources[report.subtask]
    settled, deltas = source.without_deltas().statistics, source.deltas
    assert settled is not None, "a change log without statistics is not continued"
    assert isinstance(source.handle, ChangelogStateBackendHandleImpl)
    assert isinstance(report.keyed, ChangelogStateBackendHandleImpl)
    if len(report.keyed.log) > len(source.handle.log):
        deltas = (*deltas, Delta(plan.record.checkpoint_id, report.key_group_range, report.statistics))
    keys = None if deltas else plan.layout.keys[report.subtask]
    return replace(report, statistics=settled, deltas=deltas, keys=keys, restored_from=BLIND)
