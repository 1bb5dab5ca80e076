"""The sets of acknowledgements that make a checkpoint, and the errors for those that do not."""

from dataclasses import replace

import numpy as np
import pytest

from statelib.coordinator.pending_checkpoint import PendingCheckpoint
from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.model.checkpoint import EventCounts, FileRecord, SubtaskReport
from statelib.model.handles import ByteStreamStateHandle, KeyGroupsSavepointStateHandle
from statelib.model.key_groups import KeyGroupRange, subtask_range
from statelib.model.state import StateStatistics

PARALLELISM, GROUPS = 3, 10


def report(subtask: int, parallelism: int = PARALLELISM) -> SubtaskReport:
    owned = subtask_range(subtask, parallelism, GROUPS)
    handle = KeyGroupsSavepointStateHandle(owned, (0,) * len(owned), ByteStreamStateHandle("s", b""))
    file = FileRecord(f"f{subtask}", 1, 2, subtask, owned)
    counts = StateStatistics(owned, np.ones(len(owned), np.int64), np.ones(len(owned), np.uint64))
    return SubtaskReport(subtask, owned, handle, (file,), (counts,), EventCounts(5, 4, 1), "empty", 0, 0)


def reports() -> list[SubtaskReport]:
    return [report(i) for i in range(PARALLELISM)]


def check_acknowledgements(bad: list[SubtaskReport], parallelism: int, groups: int) -> None:
    """Check each acknowledgement in this order, and then all of them together."""
    pending = PendingCheckpoint(parallelism, groups)
    for each in bad:
        pending, _ = pending.acknowledge(each)
    pending.complete()


def refused(bad: list[SubtaskReport]) -> CorruptStateError:
    with pytest.raises(CorruptStateError) as refusal:
        check_acknowledgements(bad, PARALLELISM, GROUPS)
    return refusal.value


def test_a_complete_set_is_accepted_in_any_order():
    check_acknowledgements(reports()[::-1], PARALLELISM, GROUPS)
    check_acknowledgements([report(i, GROUPS) for i in range(GROUPS)], GROUPS, GROUPS)


def test_the_error_names_missing_subtasks():
    error = refused([report(1)])
    assert error.kind == "missing-acknowledgement"
    assert "subtasks 0, 2: expected 3, found 1" in error.message
    assert refused([]).kind == "missing-acknowledgement"


def test_a_bad_parallelism_is_an_invalid_request():
    with pytest.raises(InvalidRequestError):
        check_acknowledgements([], 11, GROUPS)


def shifted(report: SubtaskReport, part: str) -> SubtaskReport:
    """Return the report with one part that covers one key group less."""
    less = KeyGroupRange(report.key_group_range.start, report.key_group_range.end - 1)
    if part == "handle":
        return replace(report, keyed=replace(report.keyed, key_group_range=less))
    if part == "file":
        return replace(report, files=(replace(report.files[0], key_group_range=less),))
    if part == "statistics":
        return replace(report, statistics=(replace(report.statistics[0], key_group_range=less),))
    return replace(report, key_group_range=less)


@pytest.mark.parametrize("part", ["report", "handle", "file", "statistics"])
def test_each_part_must_cover_exactly_the_subtasks_key_groups(part: str):
    error = refused([report(0), shifted(report(1), part), report(2)])
    assert error.kind == "wrong-key-groups"
    assert "subtask 1" in error.message
    assert "covers key groups 4-5, expected 4-6" in error.message


def test_a_file_of_another_subtask_is_refused():
    bad = replace(report(1), files=(replace(report(1).files[0], subtask=0),))
    error = refused([report(0), bad, report(2)])
    assert (error.kind, "f1 belongs to subtask 0" in error.message) == ("wrong-key-groups", True)


def test_subtasks_must_report_the_same_number_of_states():
    error = refused([report(0), report(1), replace(report(2), statistics=())])
    assert (error.kind, error.message) == ("states-differ", "subtask 2 reports 0 states, subtask 0 reports 1")


def test_entries_without_a_handle_are_refused():
    assert refused([report(0), replace(report(1), keyed=None), report(2)]).kind == "state-without-handle"
    owned = subtask_range(1, PARALLELISM, GROUPS)
    none = StateStatistics(owned, np.zeros(len(owned), np.int64), np.zeros(len(owned), np.uint64))
    empty = replace(report(1), keyed=None, files=(), statistics=(none,))
    check_acknowledgements([report(0), empty, report(2)], PARALLELISM, GROUPS)


def test_lost_events_are_an_error_with_their_number():
    error = refused([report(0), report(1), replace(report(2), events=EventCounts(6, 4, 1))])
    assert (error.kind, "subtask 2 read 6 events" in error.message) == ("events-lost", True)
