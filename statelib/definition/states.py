"""Descriptors and functions for the checked states of a pipeline file."""

from collections.abc import Iterator, Set
from typing import TYPE_CHECKING

from statelib.aggregates.kinds import NULL_IF_EMPTY, AggregateSpec, Nulls, hashed_kind
from statelib.definition.parts.durations import milliseconds, normal_form
from statelib.definition.parts.model import FieldDefinition, OperatorStateDefinition, StateDefinition, WindowSettings
from statelib.definition.parts.types import type_of
from statelib.model.operator_state import OperatorStateDescriptor, OperatorStateMode
from statelib.model.session_state import session_timers, window_set_descriptor
from statelib.model.state import (
    EVENT_TIMERS,
    PROCESSING_TIMERS,
    FieldMeaning,
    StateDescriptor,
    StateKind,
    timers_descriptor,
)
from statelib.model.ttl import TtlConfig, TtlUpdate
from statelib.model.types import TIME_WINDOW, VOID, Field, ListOf, Row, StateType, Ttl

if TYPE_CHECKING:
    from statelib.functions.sessions.session_function import SessionSpec
    from statelib.functions.state_function import StateFunction
    from statelib.functions.windows import WindowSpec

Types = dict[str, StateType]
"""Types by column name, of a definition without problems."""

_MODES = {
    "list": OperatorStateMode.SPLIT_DISTRIBUTE,
    "union": OperatorStateMode.UNION,
    "broadcast": OperatorStateMode.BROADCAST,
}


def operator_descriptor_of(name: str, state: OperatorStateDefinition) -> OperatorStateDescriptor:
    """Return the descriptor of an operator state."""
    type_text = state.value if state.mode == "broadcast" else state.element
    assert type_text is not None, "an operator state without a type passed the checks"
    key_type = type_of(state.key) if state.key else None
    return OperatorStateDescriptor(name, _MODES[state.mode], type_of(type_text), key_type)


def with_whole_rows(state: StateDefinition, columns: Types, key: tuple[str, ...]) -> StateDefinition:
    """Return the state with the columns of each ``latest`` named: all of the source but those of the key, of the user
    key and of its own ``by``."""

    def named(field: FieldDefinition) -> FieldDefinition:
        if field.agg != "latest":
            return field
        others = (*key, *field.by, state.user_key)
        return field.model_copy(update={"of": tuple(name for name in columns if name not in others)})

    fields = {name: named(field) for name, field in state.fields.items()}
    return state.model_copy(update={"fields": fields, "value": state.value and named(state.value)})


def descriptor_of(
    name: str, state: StateDefinition, columns: Types, retracted: Set[str] = frozenset()
) -> StateDescriptor:
    """Return the descriptor of a keyed state. ``retracted``: the columns whose values a change log may take back."""
    user_key_type = columns[state.user_key] if state.user_key is not None else None
    value_type = _value_type(state, columns)
    if state.ttl is not None:
        value_type = Ttl(value_type)
    return StateDescriptor(
        name,
        StateKind(state.kind),
        value_type,
        user_key_type,
        namespace_type=VOID if state.window is None else TIME_WINDOW,
        meanings=tuple(_meanings(state, columns, retracted)),
        renamed_from=state.renamed_from,
        windows="" if state.window is None else _windows(state.window),
        user_key=state.user_key or "",
        time="" if state.window is None else state.window.time,
    )


def _windows(window: WindowSettings) -> str:
    """Return the form and length of windows as text."""
    if window.sliding is not None:
        return f"sliding {normal_form(window.sliding.size)} every {normal_form(window.sliding.slide)}"
    if window.session is not None:
        return f"session {normal_form(window.session)}"
    assert window.tumbling is not None, "windows without a form passed the checks"
    return f"tumbling {normal_form(window.tumbling)}"


def _meanings(state: StateDefinition, columns: Types, retracted: Set[str]) -> Iterator[FieldMeaning]:
    fields = state.fields if state.value is None else {"": state.value}
    for name, field in fields.items():
        of = field.of if isinstance(field.of, str) else None
        agg = field.agg or ""
        yield FieldMeaning(
            name,
            agg,
            of,
            field.by,
            field.numbers,
            field.renamed_from,
            keeps_nulls=field.nulls is Nulls.KEEP,
            together=bool(field.together),
            where=field.where,
            hashes=hashed_kind(agg, columns[of]) if of is not None else "",
            needs_all_events=agg in NULL_IF_EMPTY and of in retracted,
        )


