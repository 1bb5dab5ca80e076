"""The hash code of a key, computed value by value and step by step, to check the key groups of written entries.

Flink accepts an entry in a wrong key group and never finds it again. So this shares nothing with the arithmetic on
columns.

Source: docs/spec/formats.md#key-groups, #hash-codes-of-keys, #hash-codes-of-sql-keys.
"""

from typing import Any

import pyarrow as pa

from statelib.errors import UnsupportedError
from statelib.model.key_hash import FieldsHash
from statelib.model.types import Pojo, StateType
from statelib.serializers.aspects.plain_hashing import MASK, combined, finished, mixed, signed
from statelib.serializers.registry import key_bytes, support_of


def plain_hashes(type_: StateType, values: pa.Array, rule: FieldsHash | None = None) -> list[int]:
    """Return ``hashCode()`` of each value as Java's int, 0 for null. ``rule``: the hash of a user's class.

    Raise UnsupportedError (``no-key-hash``)."""
    of_bytes = support_of(type_).plain_hash.of_bytes
    if of_bytes is not None:
        return [signed(of_bytes(data)) for data in key_bytes(type_, values).to_list()]
    if isinstance(type_, Pojo) and rule is not None:
        return [signed(_by_rule(type_, value, rule)) for value in values]
    return [signed(_HASHER.of_key(type_, value)) for value in values]


def plain_key_group(hash_code: int, max_parallelism: int) -> int:
    """Return the key group of a hash code: Murmur3 of one number."""
    scrambled = signed(finished(mixed(0, hash_code & MASK) ^ 4))
    return (0 if scrambled == -(1 << 31) else abs(scrambled)) % max_parallelism


class _Hasher:
    """Computes hashes by the support of each type."""

    def of_key(self, type_: StateType, value: Any) -> int:
        if not value.is_valid:
            return 0
        hash_of = support_of(type_).plain_hash.of_key
        if hash_of is None:
            raise UnsupportedError(f"type {type_} as a key has no hash that could be checked", kind="no-key-hash")
        return hash_of(type_, value, self)

    def in_row(self, type_: StateType, value: Any) -> int:
        if not value.is_valid:
            return 0
        hash_in_row = support_of(type_).plain_hash.in_row
        if hash_in_row is not None:
            return hash_in_row(type_, value, self)
        return 31 + self.of_key(type_, value) & MASK


_HASHER = _Hasher()


def _by_rule(type_: Pojo, value: Any, rule: FieldsHash) -> int:
    if not value.is_valid:
        return 0
    types = {field.name: field.type for field in type_.fields}
    return combined((_HASHER.of_key(types[name], value[name]) for name in rule.fields), rule.start, rule.times)
