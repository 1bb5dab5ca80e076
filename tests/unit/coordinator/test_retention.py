"""Examples of the checkpoints that retention keeps and removes."""

import pytest

from statelib.coordinator.retention import DAY_MS, RetentionPolicy, lineage, subsumed
from statelib.errors import InvalidRequestError
from statelib.model.record import CheckpointState, Owner
from tests.unit.coordinator.checkpoints import checkpoint, savepoint

CHAIN = [checkpoint(n, n - 1 or None) for n in range(1, 6)]


def test_the_newest_checkpoints_of_the_history_are_kept():
    assert subsumed(RetentionPolicy(2), CHAIN, head=5) == (1, 2, 3)
    assert subsumed(RetentionPolicy(5), CHAIN, head=5) == ()
    assert subsumed(RetentionPolicy(4), CHAIN, head=5) == (1,)


def test_days_keep_more_than_the_count_and_are_counted_from_the_second_newest_checkpoint():
    aged = [checkpoint(n, n - 1 or None, completed_at_ms=n * DAY_MS) for n in range(1, 6)]
    assert subsumed(RetentionPolicy(1, days=1), aged, head=5) == (1, 2)
    assert subsumed(RetentionPolicy(4, days=1), aged, head=5) == (1,)
    ahead = [*aged[:4], checkpoint(5, 4, completed_at_ms=3650 * DAY_MS)]
    assert subsumed(RetentionPolicy(1, days=1), ahead, head=5) == (1, 2), "its clock was wrong"


def test_savepoints_do_not_count_and_are_not_removed():
    saved = savepoint(6, 5)
    assert subsumed(RetentionPolicy(2), [*CHAIN, saved], head=5) == (1, 2, 3)


def test_a_claimed_savepoint_is_removed_once_it_is_older_than_everything_kept():
    claimed = savepoint(3, 2, owner=Owner.SYSTEM)
    later = [checkpoint(4, 3), checkpoint(5, 4)]
    assert subsumed(RetentionPolicy(1), [*CHAIN[:2], claimed, *later], head=3) == (1, 4), "3 is the head"
    assert subsumed(RetentionPolicy(2), [*CHAIN[:2], claimed, *later], head=5) == (1, 2, 3)


def test_a_checkpoint_in_use_is_kept():
    assert subsumed(RetentionPolicy(1), CHAIN, head=5, in_use={2}) == (1, 3, 4)


def test_an_abandoned_branch_is_kept_while_the_history_reaches_further_back():
    """The pipeline was restored from 5 to 2, then took 6, 7 and so on."""
    records = [*CHAIN, checkpoint(6, 2), checkpoint(7, 6)]
    assert subsumed(RetentionPolicy(3), records, head=7) == (1,), "2, 6, 7 are kept, so 3, 4, 5 may be returned to"
    assert subsumed(RetentionPolicy(2), records, head=7) == (1, 2, 3, 4, 5)


def test_repeated_restores_do_not_accumulate_branches():
    records = [CHAIN[0], *(checkpoint(n, 1) for n in range(2, 50))]
    assert subsumed(RetentionPolicy(3), records, head=49) == tuple(range(2, 46))


def test_the_last_checkpoint_is_never_removed():
    assert subsumed(RetentionPolicy(1), CHAIN[:1], head=None) == ()
    gone = [checkpoint(n, n - 1 or None, state=CheckpointState.DELETED) for n in range(1, 5)]
    assert subsumed(RetentionPolicy(1), [*gone, CHAIN[4]], head=5) == ()


def test_only_completed_checkpoints_are_removed():
    states = (CheckpointState.PENDING, CheckpointState.ABORTED, CheckpointState.DELETING, CheckpointState.DELETED)
    others = [checkpoint(n, 5, state=state) for n, state in enumerate(states, 6)]
    assert subsumed(RetentionPolicy(5), [*CHAIN, *others], head=5) == ()


def test_the_lineage_includes_deleted_checkpoints():
    records = [checkpoint(1, None), checkpoint(2, 1, state=CheckpointState.DELETED), checkpoint(3, 2)]
    assert lineage(records, 3) == {1, 2, 3}
    assert subsumed(RetentionPolicy(1), records, head=3) == (1,)


@pytest.mark.parametrize(("count", "days"), [(0, None), (-1, None), (1, 0)])
def test_a_policy_that_keeps_nothing_is_refused(count: int, days: int | None):
    with pytest.raises(InvalidRequestError) as refusal:
        RetentionPolicy(count, days)
    assert refusal.value.kind == "bad-retention"
