"""Whether a stream holds what its manifest says: states by name, kind and type. How stored states may become
others is for ``evolution.py``."""

from statelib.errors import InvalidRequestError
from statelib.model.state import KeyedStateSchema, StateDescriptor
from statelib.model.types import Field, Row, StateType, parts_of, with_parts
from statelib.restore.schemas.joined_states import join_states, join_types


def check_same_schema(wanted: KeyedStateSchema, found: KeyedStateSchema, *, partial: bool = False) -> tuple[int, ...]:
    """For each state of ``found`` its index in ``wanted``.

    The names of Row fields do not count (Flink does not store them), nor does the order of the
    states. ``partial``: ``found`` may lack states. Raises InvalidRequestError: ``state-schema-changed``
    naming state, expected and found; ``max-parallelism-changed``, because the key groups of all keys would move."""
    check_same_keys(wanted, found)
    stored = {d.name for d in found.states}
    for descriptor in wanted.states:
        if descriptor.name not in stored and not partial:
            raise changed(f"state {descriptor.name!r}", describe(descriptor), "no such state")
    return tuple(check_same_state(wanted, descriptor) for descriptor in found.states)


def check_same_state(wanted: KeyedStateSchema, found: StateDescriptor) -> int:
    """The index in ``wanted`` of a stored state; raises as :func:`check_same_schema` does."""
    for index, descriptor in enumerate(wanted.states):
        if descriptor.name != found.name:
            continue
        same = describe(descriptor, names=False) == describe(found, names=False)
        if not same and join_states(descriptor, found) != descriptor:
            raise changed(f"state {descriptor.name!r}", describe(descriptor), describe(found))
        return index
    raise changed(f"state {found.name!r}", "no such state", describe(found))


def check_same_keys(wanted: KeyedStateSchema, found: KeyedStateSchema) -> None:
    """What can never change, because every key would belong somewhere else; raises as :func:`check_same_schema`."""
    if wanted.max_parallelism != found.max_parallelism:
        raise InvalidRequestError(
            f"max_parallelism: expected {wanted.max_parallelism}, the stored state has {found.max_parallelism}",
            kind="max-parallelism-changed",
            hint="max_parallelism is fixed for the life of a pipeline's state",
        )
    same = without_field_names(wanted.key_type) == without_field_names(found.key_type)
    if not same and join_types(wanted.key_type, found.key_type) != wanted.key_type:
        raise changed("the key", str(wanted.key_type), str(found.key_type))


def describe(descriptor: StateDescriptor, *, names: bool = True) -> str:
    """A state's kind and types as text; without the names of Row fields when ``names`` is False."""
    parts = [descriptor.user_key_type, descriptor.value_type, descriptor.namespace_type]
    types = [t if names else without_field_names(t) for t in parts if t is not None]
    return f"{descriptor.kind}<{', '.join(map(str, types))}>"


def without_field_names(type: StateType) -> StateType:  # noqa: A002 - the noun of the model
    """Return the same type with every Row's fields called f0, f1, ..., as Flink's bytes have them. A user's class
    keeps the names of its fields."""
    parts = tuple(map(without_field_names, parts_of(type)))
    if isinstance(type, Row):
        return Row(tuple(Field(f"f{i}", part) for i, part in enumerate(parts)))
    return with_parts(type, parts)


_CHANGED_HINT = "restore with the definition that wrote the state, or start a new pipeline"


def changed(what: str, expected: str, found: str, hint: str = _CHANGED_HINT) -> InvalidRequestError:
    """Return the error of a state that the pipeline no longer wants as it was stored."""
    return InvalidRequestError(
        f"{what}: the pipeline expects {expected}, the stored state has {found}",
        kind="state-schema-changed",
        hint=hint,
    )
