"""A reference encoder of the key groups of a heap stream, one value at a time.

It is slow and simple on purpose: property tests compare the vectorised codec with it. An entry is (key, namespace,
value) in plain values of ``reference.codecs``; the value of a list or map state is the whole list or map. Source:
docs/spec/formats.md#heap-stream.
"""

import struct

from statelib.formats import snappy_framing
from statelib.model.state import StateDescriptor, StateKind
from statelib.model.types import ListOf, MapOf, StateType
from statelib.testing.reference.codecs import Plain, encode

Entry = tuple[Plain, Plain, Plain]


def encode_key_group(
    key_group: int, key_type: StateType, states: list[tuple[StateDescriptor, list[Entry]]], compressed: bool
) -> bytes:
    """Return the bytes of a key group. ``states``: all states in the order of their ids, also states without
    entries."""
    result = struct.pack(">i", key_group)
    for state_id, (descriptor, entries) in enumerate(states):
        block = struct.pack(">Hi", state_id, len(entries))
        for key, namespace, value in entries:
            block += encode(descriptor.namespace_type, namespace)
            block += encode(key_type, key)
            block += encode(_whole(descriptor), value)
        result += bytes(snappy_framing.compress(block)) if compressed else block
    return result


def _whole(descriptor: StateDescriptor) -> StateType:
    if descriptor.kind is StateKind.LIST:
        return ListOf(descriptor.value_type)
    if descriptor.user_key_type is not None:
        return MapOf(descriptor.user_key_type, descriptor.value_type)
    return descriptor.value_type
