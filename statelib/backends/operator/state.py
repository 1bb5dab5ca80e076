"""The live operator state of one subtask, which user code reads and changes, and frozen copies of it.

Source: docs/spec/requirements.md R116 to R118 (DefaultOperatorStateBackend). Operator state is small and used by user
code, so it is held as Python objects; only its snapshots are columns.
"""

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import pyarrow as pa

from statelib.backends.operator.emitted_rows import EmittedRows
from statelib.backends.operator.side_data import FrozenSideData, SideData
from statelib.errors import InvalidRequestError
from statelib.formats.operator_state import OperatorStateContent
from statelib.model.operator_state import OperatorStateDescriptor, OperatorStateMode
from statelib.serializers.registry import codec_of

Value = Any
"""A Python value that pyarrow accepts for the state's type: int, str, datetime, a dict for a row, ..."""


class ListState:
    """The elements of one list or union state that this subtask holds.

    Elements that are added are copied, and stay the caller's. :meth:`get` returns the state's own elements: who changes
    one of them in place changes the state."""

    def __init__(self, descriptor: OperatorStateDescriptor) -> None:
        self.descriptor = descriptor
        self._elements: list[Value] = []

    def get(self) -> list[Value]:
        """Return the elements in a new list."""
        return list(self._elements)

    def add(self, element: Value) -> None:
        """Append one element. Raises InvalidRequestError (``bad-operator-state``) for one that cannot be copied."""
        self._elements.append(_copied(self.descriptor, element))

    def add_all(self, elements: Iterable[Value]) -> None:
        """Append several elements. Raises as :meth:`add`."""
        self._elements.extend(_copied(self.descriptor, element) for element in elements)

    def update(self, elements: Iterable[Value]) -> None:
        """Replace all elements. Raises as :meth:`add`."""
        self._elements = [_copied(self.descriptor, element) for element in elements]

    def clear(self) -> None:
        """Remove all elements."""
        self._elements = []

    def frozen(self) -> OperatorStateContent:
        """Return a copy that later changes do not affect. Raises InvalidRequestError (``bad-operator-state``) for a
        value that the declared type cannot hold."""
        return OperatorStateContent(self.descriptor, _column(self.descriptor, "element", self._elements))

    def load(self, content: OperatorStateContent) -> None:
        """Append the elements of a snapshot."""
        self._elements += content.values.to_pylist()


class BroadcastState:
    """A broadcast state: a map that is equal in all subtasks, provided that user code changes it equally in all.
    Values are copied as the elements of :class:`ListState` are."""

    def __init__(self, descriptor: OperatorStateDescriptor) -> None:
        self.descriptor = descriptor
        self._entries: dict[Value, Value] = {}

    def get(self, key: Value, default: Value = None) -> Value:
        """Return the value of ``key``, or ``default`` if the map does not have it."""
        return self._entries.get(key, default)

    def put(self, key: Value, value: Value) -> None:
        """Set the value of ``key``. Raises as :meth:`ListState.add`."""
        self._entries[key] = _copied(self.descriptor, value)

    def remove(self, key: Value) -> None:
        """Remove ``key``. Nothing happens if the map does not have it."""
        self._entries.pop(key, None)

    def clear(self) -> None:
        """Remove all entries."""
        self._entries = {}

    def items(self) -> list[tuple[Value, Value]]:
        """Return the (key, value) pairs in a new list."""
        return list(self._entries.items())

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Value]:
        return iter(list(self._entries))

    def frozen(self) -> OperatorStateContent:
        """Return a copy that later changes do not affect. Raises InvalidRequestError (``bad-operator-state``) for a
        key or value that the declared types cannot hold."""
        assert self.descriptor.key_type is not None
        keys = _column(self.descriptor, "key", list(self._entries))
        return OperatorStateContent(
            self.descriptor, _column(self.descriptor, "value", list(self._entries.values())), keys
        )

    def load(self, content: OperatorStateContent) -> None:
        """Set the entries of a snapshot."""
        assert content.keys is not None
        self._entries.update(zip(content.keys.to_pylist(), content.values.to_pylist(), strict=True))


