"""What an operator state is: state of a subtask and not of a key (list, union and broadcast state)."""

from dataclasses import dataclass
from enum import IntEnum

from statelib.errors import InvalidRequestError
from statelib.model.types import StateType


class OperatorStateMode(IntEnum):
    """How a restore gives the state to the new subtasks; the numbers are those of ``_metadata``.

    SPLIT_DISTRIBUTE (list state): each element goes to one subtask. UNION: every element to all.
    BROADCAST: every subtask has the same map, and gets one copy of it."""

    SPLIT_DISTRIBUTE = 0
    UNION = 1
    BROADCAST = 2


@dataclass(frozen=True)
class OperatorStateDescriptor:
    """One registered operator state. ``value_type``: of an element of list and union state, of a value
    of broadcast state; ``key_type``: of broadcast state only."""

    name: str
    mode: OperatorStateMode
    value_type: StateType
    key_type: StateType | None = None

    def __post_init__(self) -> None:
        if not self.name or (self.mode is OperatorStateMode.BROADCAST) != (self.key_type is not None):
            raise InvalidRequestError(
                f"operator state {self.name!r} of mode {self.mode.name}: expected a name, and a key type for "
                "broadcast state only",
                kind="bad-state-descriptor",
            )

    def __str__(self) -> str:
        types = ", ".join(str(type_) for type_ in (self.key_type, self.value_type) if type_ is not None)
        return f"{self.mode.name.lower()}<{types}>"
