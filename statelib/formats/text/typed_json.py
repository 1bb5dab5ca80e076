"""Typed JSON lines: every entry of a state as one lossless, diffable line of text.

``{"op", "state", "kind", "key", "kg", "ns", ["uk" | "idx",] "value"}``, with ``"ts"`` (epoch ms) in
place of the value for a timer, whose state is the name of its service; each value carries its type:
``{"type": "long", "v": 7}``. Text is for people and for other programs, not a hot path.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from statelib.model.operator_state import OperatorStateDescriptor, OperatorStateMode
from statelib.model.state import EVENT_TIMERS, PROCESSING_TIMERS, KeyedStateSchema, StateDescriptor, StateKind
from statelib.serializers.exact_entries import exact_key, exact_members, exact_operator_members
from statelib.serializers.rows import StateRows
from statelib.wire.json_text import json_text
from statelib.wire.reader import Reader

Json = dict[str, Any]


def entry_lines(operator: str, schema: KeyedStateSchema, descriptor: StateDescriptor, rows: StateRows) -> Iterator[str]:
    """One line an entry of serialized rows, or an element where the state holds lists.

    Raises CorruptStateError where the bytes are not of the state's types."""
    for head, found in state_members(operator, schema, descriptor, rows):
        yield from (json_text(head | members) for members in found)


def state_members(
    operator: str, schema: KeyedStateSchema, descriptor: StateDescriptor, rows: StateRows
) -> Iterator[tuple[Json, Iterator[Json]]]:
    """Of each entry what its lines have in common, and what each of them adds; raises as :func:`entry_lines`."""
    state, kind = _named(descriptor)
    start: Json = {"op": operator, "state": state, "kind": kind}
    key_of, members_of = exact_key(schema, descriptor), exact_members(descriptor)
    key_text, value_text = f"key of state {descriptor.name!r}", f"value of state {descriptor.name!r}"
    for key, value in zip(rows.keys.to_list(), rows.values.to_list(), strict=True):
        yield start | key_of(Reader(key, key_text)), members_of(Reader(value, value_text))


def _named(descriptor: StateDescriptor) -> tuple[str, str]:
    """What a line calls the state, and its kind."""
    for prefix, kind in ((EVENT_TIMERS, "eventTimer"), (PROCESSING_TIMERS, "procTimer")):
        if descriptor.kind is StateKind.TIMERS and descriptor.name.startswith(prefix):
            return descriptor.name.removeprefix(prefix), kind
    return descriptor.name, descriptor.kind.value


_OPERATOR_KINDS = {
    OperatorStateMode.SPLIT_DISTRIBUTE: "opList",
    OperatorStateMode.UNION: "opUnion",
    OperatorStateMode.BROADCAST: "broadcast",
}


def operator_lines(operator: str, descriptor: OperatorStateDescriptor, parts: Iterable[bytes]) -> Iterator[str]:
    """One line an element of list or union state, or an entry of broadcast state; ``parts``: as
    :meth:`~statelib.formats.operator_state.OperatorStream.stored` gives them. A map of which nothing says where its
    entries end is one line.

    Raises CorruptStateError where the bytes are not of the state's types."""
    return map(json_text, operator_members(operator, descriptor, parts))


def operator_members(operator: str, descriptor: OperatorStateDescriptor, parts: Iterable[bytes]) -> Iterator[Json]:
    """What the lines of :func:`operator_lines` hold."""
    head: Json = {"op": operator, "state": descriptor.name, "kind": _OPERATOR_KINDS[descriptor.mode]}
    members_of = exact_operator_members(descriptor)
    for part in parts:
        yield from (head | members for members in members_of(Reader(part, f"state {descriptor.name!r}")))
