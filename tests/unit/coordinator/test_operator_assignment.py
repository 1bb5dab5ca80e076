"""Operator state finds its new subtasks as Flink's round robin deals it out."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from statelib.coordinator.operator_assignment import redistribute
from statelib.model.handles import ByteStreamStateHandle, OperatorStreamStateHandle

SPLIT, UNION, BROADCAST = 0, 1, 2


def old(*subtasks: dict[str, tuple[int, int]] | None) -> list[OperatorStreamStateHandle | None]:
    """Return the handles of old subtasks, from the name of a state to (mode, number of elements)."""
    handles: list[OperatorStreamStateHandle | None] = []
    for i, states in enumerate(subtasks):
        states_with_offsets = tuple(
            (name, mode, tuple(range(100, 100 + count))) for name, (mode, count) in (states or {}).items()
        )
        handles.append(
            None
            if states is None
            else OperatorStreamStateHandle(states_with_offsets, ByteStreamStateHandle(str(i), b""))
        )
    return handles


def read(part: tuple[OperatorStreamStateHandle, ...], name: str) -> list[tuple[str, int]]:
    """Return (old subtask, offset) of each element that a new subtask reads."""
    return [(h.stream.name, o) for h in part for state, _, offsets in h.states if state == name for o in offsets]


def test_elements_of_a_list_are_divided_evenly_in_order() -> None:
    parts = redistribute(old({"l": (SPLIT, 4)}, {"l": (SPLIT, 3)}), 3)
    assert [read(part, "l") for part in parts] == [
        [("0", 100), ("0", 101), ("0", 102)],
        [("0", 103), ("1", 100)],
        [("1", 101), ("1", 102)],
    ]


def test_remaining_elements_of_the_next_state_go_to_subtasks_that_got_fewer() -> None:
    parts = redistribute(old({"a": (SPLIT, 1), "b": (SPLIT, 1), "c": (SPLIT, 5)}), 3)
    assert [[len(read(part, name)) for name in "abc"] for part in parts] == [[1, 0, 2], [0, 1, 1], [0, 0, 2]]
    # After the even share, the first of the three elements of c goes to subtask 2, which is next.
    assert read(parts[2], "c") == [("0", 100), ("0", 101)]


def test_at_the_same_parallelism_only_union_states_move() -> None:
    handles = old({"l": (SPLIT, 3), "b": (BROADCAST, 1), "u": (UNION, 1)}, {"b": (BROADCAST, 1), "u": (UNION, 2)})
    first, second = redistribute(handles, 2)
    assert (read(first, "l"), read(second, "l")) == ([("0", 100), ("0", 101), ("0", 102)], [])
    assert (read(first, "b"), read(second, "b")) == ([("0", 100)], [("1", 100)])
    assert read(first, "u") == read(second, "u") == [("0", 100), ("1", 100), ("1", 101)]


def test_copies_of_broadcast_state_are_assigned_in_turn() -> None:
    parts = redistribute(old({"b": (BROADCAST, 1)}, {"b": (BROADCAST, 1)}), 5)
    assert [read(part, "b") for part in parts] == [[("0", 100)], [("1", 100)]] * 2 + [[("0", 100)]]
    (only,) = redistribute(old(None, {"b": (BROADCAST, 1)}), 1)
    assert read(only, "b") == [("1", 100)]


def test_subtasks_without_state_give_empty_assignments() -> None:
    assert redistribute([None, None], 3) == ((), (), ())
    assert redistribute([], 2) == ((), ())


@given(
    st.lists(st.one_of(st.none(), st.lists(st.integers(0, 6), min_size=3, max_size=3)), max_size=5),
    st.integers(1, 6),
)
def test_redistribution_loses_and_doubles_no_element(counts, parallelism) -> None:
    handles = old(*(c and {"l": (SPLIT, c[0]), "u": (UNION, c[1]), "m": (SPLIT, c[2])} for c in counts))
    parts = redistribute(handles, parallelism)
    assert len(parts) == parallelism
    for index, name in ((0, "l"), (2, "m")):
        elements = [(str(i), 100 + n) for i, c in enumerate(counts) if c for n in range(c[index])]
        got = [read(part, name) for part in parts]
        assert Counter(e for part in got for e in part) == Counter(elements)
        if parallelism != len(counts):
            assert max(map(len, got)) - min(map(len, got)) <= 1
    union = [(str(i), 100 + n) for i, c in enumerate(counts) if c for n in range(c[1])]
    assert all(read(part, "u") == union for part in parts)
