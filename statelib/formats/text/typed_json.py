"""Entries as typed JSON lines: each entry of a state is one line of text, lossless and suited to ``diff``.

``{"op", "state", "kind", "key", "kg", "ns", ["uk" | "idx",] "value"}``, with ``"ts"`` (epoch ms) in place of the value
for a timer. The state of a timer is the name of its timer service. Each value carries its type: ``{"type": "long", "v":
7}``. The lines are for people and for other programs, not for a hot path.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from statelib.model.operator_state import OperatorStateDescriptor, OperatorStateMode
from statelib.model.state import EVENT_TIMERS, PROCESSING_TIMERS, KeyedStateSchema, StateDescriptor, StateKind
from statelib.serializers.entries.rows import StateRows
from statelib.serializers.entries.typed_json import key_json_reader, operator_json_reader, value_json_reader
from statelib.wire.json_text import json_text
from statelib.wire.reader import Reader

Json = dict[str, Any]


def entry_lines(operator: str, schema: KeyedStateSchema, descriptor: StateDescriptor, rows: StateRows) -> Iterator[str]:
    """Return one line per entry of the serialized rows, or per element if the state holds lists.

    Raise CorruptStateError if the bytes are not of the state's types.
    """
    for head, entry_members in state_members(operator, schema, descriptor, rows):
        yield from (json_text(head | members) for members in entry_members)


def state_members(
    operator: str, schema: KeyedStateSchema, descriptor: StateDescriptor, rows: StateRows
) -> Iterator[tuple[Json, Iterator[Json]]]:
    """Yield per entry the fields that its lines share, and the further fields of each line.

    Raise the errors of :func:`entry_lines`.
    """
    state, kind = _shown_name_and_kind(descriptor)
    start: Json = {"op": operator, "state": state, "kind": kind}
    key_of, members_of = key_json_reader(schema, descriptor), value_json_reader(descriptor)
    key_text, value_text = f"key of state {descriptor.name!r}", f"value of state {descriptor.name!r}"
    for key, value in zip(rows.keys.to_list(), rows.values.to_list(), strict=True):
        yield start | key_of(Reader(key, key_text)), members_of(Reader(value, value_text))


def _shown_name_and_kind(descriptor: StateDescriptor) -> tuple[str, str]:
    """Return the name and the kind of the state as its lines show them."""
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
    """Return one line per element of list or union state, or per entry of broadcast state.

    ``parts`` is what :meth:`~statelib.formats.operator_state.OperatorStream.stored` returns. A broadcast map whose
    entries cannot be separated is one line. Raise CorruptStateError if the bytes are not of the state's types.
    """
    return map(json_text, operator_members(operator, descriptor, parts))


def operator_members(operator: str, descriptor: OperatorStateDescriptor, parts: Iterable[bytes]) -> Iterator[Json]:
    """Yield the fields of each line of :func:`operator_lines`."""
    head: Json = {"op": operator, "state": descriptor.name, "kind": _OPERATOR_KINDS[descriptor.mode]}
    members_of = operator_json_reader(descriptor)
    for part in parts:
        yield from (head | members for members in members_of(Reader(part, f"state {descriptor.name!r}")))
