"""Examples of the checkpoints that retention keeps and removes."""

import pytest

from statelib.coordinator.retention import DAY_MS, RetentionPolicy, lineage, subsumed
from statelib.errors import InvalidRequestError
from statelib.model.record import CheckpointState, Owner
from tests.unit.coordinator.checkpoints import checkpoint, savepoint

CHAIN = [checkpoint(n, n - 1 or None) for n in range(1, 6)]


def test_the_newest_checkpoints_of_the_history_stay():
    assert subsumed(RetentionPolicy(2), CHAIN, head=5) == (1, 2, 3)
    assert subsumed(RetentionPolicy(5), CHAIN, head=5) == ()
    assert subsumed(RetentionPolicy(4), CHAIN, head=5) == (1,)


def test_days_keep_more_than_the_count_and_are_counted_from_the_newest_checkpoint_but_one():
    aged = [checkpoint(n, n - 1 or None, completed_at_ms=n * DAY_MS) for n in range(1, 6)]
    assert subsumed(RetentionPolicy(1, days=1), aged, head=5) == (1, 2)
    assert subsumed(RetentionPolicy(4, days=1), aged, head=5) == (1,)
    ahead = [*aged[:4], checkpoint(5, 4, completed_at_ms=3650 * DAY_MS)]
    assert subsumed(RetentionPolicy(1, days=1), ahead, head=5) == (1, 2), "its clock was wrong"


def test_savepoints_neither_count_nor_go():
    saved = savepoint(6, 5)
    assert subsumed(RetentionPolicy(2), [*CHAIN, saved], head=5) == (1, 2, 3)


def test_a_claimed_savepoint_goes_when_it_is_older_than_all_that_is_kept():
    claimed = savepoint(3, 2, owner=Owner.SYSTEM)
    later = [checkpoint(4, 3), checkpoint(5, 4)]
    assert subsumed(RetentionPolicy(1), [*CHAIN[:2], claimed, *later], head=3) == (1, 4), "3 is the head"
    assert subsumed(RetentionPolicy(2), [*CHAIN[:2], claimed, *later], head=5) == (1, 2, 3)


def test_what_is_in_use_stays():
    assert subsumed(RetentionPolicy(1), CHAIN, head=5, in_use={2}) == (1, 3, 4)


def test_an_abandoned_branch_stays_while_the_history_kept_reaches_back_before_it():
    """Restored from 5 to 2, then 6, 7 and so on."""
    records = [*CHAIN, checkpoint(6, 2), checkpoint(7, 6)]
    assert subsumed(RetentionPolicy(3), records, head=7) == (1,), "2, 6, 7 are kept, so 3, 4, 5 may be returned to"
    assert subsumed(RetentionPolicy(2), records, head=7) == (1, 2, 3, 4, 5)


def test_restoring_again_and_again_does_not_pile_up_branches():
    records = [CHAIN[0], *(checkpoint(n, 1) for n in range(2, 50))]
    assert subsumed(RetentionPolicy(3), records, head=49) == tuple(range(2, 46))


def test_the_last_one_is_never_let_go_of():
    assert subsumed(RetentionPolicy(1), CHAIN[:1], head=None) == ()
    gone = [checkpoint(n, n - 1 or None, state=CheckpointState.DELETED) for n in range(1, 5)]
    assert subsumed(RetentionPolicy(1), [*gone, CHAIN[4]], head=5) == ()


def test_only_completed_checkpoints_are_let_go_of():
    states = (CheckpointState.PENDING, CheckpointState.ABORTED, CheckpointState.DELETING, CheckpointState.DELETED)
    others = [checkpoint(n, 5, state=state) for n, state in enumerate(states, 6)]
    assert subsumed(RetentionPolicy(5), [*CHAIN, *others], head=5) == ()


def test_the_history_runs_through_deleted_checkpoints():
    records = [checkpoint(1, None), checkpoint(2, 1, state=CheckpointState.DELETED), checkpoint(3, 2)]
    assert lineage(records, 3) == {1, 2, 3}
    assert subsumed(RetentionPolicy(1), records, head=3) == (1,)


@pytest.mark.parametrize(("count", "days"), [(0, None), (-1, None), (1, 0)])
def test_a_policy_keeps_something(count: int, days: int | None):
    with pytest.raises(InvalidRequestError) as refusal:
        RetentionPolicy(count, days)
    assert refusal.value.kind == "bad-retention"
