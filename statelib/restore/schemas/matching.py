"""The comparison of a stream's states with its manifest: by name, kind and type. Changes of states are compared in
``evolution.py``."""

from statelib.errors import InvalidRequestError
from statelib.model.state import KeyedStateSchema, StateDescriptor
from statelib.model.types import Field, Row, StateType, parts_of, with_parts
from statelib.restore.schemas.joined_states import join_states, join_types


def check_same_schema(wanted: KeyedStateSchema, stored: KeyedStateSchema, *, partial: bool = False) -> tuple[int, ...]:
    """Return the index in ``wanted`` per state of ``stored``.

    The names of Row fields, which Flink does not store, and the order of the states are ignored. ``partial`` allows
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
    same = without_field_names(wanted.key_type) == without_field_names(stored.key_type)
    if not same and join_types(wanted.key_type, stored.key_type) != wanted.key_type:
        raise changed("the key", str(wanted.key_type), str(stored.key_type))


def describe(descriptor: StateDescriptor, *, names: bool = True) -> str:
    """Return the kind and the types of a state as text. ``names=False`` omits the names of Row fields."""
    parts = [descriptor.user_key_type, descriptor.value_type, descriptor.namespace_type]
    types = [t if names else without_field_names(t) for t in parts if t is not None]
    return f"{descriptor.kind}<{', '.join(map(str, types))}>"


def without_field_names(type: StateType) -> StateType:  # noqa: A002 - the noun of the model
    """Return the type with the fields of every Row renamed to f0, f1, …, as Flink stores them. The fields of a user's
    class keep their names."""
    parts = tuple(map(without_field_names, parts_of(type)))
    if isinstance(type, Row):
        return Row(tuple(Field(f"f{i}", part) for i, part in enumerate(parts)))
    return with_parts(type, parts)


_CHANGED_HINT = "restore with the definition that wrote the state, or start a new pipeline"


def changed(what: str, expected: str, stored: str, hint: str = _CHANGED_HINT) -> InvalidRequestError:
    """Return the error (``state-schema-changed``) of a state whose stored form the pipeline does not expect."""
    return InvalidRequestError(
        f"{what}: the pipeline expects {expected}, the stored state has {stored}",
        kind="state-schema-changed",
        hint=hint,
    )
