"""Live operator state of one subtask: what user code reads and changes, and a frozen copy of it.

Source: requirements R116 to R118 (DefaultOperatorStateBackend). It is small and belongs to user code,
so it is held as Python objects; only its snapshots are columns.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from statelib.errors import InvalidRequestError
from statelib.formats.operator_state import OperatorStateContent
from statelib.model.operator_state import OperatorStateDescriptor, OperatorStateMode
from statelib.serializers.registry import codec_of

Value = Any
"""A Python value as pyarrow takes it for the state's type: int, str, datetime, a dict for a row, ..."""


class ListState:
    """List or union state: the elements that this subtask holds."""

    def __init__(self, descriptor: OperatorStateDescriptor) -> None:
        self.descriptor = descriptor
        self._elements: list[Value] = []

    def get(self) -> list[Value]:
        """The elements, in a list of their own."""
        return list(self._elements)

    def add(self, element: Value) -> None:
        self._elements.append(element)

    def add_all(self, elements: Iterable[Value]) -> None:
        self._elements.extend(elements)

    def update(self, elements: Iterable[Value]) -> None:
        """Replace all of them."""
        self._elements = list(elements)

    def clear(self) -> None:
        self._elements = []

    def frozen(self) -> OperatorStateContent:
        """A copy that later changes do not reach. Raises InvalidRequestError (``bad-operator-state``)."""
        return OperatorStateContent(self.descriptor, _column(self.descriptor, "element", self._elements))

    def load(self, content: OperatorStateContent) -> None:
        """Add what a snapshot holds."""
        self._elements += content.values.to_pylist()


class BroadcastState:
    """A map that is the same in every subtask, as long as user code changes it everywhere in the same way."""

    def __init__(self, descriptor: OperatorStateDescriptor) -> None:
        self.descriptor = descriptor
        self._entries: dict[Value, Value] = {}

    def get(self, key: Value, default: Value = None) -> Value:
        return self._entries.get(key, default)

    def put(self, key: Value, value: Value) -> None:
        self._entries[key] = value

    def remove(self, key: Value) -> None:
        """A key that is not there is fine."""
        self._entries.pop(key, None)

    def clear(self) -> None:
        self._entries = {}

    def items(self) -> list[tuple[Value, Value]]:
        return list(self._entries.items())

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Value]:
        return iter(list(self._entries))

    def frozen(self) -> OperatorStateContent:
        """As :meth:`ListState.frozen`."""
        assert self.descriptor.key_type is not None
        keys = _column(self.descriptor, "key", list(self._entries))
        return OperatorStateContent(
            self.descriptor, _column(self.descriptor, "value", list(self._entries.values())), keys
        )

    def load(self, content: OperatorStateContent) -> None:
        """Put what a snapshot holds."""
        assert content.keys is not None
        self._entries.update(zip(content.keys.to_pylist(), content.values.to_pylist(), strict=True))


class OperatorStateBackend:
    """The operator states of one subtask, registered by name; a name serves one kind only.

    A user function gets it as its argument ``operator``."""

    def __init__(self, descriptors: Iterable[OperatorStateDescriptor] = ()) -> None:
        self._states: dict[str, ListState | BroadcastState] = {}
        for descriptor in descriptors:
            self.register(descriptor)

    def register(self, descriptor: OperatorStateDescriptor) -> ListState | BroadcastState:
        """The state of that name, made empty when it is new.

        Raises InvalidRequestError (``operator-state-kind``) for a name that is registered otherwise."""
        state = self._states.get(descriptor.name)
        if state is None:
            broadcast = descriptor.mode is OperatorStateMode.BROADCAST
            state = BroadcastState(descriptor) if broadcast else ListState(descriptor)
            self._states[descriptor.name] = state
        elif state.descriptor != descriptor:
            raise _wrong_kind(descriptor.name, str(descriptor), state.descriptor)
        return state

    @property
    def descriptors(self) -> tuple[OperatorStateDescriptor, ...]:
        return tuple(state.descriptor for state in self._states.values())

    def list_state(self, name: str) -> ListState:
        """The list or union state of that name.

        Raises InvalidRequestError (``unknown-state``, ``operator-state-kind``)."""
        state = self.state(name)
        if not isinstance(state, ListState):
            raise _wrong_kind(name, "a list state", state.descriptor)
        return state

    def broadcast_state(self, name: str) -> BroadcastState:
        """As :meth:`list_state`."""
        state = self.state(name)
        if not isinstance(state, BroadcastState):
            raise _wrong_kind(name, "a broadcast state", state.descriptor)
        return state

    def state(self, name: str) -> ListState | BroadcastState:
        if name not in self._states:
            known = ", ".join(self._states) or "none"
            raise InvalidRequestError(
                f"operator state {name!r} is not registered: known are {known}",
                kind="unknown-state",
                hint="declare it under operator_states in the pipeline file",
            )
        return self._states[name]

    def freeze(self) -> tuple[OperatorStateContent, ...]:
        """A deep copy of every state: user code may go on changing them (R117).

        Raises InvalidRequestError (``bad-operator-state``) for values that the declared type cannot hold."""
        return tuple(state.frozen() for state in self._states.values())


def _column(descriptor: OperatorStateDescriptor, part: str, values: list[Value]) -> pa.Array:
    type_ = descriptor.key_type if part == "key" else descriptor.value_type
    assert type_ is not None
    problem = ""
    try:
        column = pa.array(values, codec_of(type_).arrow_type)
        if column.null_count:
            problem = f"null {part} at position {column.is_null().index(True).as_py()}"
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        problem = str(error)
    if problem:
        raise InvalidRequestError(
            f"operator state {descriptor.name!r}: expected each {part} to be a {type_}: {problem}",
            kind="bad-operator-state",
        )
    return column


def _wrong_kind(name: str, wanted: str, found: OperatorStateDescriptor) -> InvalidRequestError:
    return InvalidRequestError(
        f"operator state {name!r}: expected {wanted}, it is registered as {found} (a name serves one kind only)",
        kind="operator-state-kind",
    )
