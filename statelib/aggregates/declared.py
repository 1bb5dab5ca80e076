"""The computation of a state's values from its description in a snapshot, without the pipeline file."""

from statelib.aggregates.folding import Folding
from statelib.aggregates.kinds import AGGREGATES, AggregateSpec, Nulls
from statelib.model.state import FieldMeaning, StateDescriptor, StateKind
from statelib.model.types import LONG, VOID, ListOf, Row, StateType


def folding_of(descriptor: StateDescriptor) -> Folding | None:
    """Return the computation that merges values of the state; None if a value is not made of accumulators only, or
    belongs to a window."""
    fields = _accumulators(descriptor)
    if fields is None or descriptor.kind is StateKind.LIST or descriptor.namespace_type != VOID:
        return None
    return Folding(descriptor.name, tuple((meaning.field or None, _spec(meaning, type_)) for meaning, type_ in fields))


def _accumulators(descriptor: StateDescriptor) -> list[tuple[FieldMeaning, StateType]] | None:
    """Return the meaning and the type of each accumulator in the order of the value's fields; None if a part of the
    value is no accumulator."""
    meanings = {meaning.field: meaning for meaning in descriptor.meanings if meaning.agg in AGGREGATES}
    if set(meanings) == {""}:
        return [(meanings[""], descriptor.value_type)]
    if not isinstance(descriptor.value_type, Row):
        return None
    fields = descriptor.value_type.fields
    if any(field.name not in meanings for field in fields):
        return None
    return [(meanings[field.name], field.type) for field in fields]


def _spec(meaning: FieldMeaning, accumulator: StateType) -> AggregateSpec:
    """Return the aggregate of an accumulator, as far as merging depends on it. Types of columns are those in the
    accumulator, which may be wider than those of the events."""
    event = accumulator.element if isinstance(accumulator, ListOf) else accumulator
    types = {field.name: field.type for field in event.fields} if isinstance(event, Row) else {}
    value = types.get("value", event)
    together = value.fields if meaning.together and isinstance(value, Row) else ()
    return AggregateSpec(
        meaning.agg,
        of=None if meaning.of is None else (meaning.of, value),
        by=tuple((name, types.get(f"by_{name}", LONG)) for name in meaning.by),
        bounds=meaning.bounds,
        nulls=Nulls.KEEP if meaning.keeps_nulls else Nulls.SKIP,
        together=tuple((field.name, field.type) for field in together),
        where=meaning.where,
    )
