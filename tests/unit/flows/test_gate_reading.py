"""Everything that is known is read again in turns, the files in fewer runs than the entries of a large state."""

from hypothesis import given
from hypothesis import strategies as st

from statelib.definition.parts.quality import Rotation
from statelib.flows.gate.reading import number_of_run, turn_of

SIZES = st.integers(1, 300)
TURNS = st.integers(2, 40)
FIRST = st.integers(0, 100)


@given(SIZES, TURNS, FIRST)
def test_every_key_group_is_read_once_within_all_turns(max_parallelism: int, turns: int, first: int) -> None:
    rotation = Rotation(rotate=turns)
    read = [
        group for run in range(first, first + turns) for group in turn_of(rotation, run).key_groups(max_parallelism)
    ]
    assert sorted(read) == list(range(max_parallelism))


@given(
    TURNS,
    FIRST,
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 120)), min_size=1, max_size=30),
)
def test_a_file_that_stays_for_all_turns_is_read_once_in_them(
    turns: int, first: int, lives: list[tuple[int, int]]
) -> None:
    """Files come (``begin``) and go (after ``length`` runs) in any order."""
    rotation = Rotation(rotate=turns)
    for number, (begin, length) in enumerate(lives):
        path = f"file:/state/p/shared/{number:032x}-sst"
        read = [run for run in range(begin, begin + length) if turn_of(rotation, first + run).has_file(path)]
        for start in range(begin, begin + length - turns + 1):
            assert sum(start <= run < start + turns for run in read) == 1


@given(SIZES, st.integers(2, 6), FIRST, st.lists(st.integers(0, 12), min_size=1, max_size=60))
def test_every_key_group_is_read_within_the_longest_rotation_of_a_changing_state(
    max_parallelism: int, turns: int, first: int, thousands: list[int]
) -> None:
    """The number of halvings follows the state, which may have any number of entries in each run."""
    rotation = Rotation(rotate=turns, entries=1_000)
    longest = max(turn_of(rotation, 0, entries=1_000 * k).halvings for k in thousands)
    read = [
        set(turn_of(rotation, run, entries=1_000 * thousands[run % len(thousands)]).key_groups(max_parallelism))
        for run in range(first, first + (turns << longest))
    ]
    assert set.union(*read) == set(range(max_parallelism))


def read_in_turns(turns: int, runs: list[tuple[int, int]]) -> set[int]:
    """Return the turns of runs, each given by the number of checkpoints and of restores before it."""
    rotation = Rotation(rotate=turns)
    return {turn_of(rotation, number_of_run(rotation, *run)).number % turns for run in runs}


@given(TURNS, st.integers(0, 1000), st.integers(0, 1000))
def test_a_row_of_runs_has_all_turns_whatever_restores_were_before(turns: int, first: int, restores: int) -> None:
    assert read_in_turns(turns, [(first + run, restores) for run in range(turns)]) == set(range(turns))


@given(TURNS, st.integers(0, 1000), st.integers(0, 1000))
def test_restores_before_each_run_leave_no_turn_out(turns: int, first: int, restores: int) -> None:
    every = set(range(turns))
    assert read_in_turns(turns, [(first + run, restores + run) for run in range(3 * turns)]) == every
    assert read_in_turns(turns, [(first, restores + run) for run in range(2 * turns)]) == every


@given(st.integers(2, 12), st.integers(1, 9), st.integers(0, 9))
def test_no_regular_restore_to_an_earlier_checkpoint_leaves_a_turn_out_for_ever(
    turns: int, between: int, back: int
) -> None:
    """A restore comes after each ``between`` runs. It goes back by ``back`` checkpoints, at most by those runs."""
    gain = max(0, between - back)
    rounds = range(turns * (turns + 1))
    runs = [(gain * restore + run, restore) for restore in rounds for run in range(between)]
    assert read_in_turns(turns, runs) == set(range(turns))


@given(st.integers(2, 40), st.integers(1, 10**6), st.integers(0, 10**12), st.integers(0, 10**7))
def test_a_turn_has_the_wanted_entries_and_not_half_of_them(turns: int, most: int, entries: int, changes: int) -> None:
    turn = turn_of(Rotation(rotate=turns, entries=most), 0, entries=entries, changes=changes)
    limit = max(most, changes)
    assert entries <= limit * turns << turn.halvings
    assert turn.halvings == 0 or entries > limit * turns << (turn.halvings - 1)
