"""Hash codes of keys, including keys of users' classes.

Source: docs/spec/formats.md#hash-codes-of-keys.
"""

import numpy as np
import pyarrow as pa

from statelib.errors import InvalidRequestError, UnsupportedError
from statelib.model.key_hash import FieldsHash
from statelib.model.types import Like, Opaque, Pojo, StateType, parts_of
from statelib.serializers.columns.codec import Hashes
from statelib.serializers.columns.java_hashes import nulls_to_zero, signed
from statelib.serializers.registry import codec_of

_MASK = 0xFFFFFFFF


def hash_codes(key_type: StateType, keys: pa.Array, rule: FieldsHash | None = None) -> Hashes:
    """Return ``hashCode()`` of each key. ``rule``: for keys of a user's class, and only for them.

    Raise UnsupportedError (``no-key-hash``) for a class without a rule, InvalidRequestError (``bad-key-hash``)."""
    if rule is None and has_own_hash(key_type):
        raise UnsupportedError(
            f"keys of type {key_type}: their key group comes from a hashCode of a class of its own",
            kind="no-key-hash",
            hint="declare how it combines fields, such as hash: {of: [id, name], start: 0}, or give a column of hashes",
        )
    if rule is None:
        return codec_of(key_type).java_hash(keys)
    types = rule_types(key_type, rule)
    words = np.full(len(keys), rule.start & _MASK, np.uint32)
    for name, type_ in types:
        column = keys.field(name)
        if keys.offset or keys.null_count:
            column = pa.StructArray.flatten(keys)[keys.type.get_field_index(name)]
        words = words * np.uint32(rule.times & _MASK) + nulls_to_zero(codec_of(type_).java_hash, column)
    return signed(words)


def has_own_hash(key_type: StateType) -> bool:
    """Return whether a class that statelib does not have computes the hash of a key or of a part of it: a user's class,
    or one whose values are stored as those of another type, such as a case class of Scala."""
    return isinstance(key_type, Pojo | Opaque | Like) or any(map(has_own_hash, parts_of(key_type)))


def rule_types(key_type: StateType, rule: FieldsHash) -> list[tuple[str, StateType]]:
    """Return the fields that a rule reads, with their types.

    Raise InvalidRequestError (``bad-key-hash``) if the rule does not fit the type."""
    if not isinstance(key_type, Pojo):
        raise InvalidRequestError(
            f"a rule of hashing for keys of type {key_type}: Flink defines their hash", kind="bad-key-hash"
        )
    types = {field.name: field.type for field in key_type.fields}
    unknown = [name for name in rule.fields if name not in types]
    if unknown or not rule.fields:
        raise InvalidRequestError(
            f"hash of {key_type.java_class} from fields {list(rule.fields)}: its fields are {', '.join(types)}",
            kind="bad-key-hash",
        )
    return [(name, types[name]) for name in rule.fields]
