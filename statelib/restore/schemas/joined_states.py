"""Joining the descriptions of one state that two handles of an operator contain.

The headers of subtasks may differ in the subclasses of a Java class that each subtask has written. Values contain the
names of their subclasses, so a type with the subclasses of both headers can read the entries of both.
"""

from dataclasses import fields, is_dataclass, replace
from typing import Any

from statelib.model.state import StateDescriptor
from statelib.model.types import Pojo


def join_states(one: StateDescriptor, other: StateDescriptor) -> StateDescriptor | None:
    """Return a state that can hold the entries of both, or None if their kinds or serializers differ."""
    if (one.name, one.kind) != (other.name, other.kind):
        return None
    value = join_types(one.value_type, other.value_type)
    namespace = join_types(one.namespace_type, other.namespace_type)
    user_key = join_types(one.user_key_type, other.user_key_type)
    if value is None or namespace is None or (user_key is None and (one.user_key_type or other.user_key_type)):
        return None
    return replace(one, value_type=value, namespace_type=namespace, user_key_type=user_key)


def join_types(one: Any, other: Any) -> Any:
    """Return a type that can read the values of both types, or None if there is none.

    The types may differ only in the subclasses of a Java class that their handles name."""
    if one == other:
        return one
    if type(one) is not type(other):
        return None
    if isinstance(one, Pojo):
        return _join_pojos(one, other)
    if isinstance(one, tuple):
        return _all_joined(one, other)
    if not is_dataclass(one) or isinstance(one, type):
        return None
    return _with_parts(one, other, [f.name for f in fields(one) if f.compare and f.name != "snapshot"])


def _with_parts(one: Any, other: Any, names: list[str]) -> Any:
    parts = {name: join_types(getattr(one, name), getattr(other, name)) for name in names}
    differs = any(parts[name] is None and getattr(one, name) is not None for name in names)
    return None if differs else replace(one, **parts)


def _all_joined(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...] | None:
    joined = tuple(join_types(one_part, other_part) for one_part, other_part in zip(one, other, strict=False))
    return None if len(one) != len(other) or None in joined else joined


def _join_pojos(one: Pojo, other: Pojo) -> Any:
    """Join two Java classes with the subclasses of both."""
    joined = _with_parts(replace(one, seen=()), replace(other, seen=()), ["java_class", "fields", "registered"])
    other_subclasses = {subclass.java_class: subclass for subclass in other.seen}
    subclasses = [join_types(subclass, other_subclasses.pop(subclass.java_class, subclass)) for subclass in one.seen]
    if joined is None or None in subclasses:
        return None
    return replace(joined, seen=(*subclasses, *other_subclasses.values()))
