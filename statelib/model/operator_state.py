"""The description of an operator state: list, union or broadcast state. It belongs to a subtask, not to a key."""

from dataclasses import dataclass
from enum import IntEnum

from statelib.errors import InvalidRequestError
from statelib.model.types import StateType


class OperatorStateMode(IntEnum):
    """The way in which a restore distributes the state to the new subtasks; the numbers are those of ``_metadata``.

    SPLIT_DISTRIBUTE (list state): each element goes to one subtask. UNION: each element goes to all subtasks.
    BROADCAST: every subtask has the same map and gets one copy of it."""

    SPLIT_DISTRIBUTE = 0
    UNION = 1
    BROADCAST = 2


@dataclass(frozen=True)
class OperatorStateDescriptor:
    """The description of one registered operator state. ``value_type``: the type of an element of list and union
    state, of a value of broadcast state. ``key_type``: the type of a key of broadcast state, else None.

    Raises InvalidRequestError (``bad-state-descriptor``)."""

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
