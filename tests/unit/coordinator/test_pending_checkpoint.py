"""The effect of each acknowledgement on a pending checkpoint, step by step and in random histories."""

import random
from dataclasses import replace

import numpy as np
import pytest

from statelib.coordinator.pending_checkpoint import AcknowledgeResult, PendingCheckpoint
from statelib.errors import ConflictError, CorruptStateError
from statelib.model.checkpoint import EventCounts, FileRecord, SubtaskReport
from statelib.model.handles import ByteStreamStateHandle, KeyGroupsSavepointStateHandle
from statelib.model.ids import AttemptId
from statelib.model.key_groups import KeyGroupRange, subtask_range
from statelib.model.state import StateStatistics

PARALLELISM, GROUPS = 3, 10


def report(subtask: int, task: int, shared: tuple[str, ...] = ()) -> SubtaskReport:
    """Return the report of task ``task``, which wrote one file of its own and one shared file, and refers to
    ``shared``."""
    inside = 0 <= subtask < PARALLELISM
    owned = subtask_range(subtask, PARALLELISM, GROUPS) if inside else KeyGroupRange(0, GROUPS - 1)
    attempt = AttemptId(f"{task:032x}")
    names = (f"{attempt}-{subtask}-0", f"file:/state/p/shared/{attempt}-{subtask}-1", *shared)
    files = tuple(FileRecord(name, 1, 2, subtask, owned) for name in names)
    handle = KeyGroupsSavepointStateHandle(owned, (0,) * len(owned), ByteStreamStateHandle("s", b""))
    counts = StateStatistics(owned, np.ones(len(owned), np.int64), np.ones(len(owned), np.uint64))
    events = EventCounts(5, 4, 1)
    return SubtaskReport(subtask, owned, handle, files, (counts,), events, "empty", 0, 0, attempt=attempt)


def pending(*reports: SubtaskReport) -> PendingCheckpoint:
    result = PendingCheckpoint(PARALLELISM, GROUPS)
    for each in reports:
        result, answer = result.acknowledge(each)
        assert answer.result is AcknowledgeResult.SUCCESS
    return result


def names(files: tuple[FileRecord, ...]) -> list[str]:
    return [file.path for file in files]


OLD = f"file:/state/p/shared/{99:032x}-0-0"


def test_the_first_acknowledgement_of_a_subtask_wins():
    before = pending(report(0, 1))
    after, answer = before.acknowledge(report(0, 2, shared=(OLD,)))
    assert answer.result is AcknowledgeResult.DUPLICATE
    assert after is before
    second = f"{2:032x}-0-"
    assert names(answer.discard) == [f"{second}0", f"file:/state/p/shared/{second}1"], "not what it refers to only"


def test_the_same_acknowledgement_received_twice_discards_nothing():
    _, answer = pending(report(0, 1)).acknowledge(report(0, 1))
    assert (answer.result, answer.discard) == (AcknowledgeResult.DUPLICATE, ())


@pytest.mark.parametrize("subtask", [-1, PARALLELISM])
def test_the_acknowledgement_of_an_unknown_subtask_is_rejected(subtask: int):
    before = pending(report(0, 1))
    after, answer = before.acknowledge(report(subtask, 7))
    assert (after, answer.result, len(answer.discard)) == (before, AcknowledgeResult.UNKNOWN, 2)


def test_a_late_acknowledgement_discards_only_its_own_files():
    done = pending(*(report(n, n) for n in range(PARALLELISM))).complete()
    after, answer = done.acknowledge(report(1, 8))
    assert (after, answer.result, len(answer.discard)) == (done, AcknowledgeResult.DISCARDED, 2)
    _, again = done.acknowledge(report(1, 1))
    assert (again.result, again.discard) == (AcknowledgeResult.DISCARDED, ())


def test_a_completed_checkpoint_cannot_be_completed_again():
    done = pending(*(report(n, n) for n in range(PARALLELISM))).complete()
    with pytest.raises(ConflictError) as refusal:
        done.complete()
    assert refusal.value.kind == "not-pending"


def test_an_acknowledgement_without_an_attempt_discards_nothing():
    nameless = replace(report(0, 2), attempt=AttemptId(""))
    assert pending(report(0, 1)).acknowledge(nameless)[1].discard == ()


@pytest.mark.parametrize("seed", range(60))
def test_random_histories_discard_no_needed_file(seed: int):
    """The first report of each subtask is accepted, and no needed file is discarded, whatever arrives in any order."""
    chance = random.Random(seed)
    state = PendingCheckpoint(PARALLELISM, GROUPS)
    accepted: dict[int, SubtaskReport] = {}
    discarded: set[str] = set()
    for _ in range(40):
        before = state
        match chance.randrange(12):
            case 0 | 1:
                state = _try_to_complete(state)
            case _:
                arriving = report(chance.randrange(-1, PARALLELISM + 1), chance.randrange(6), (OLD,))
                state, answer = state.acknowledge(arriving)
                discarded |= {file.path for file in answer.discard}
                if answer.result is AcknowledgeResult.SUCCESS:
                    assert arriving.subtask not in accepted
                    accepted[arriving.subtask] = arriving
                else:
                    assert state is before
        assert not before.completed or state is before, "what has ended stays as it is"
        assert dict(state.reports) == accepted
        assert set(state.missing) == set(range(PARALLELISM)) - set(accepted)
        needed = {file.path for each in accepted.values() for file in each.files}
        assert OLD not in discarded
        assert not needed & discarded


def _try_to_complete(state: PendingCheckpoint) -> PendingCheckpoint:
    if state.completed:
        with pytest.raises(ConflictError):
            state.complete()
        return state
    if state.missing:
        with pytest.raises(CorruptStateError, match="no acknowledgement"):
            state.complete()
        return state
    done = state.complete()
    assert done.completed
    return done
