"""Laws of state assignment: whatever the two parallelisms, every key group moves exactly once."""

from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.coordinator.invariants import key_group_coverage
from statelib.coordinator.state_assignment import assign
from statelib.model.key_groups import subtask_ranges


@st.composite
def rescalings(draw: st.DrawFn) -> tuple[int, int, int]:
    groups = draw(st.sampled_from([1, 2, 7, 128]))
    return draw(st.integers(1, groups)), draw(st.integers(1, groups)), groups


@settings(deadline=None)
@given(rescalings(), st.randoms(use_true_random=False))
def test_every_key_group_is_read_once_by_its_new_owner(rescaling: tuple[int, int, int], random):
    old, new, groups = rescaling
    states = [(held, held) for held in subtask_ranges(old, groups)]
    random.shuffle(states)
    plan = assign(states, new, groups)
    assert len(plan) == new
    for owned, parts in zip(subtask_ranges(new, groups), plan, strict=True):
        read = [part.intersection(owned) for part in parts]
        assert all(len(part) for part in read), "nothing is opened in vain"
        coverage = key_group_coverage(read, groups)
        assert coverage == [1 if group in owned else 0 for group in range(groups)]
        assert list(parts) == sorted(parts)


@settings(deadline=None)
@given(rescalings())
def test_scaling_up_and_back_gives_the_same_owners(rescaling: tuple[int, int, int]):
    old, new, groups = rescaling
    sources = [(held, i) for i, held in enumerate(subtask_ranges(new, groups))]
    back = assign(sources, old, groups)
    for owned, parts in zip(subtask_ranges(old, groups), back, strict=True):
        assert {group for i in parts for group in sources[i][0]} >= set(owned)


@settings(deadline=None)
@given(rescalings(), st.data())
def test_subtasks_without_state_are_never_read(rescaling: tuple[int, int, int], data: st.DataObject):
    old, new, groups = rescaling
    ranges = subtask_ranges(old, groups)
    with_state = data.draw(st.sets(st.integers(0, old - 1)))
    plan = assign([(ranges[i], i) for i in sorted(with_state)], new, groups)
    assert {i for parts in plan for i in parts} == with_state