def states_beside(name: str, state: StateDefinition) -> tuple[StateDescriptor, ...]:
    """Return the descriptors of the states that belong to a state: timers that end its windows, or timers that its
    function sets, and the open windows of sessions. The service of the timers has the name of the state, because one
    operator may have several states with timers."""
    if state.window is not None and state.window.session is not None:
        services = [session_timers(each) for each in (name, *state.renamed_from)]
        timers = timers_descriptor(EVENT_TIMERS, services[0], TIME_WINDOW, services[1:])
        return window_set_descriptor(name, state.renamed_from), timers
    former = state.renamed_from
    if state.window is not None:
        return (timers_descriptor(EVENT_TIMERS, name, TIME_WINDOW, former),)
    if state.on_timer is not None:
        return tuple(timers_descriptor(prefix, name, VOID, former) for prefix in (EVENT_TIMERS, PROCESSING_TIMERS))
    return ()


def ttl_of(state: StateDefinition) -> TtlConfig | None:
    """Return the time to live of a state's entries, None if they never expire."""
    if state.ttl is None:
        return None
    return TtlConfig(milliseconds(state.ttl), TtlUpdate(state.update or TtlUpdate.ON_CREATE_AND_WRITE))


def function_of(
    name: str,
    state: StateDefinition,
    columns: Types,
    key: tuple[str, ...],
    drop_null_keys: bool,
    *,
    closed: tuple[str, ...] = (),
) -> "StateFunction":
    """Return the function that applies events to a state. ``closed``: the outputs of its closed sessions."""
    # Imported here, because only a run of the pipeline needs Arrow. The scheduler only reads the file.
    from statelib.functions.declared import AggregateFunction
    from statelib.functions.sessions.session_function import SessionFunction
    from statelib.functions.user_code.state_functions import UserFunction
    from statelib.functions.windows import WindowedFunction

    if state.function is not None:
        return UserFunction(name, key, state.function, state.on_timer)
    if state.value is not None:
        fields: tuple[tuple[str | None, AggregateSpec], ...] = ((None, _spec(state.value, columns)),)
    else:
        fields = tuple((field_name, _spec(field, columns)) for field_name, field in state.fields.items())
    function = AggregateFunction(name, fields, state.user_key, drop_null_keys)
    if state.window is None:
        return function
    if state.window.session is not None:
        return SessionFunction(function, _session_spec(state.window, state.window.session), closed)
    return WindowedFunction(function, _window_spec(state.window))


def _window_spec(window: WindowSettings) -> "WindowSpec":
    from statelib.functions.windows import WindowSpec

    sliding = window.sliding
    size, slide = (sliding.size, sliding.slide) if sliding is not None else (window.tumbling, window.tumbling)
    assert size is not None, "a window without a size passed the checks"
    assert slide is not None
    lateness_ms, retain_ms = milliseconds(window.allowed_lateness), milliseconds(window.retain)
    return WindowSpec(window.time, milliseconds(size), milliseconds(slide), lateness_ms, retain_ms)


def _session_spec(window: WindowSettings, gap: str) -> "SessionSpec":
    from statelib.functions.sessions.session_function import SessionSpec

    lateness_ms, retain_ms = milliseconds(window.allowed_lateness), milliseconds(window.retain)
    return SessionSpec(window.time, milliseconds(gap), lateness_ms, retain_ms)


def _value_type(state: StateDefinition, columns: Types) -> StateType:
    if state.value is None:
        return Row(tuple(Field(name, _field_type(field, columns)) for name, field in state.fields.items()))
    type_ = _field_type(state.value, columns)
    if state.kind == "list":
        assert isinstance(type_, ListOf), "the aggregates of a list state make lists"
        return type_.element
    return type_


def _field_type(field: FieldDefinition, columns: Types) -> StateType:
    return type_of(field.type) if field.type is not None else _spec(field, columns).accumulator_type


def _spec(field: FieldDefinition, columns: Types) -> AggregateSpec:
    assert field.agg is not None, "an aggregate without a name passed the checks"
    of = (field.of, columns[field.of]) if isinstance(field.of, str) else None
    by, together = (tuple((name, columns[name]) for name in names) for names in (field.by, field.together))
    return AggregateSpec(field.agg, of, by, field.numbers, field.nulls or Nulls.SKIP, together, field.where)
