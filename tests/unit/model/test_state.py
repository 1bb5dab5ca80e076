"""A schema has at most as many states as Flink's state ids can number."""

import pytest

from statelib.errors import InvalidRequestError
from statelib.model.state import MAX_STATES, KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import LONG


def schema_of(states: int) -> KeyedStateSchema:
    descriptors = tuple(StateDescriptor(f"state-{n}", StateKind.VALUE, LONG) for n in range(states))
    return KeyedStateSchema(LONG, 128, descriptors)


def test_a_schema_with_more_states_than_a_short_can_number_is_refused() -> None:
    """Requirement R31."""
    assert MAX_STATES == 32767
    assert len(schema_of(32767).states) == 32767
    with pytest.raises(InvalidRequestError, match="32768 states: expected at most 32767") as refused:
        schema_of(32768)
    assert refused.value.kind == "too-many-states"
