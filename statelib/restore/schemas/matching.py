"""The comparison of a stream's states with its manifest: by name, kind and type. Changes of states are compared in
``evolution.py``."""

from statelib.errors import InvalidRequestError
from statelib.model.state import KeyedStateSchema, StateDescriptor
from statelib.model.types import BIGDECIMAL, Decimal, Field, Row, StateType, parts_of, with_parts
from statelib.restore.schemas.joined_states import join_states, join_types


def check_same_schema(wanted: KeyedStateSchema, stored: KeyedStateSchema, *, partial: bool = False) -> tuple[int, ...]:
    """Return the index in ``wanted`` per state of ``stored``.

    What Flink does not store and the order of the states are ignored (:func:`as_stored`). ``partial`` allows
    that ``stored`` lacks states. Raise InvalidRequestError (``state-schema-changed`` with the state, the expected and
    the stored type, ``max-parallelism-changed``, because the key groups of all keys would change)."""
    check_same_keys(wanted, stored)
    stored_names = {d.name for d in stored.states}
    for descriptor in wanted.states:
        if descriptor.name not in stored_names and not partial:
            raise changed(f"state {descriptor.name!r}", describe(descriptor), "no such state")
    return tuple(check_same_state(wanted, descriptor) for descriptor in stored.states)


def check_same_state(wanted: KeyedStateSchema, stored: StateDescriptor) -> int:
    """Return the index in ``wanted`` of a stored state. Raise InvalidRequestError (``state-schema-changed``)."""
    for index, descriptor in enumerate(wanted.states):
        if descriptor.name != stored.name:
            continue
        same = describe(descriptor, names=False) == describe(stored, names=False)
        if not same and join_states(descriptor, stored) != descriptor:
            raise changed(f"state {descriptor.name!r}", describe(descriptor), describe(stored))
        return index
    raise changed(f"state {stored.name!r}", "no such state", describe(stored))


def check_same_keys(wanted: KeyedStateSchema, stored: KeyedStateSchema) -> None:
    """Raise InvalidRequestError if the maximum parallelism or the key type differs (``max-parallelism-changed``,
    ``state-schema-changed``). They are fixed, because the key group of every key depends on them."""
    if wanted.max_parallelism != stored.max_parallelism:
        raise InvalidRequestError(
            f"max_parallelism: expected {wanted.max_parallelism}, the stored state has {stored.max_parallelism}",
            kind="max-parallelism-changed",
            hint="max_parallelism is fixed for the life of a pipeline's state",
        )
    same = keeps_bytes(stored.key_type, wanted.key_type)
    if not same and join_types(wanted.key_type, stored.key_type) != wanted.key_type:
        raise changed("the key", str(wanted.key_type), str(stored.key_type))


def describe(descriptor: StateDescriptor, *, names: bool = True) -> str:
    """Return the kind and the types of a state as text, with ``names=False`` as Flink stores them."""
    parts = [descriptor.user_key_type, descriptor.value_type, descriptor.namespace_type]
    types = [t if names else as_stored(t) for t in parts if t is not None]
    return f"{descriptor.kind}<{', '.join(map(str, types))}>"


def as_stored(type: StateType) -> StateType:  # noqa: A002 - the noun of the model
    """Return the type as Flink's snapshots describe it: the fields of every Row are called f0, f1, …, and decimals are
    BigDecimals of any scale. The fields of a user's class keep their names."""
    if isinstance(type, Decimal):
        return BIGDECIMAL
    parts = tuple(map(as_stored, parts_of(type)))
    if isinstance(type, Row):
        return Row(tuple(Field(f"f{i}", part) for i, part in enumerate(parts)))
    return with_parts(type, parts)


def keeps_bytes(stored: StateType, wanted: StateType) -> bool:
    """Return whether stored values have the same bytes in the wanted type, whatever the names of Row fields are. A
    decimal may have more digits than before, but must have the same scale. The scale of a BigDecimal that Flink wrote
    is found out when it is read."""
    if as_stored(stored) != as_stored(wanted):
        return False
    return all(
        not isinstance(old, Decimal)
        or not isinstance(new, Decimal)
        or (old.scale == new.scale and old.precision <= new.precision)
        for old, new in zip(_leaves(stored), _leaves(wanted), strict=True)
    )


def moves_fields(stored: StateType, wanted: StateType) -> bool:
    """Return whether a Row in one of two types has a field that the other type has at another position. The types have
    the same form as stored (:func:`as_stored`), so that values of one could be read as values of the other."""
    if isinstance(stored, Row) and isinstance(wanted, Row):
        positions = {field.name: position for position, field in enumerate(stored.fields)}
        if any(positions.get(field.name, position) != position for position, field in enumerate(wanted.fields)):
            return True
    return any(map(moves_fields, parts_of(stored), parts_of(wanted)))


def _leaves(type_: StateType) -> list[StateType]:
    """Return the types without parts that a type is made of, in order."""
    parts = parts_of(type_)
    return [leaf for part in parts for leaf in _leaves(part)] if parts else [type_]


_CHANGED_HINT = "restore with the definition that wrote the state, or start a new pipeline"


def changed(what: str, expected: str, stored: str, hint: str = _CHANGED_HINT) -> InvalidRequestError:
    """Return the error (``state-schema-changed``) of a state whose stored form the pipeline does not expect."""
    return InvalidRequestError(
        f"{what}: the pipeline expects {expected}, the stored state has {stored}",
        kind="state-schema-changed",
        hint=hint,
    )
