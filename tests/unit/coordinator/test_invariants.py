"""The predicates return the violations of an invariant, and none if there are none."""

from dataclasses import replace

import pytest

from statelib.coordinator.invariants import covers_exactly_once, history_violations, key_group_coverage
from statelib.coordinator.rebuilding import GIVEN_UP
from statelib.model.checkpoint import DataInterval, SnapshotKind
from statelib.model.ids import AttemptId, CheckpointId, Epoch, PipelineName
from statelib.model.key_groups import KeyGroupRange
from statelib.model.record import CheckpointRecord, CheckpointState, Owner, PipelineHead

NAME = PipelineName("p")


def record(number: int, base: int | None, state: CheckpointState = CheckpointState.COMPLETED) -> CheckpointRecord:
    return CheckpointRecord(
        NAME, CheckpointId(number), SnapshotKind.CHECKPOINT, state, Owner.SYSTEM, Epoch(number), f"k{number}", 0,
        None if base is None else CheckpointId(base), DataInterval(0, 1), "full", 1, "file:/d", 0,
        attempt=AttemptId("a" * 32), completed_at_ms=1,
    )  # fmt: skip


HEAD = PipelineHead(NAME, Epoch(3), 0, CheckpointId(2), None)
GOOD = [record(1, None), record(2, 1), record(3, 2, CheckpointState.PENDING)]


def test_coverage_is_the_number_of_ranges_per_key_group():
    assert key_group_coverage([KeyGroupRange(0, 1), KeyGroupRange(1, 2)], 4) == [1, 2, 1, 0]
    assert key_group_coverage([], 2) == [0, 0]
    assert key_group_coverage([KeyGroupRange(2, 9), KeyGroupRange(7, 9), KeyGroupRange(1, 0)], 4) == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("ranges", "whole"),
    [
        ([KeyGroupRange(0, 3)], True),
        ([KeyGroupRange(2, 3), KeyGroupRange(0, 1), KeyGroupRange(4, 3)], True),
        ([KeyGroupRange(0, 2)], False),
        ([KeyGroupRange(1, 3)], False),
        ([KeyGroupRange(0, 2), KeyGroupRange(2, 3)], False),
        ([KeyGroupRange(0, 4)], False),
        ([], False),
    ],
)
def test_ranges_must_cover_each_key_group_exactly_once(ranges: list[KeyGroupRange], whole: bool):
    assert covers_exactly_once(ranges, 4) is whole


def test_a_good_history_has_no_violations():
    assert history_violations(HEAD, GOOD) == []
    assert history_violations(HEAD, GOOD[1:]) == [], "a rebuilt catalog has no row of a base that was deleted before"


def test_a_rebuilt_history_has_no_violations():
    saved = replace(record(3, 2), kind=SnapshotKind.SAVEPOINT, generation=1, epoch=Epoch(4))
    assert history_violations(HEAD, [*GOOD[:2], saved]) == [], "no rebuild derives the generation from savepoints"
    given_up = replace(record(1, None, CheckpointState.ABORTED), reason=f"{GIVEN_UP}: it is damaged")
    assert history_violations(HEAD, [given_up, *GOOD[1:]]) == []


@pytest.mark.parametrize(
    ("head", "records", "words"),
    [
        (HEAD, [*GOOD, GOOD[0]], "used twice"),
        (HEAD, [*GOOD, record(4, 2, CheckpointState.PENDING)], "at the same time"),
        (replace(HEAD, epoch=Epoch(4)), GOOD, "superseded epoch"),
        (replace(HEAD, epoch=Epoch(2)), [*GOOD[:2], record(3, 2, CheckpointState.ABORTED)], "ahead of its pipeline"),
        (replace(HEAD, head=CheckpointId(3)), GOOD, "head 3 is not committed"),
        (replace(HEAD, head=CheckpointId(9)), GOOD, "head 9 is not committed"),
        (HEAD, [GOOD[0], replace(GOOD[1], base=CheckpointId(2)), GOOD[2]], "2 continues from 2"),
        (HEAD, [record(1, None, CheckpointState.ABORTED), *GOOD[1:]], "2 continues from 1"),
        (HEAD, [replace(GOOD[1], base=CheckpointId(8)), GOOD[2]], "2 continues from 8"),
        (HEAD, [replace(GOOD[0], attempt=None), *GOOD[1:]], "without an attempt"),
        (HEAD, [replace(GOOD[0], generation=1), *GOOD[1:]], "ahead of its pipeline"),
    ],
)
def test_each_violation_of_a_history_is_reported(head: PipelineHead, records: list[CheckpointRecord], words: str):
    assert any(words in each for each in history_violations(head, records))
