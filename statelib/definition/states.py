"""From the checked states of a pipeline file to descriptors and functions."""

from typing import TYPE_CHECKING

from statelib.definition.model import FieldDefinition, StateDefinition
from statelib.definition.types import type_of
from statelib.functions.aggregates import AggregateSpec
from statelib.model.state import StateDescriptor, StateKind
from statelib.model.types import Field, ListOf, Row, StateType

if TYPE_CHECKING:
    from statelib.functions.state_function import StateFunction

Types = dict[str, StateType]
"""Column to type, of a definition without problems."""


def descriptor_of(name: str, state: StateDefinition, columns: Types) -> StateDescriptor:
    user_key_type = columns[state.user_key] if state.user_key is not None else None
    return StateDescriptor(name, StateKind(state.kind), _value_type(state, columns), user_key_type)


def function_of(
    name: str, state: StateDefinition, columns: Types, key: tuple[str, ...], drop_null_keys: bool
) -> "StateFunction":
    # Imported here, because only running a pipeline needs arrays: the scheduler just reads it.
    from statelib.functions.declared import AggregateFunction
    from statelib.functions.user import UserFunction

    if state.function is not None:
        return UserFunction(name, key, state.function)
    if state.value is not None:
        fields: tuple[tuple[str | None, AggregateSpec], ...] = ((None, _spec(state.value, columns)),)
    else:
        fields = tuple((field_name, _spec(field, columns)) for field_name, field in state.fields.items())
    return AggregateFunction(name, fields, state.user_key, drop_null_keys)


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
    of = (field.of, columns[field.of]) if field.of is not None else None
    return AggregateSpec(field.agg, of, tuple((name, columns[name]) for name in field.by), field.bounds)
