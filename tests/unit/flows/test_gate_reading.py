"""Everything that is known is read again within as many runs as the rotation has turns."""

from hypothesis import given
from hypothesis import strategies as st

from statelib.definition.parts.quality import Rotation
from statelib.flows.gate.reading import turn_of

SIZES = st.integers(1, 300)
TURNS = st.integers(2, 40)
FIRST = st.integers(0, 100)


@given(SIZES, TURNS, FIRST)
def test_every_key_group_is_read_once_within_all_turns(max_parallelism: int, turns: int, first: int) -> None:
    rotation = Rotation(rotate=turns)
    read = [
        group for run in range(first, first + turns) for group in turn_of(rotation, run, 3).key_groups(max_parallelism)
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
        read = [run for run in range(begin, begin + length) if turn_of(rotation, first + run, 0).has_file(path)]
        for start in range(begin, begin + length - turns + 1):
            assert sum(start <= run < start + turns for run in read) == 1


def test_a_history_that_is_restored_again_and_again_reads_other_turns() -> None:
    rotation = Rotation(rotate=5)
    assert {turn_of(rotation, 3, generation).number for generation in range(5)} == set(range(5))