class OperatorStateBackend:
    """The operator states of one subtask, by name, and its side data. One name cannot have two kinds or types.

    A user function receives it as its argument ``operator``. ``emitted`` holds the rows that functions return for
    outputs."""

    def __init__(
        self,
        descriptors: Iterable[OperatorStateDescriptor] = (),
        side_data: Iterable[SideData] = (),
        emitted: EmittedRows | None = None,
    ) -> None:
        self.emitted = emitted or EmittedRows()
        self._states: dict[str, ListState | BroadcastState] = {}
        self._side_data = {part.name: part for part in side_data}
        for descriptor in descriptors:
            self.register(descriptor)

    def register(self, descriptor: OperatorStateDescriptor) -> ListState | BroadcastState:
        """Return the state of this description. It is created empty if the name is new.

        Raises InvalidRequestError (``operator-state-kind``) if the name is registered with another mode or type."""
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
        """The descriptions of all registered states, in registration order."""
        return tuple(state.descriptor for state in self._states.values())

    def list_state(self, name: str) -> ListState:
        """Return the list or union state with this name.

        Raises InvalidRequestError (``unknown-state``, ``operator-state-kind``)."""
        state = self.state(name)
        if not isinstance(state, ListState):
            raise _wrong_kind(name, "a list state", state.descriptor)
        return state

    def broadcast_state(self, name: str) -> BroadcastState:
        """Return the broadcast state with this name.

        Raises InvalidRequestError (``unknown-state``, ``operator-state-kind``)."""
        state = self.state(name)
        if not isinstance(state, BroadcastState):
            raise _wrong_kind(name, "a broadcast state", state.descriptor)
        return state

    def state(self, name: str) -> ListState | BroadcastState:
        """Return the state with this name. Raises InvalidRequestError (``unknown-state``)."""
        if name not in self._states:
            names = ", ".join(self._states) or "none"
            raise InvalidRequestError(
                f"operator state {name!r} is not registered: known are {names}",
                kind="unknown-state",
                hint="declare it under operator_states in the pipeline file",
            )
        return self._states[name]

    def frozen_side_data(self) -> tuple[FrozenSideData, ...]:
        """Return the side data of all names as it is at this moment."""
        return tuple(part.frozen() for part in self._side_data.values())

    def own_side_data(self, name: str) -> SideData | None:
        """Return the side data with this name, None if this run keeps none."""
        return self._side_data.get(name)

    def side_data(self, name: str) -> SideData:
        """Return the side data with this name. Raises InvalidRequestError (``unknown-side-data``)."""
        if name not in self._side_data:
            names = ", ".join(self._side_data) or "none"
            raise InvalidRequestError(
                f"side data {name!r} is not declared: known are {names}",
                kind="unknown-side-data",
                hint="declare it under side_data in the pipeline file",
            )
        return self._side_data[name]

    def freeze(self) -> tuple[OperatorStateContent, ...]:
        """Return a deep copy of every state. User code may continue to change the states (R117).

        Raises InvalidRequestError (``bad-operator-state``) for values that the declared type cannot hold."""
        return tuple(state.frozen() for state in self._states.values())


def _copied(descriptor: OperatorStateDescriptor, value: Value) -> Value:
    """Return a copy of a value, in memory of its own."""
    try:
        return bytes(value) if isinstance(value, memoryview) else deepcopy(value)
    except TypeError as error:
        raise InvalidRequestError(
            f"operator state {descriptor.name!r}: expected a value that can be copied: {error}",
            kind="bad-operator-state",
            hint="pass plain Python values: bytes in place of a memoryview",
        ) from error


def _column(descriptor: OperatorStateDescriptor, part: str, values: list[Value]) -> pa.Array:
    """Return the values as an Arrow array of the declared type. ``part``: ``key``, ``value`` or ``element``."""
    type_ = descriptor.key_type if part == "key" else descriptor.value_type
    assert type_ is not None
    problem = ""
    try:
        column = pa.array(values, codec_of(type_).arrow_type)
        if column.null_count:
            problem = f"null {part} at position {column.is_null().index(True).as_py()}"
        else:
            problem = next((text for value in values for text in _losses(value, column.type)), "")
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        problem = str(error)
    if problem:
        raise InvalidRequestError(
            f"operator state {descriptor.name!r}: expected each {part} to be a {type_}: {problem}",
            kind="bad-operator-state",
        )
    return column


def _losses(value: Value, type_: pa.DataType) -> Iterator[str]:
    """Yield what a column of this type would lose of a value without an error of Arrow: fields that a row does not
    have, and fractions of whole numbers."""
    if pa.types.is_integer(type_) and isinstance(value, float | np.floating) and not float(value).is_integer():
        yield f"{value} is no whole number"
    elif pa.types.is_struct(type_) and isinstance(value, Mapping):
        types = {field.name: field.type for field in type_}
        for name, part in value.items():
            yield from _losses(part, types[name]) if name in types else (f"it has no field {name!r}",)
    elif pa.types.is_map(type_) and value is not None:
        for key, item in value.items() if isinstance(value, Mapping) else value:
            yield from (*_losses(key, type_.key_type), *_losses(item, type_.item_type))
    elif pa.types.is_list(type_) and value is not None:
        for element in value:
            yield from _losses(element, type_.value_type)


def _wrong_kind(name: str, wanted: str, registered: OperatorStateDescriptor) -> InvalidRequestError:
    return InvalidRequestError(
        f"operator state {name!r}: expected {wanted}, it is registered as {registered} (a name serves one kind only)",
        kind="operator-state-kind",
    )
