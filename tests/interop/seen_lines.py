"""Typed JSON lines in a comparable form: ours, and those of a real Flink."""

import json
from collections.abc import Iterable
from typing import Any

from statelib.model.state import EVENT_TIMERS, PROCESSING_TIMERS, KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import VOID, StateType
from tests.interop.flink_kit import OperatorToSee, StateToSee, TimersToSee


def operator_to_see(uid: str, schema: KeyedStateSchema) -> OperatorToSee:
    states = tuple(
        StateToSee(s.name, s.kind.value, str(s.value_type), _text(s.user_key_type), _namespace(s))
        for s in schema.states
        if s.kind is not StateKind.TIMERS
    )
    timers = {
        TimersToSee(s.name.removeprefix(EVENT_TIMERS).removeprefix(PROCESSING_TIMERS), _namespace(s))
        for s in schema.states
        if s.kind is StateKind.TIMERS
    }
    return OperatorToSee(uid, str(schema.key_type), states, tuple(timers))


def _namespace(state: StateDescriptor) -> str | None:
    return None if state.namespace_type == VOID else str(state.namespace_type)


def _text(type_: StateType | None) -> str | None:
    return None if type_ is None else str(type_)


def comparable(lines: Iterable[str]) -> list[str]:
    """Return the lines sorted, without member order and the text of floating-point numbers: the bits identify a
    number."""
    return sorted(json.dumps(_plain(json.loads(line)), sort_keys=True) for line in lines)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    plain = {name: _plain(member) for name, member in value.items() if not (name == "v" and "bits" in value)}
    if value.get("type") == "map" and isinstance(plain.get("v"), list):
        plain["v"].sort(key=json.dumps)  # A Java map has no order of its own.
    return plain
