"""Typed JSON of whole entries, one at a time and without loss.

Source: docs/spec/formats.md#values, #timers.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from statelib.errors import CorruptStateError
from statelib.model.key_groups import prefix_width
from statelib.model.operator_state import OperatorStateDescriptor
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import VOID, Opaque, StateType
from statelib.serializers.aspects.json_values import Json, ReadJson
from statelib.serializers.entries.broadcast import entry_spans
from statelib.serializers.entries.keys import has_lengths, opaque_key
from statelib.serializers.registry import codec_of
from statelib.serializers.typed_json import json_reader, opaque_part
from statelib.wire.reader import Reader

Members = dict[str, Any]
ReadMembers = Callable[[Reader], Iterator[Members]]

_SEPARATOR = 0x2C
_COUNT_BYTES = 4
_SIGN = 1 << 63
_UNNUMBERED = ("merging-window-set",)
"""Lists of Flink's own in which the order of the elements has no meaning."""


def key_json_reader(schema: KeyedStateSchema, descriptor: StateDescriptor) -> Callable[[Reader], Members]:
    """Return the function that reads a serialized key into ``key``, ``kg`` (key group), ``ns`` (namespace), ``uk``
    (user key of a map) and ``ts`` (moment of a timer).

    The function raises CorruptStateError as :func:`statelib.serializers.entries.keys.decode_keys` does. Raise
    UnsupportedError (``opaque-key``) if nothing shows where a key ends."""
    width, namespace = prefix_width(schema.max_parallelism), _namespace(descriptor)
    opaque = opaque_part(schema.key_type)
    key = json_reader(schema.key_type) if opaque is None else _opaque_key(schema.key_type, opaque, descriptor)
    timers = descriptor.kind is StateKind.TIMERS
    delimited = not timers and has_lengths(schema.key_type, descriptor.namespace_type)
    user_key = None if descriptor.user_key_type is None else json_reader(descriptor.user_key_type)

    def read(reader: Reader) -> Members:
        group = int.from_bytes(reader.take(width), "big")
        moment = (reader.u64() ^ _SIGN) if timers else 0
        members = {"key": _part(key, delimited, reader), "kg": group, "ns": _part(namespace, delimited, reader)}
        if user_key is not None:
            members["uk"] = user_key(reader)
        if timers:
            members["ts"] = moment - (1 << 64) if moment & _SIGN else moment
        _check_end(reader)
        return members

    return read


def value_json_reader(descriptor: StateDescriptor) -> ReadMembers:
    """Return the function that reads a serialized value into ``value`` and, per element of a list, ``idx``. The value
    of a timer has no members. A value that expires is shown without the time of its last access."""
    if descriptor.kind is StateKind.TIMERS:
        return _no_members
    value = json_reader(descriptor.value_type)
    if descriptor.kind is StateKind.LIST:
        return partial(_elements, value, descriptor.name not in _UNNUMBERED)
    return partial(_value, value, descriptor.kind is StateKind.MAP)


def operator_json_reader(descriptor: OperatorStateDescriptor) -> ReadMembers:
    """Return the function that reads a serialized part of operator state: an element into ``value``, or a map of
    broadcast state into ``uk`` and ``value`` per entry. If nothing shows where the entries of a map end, all of its
    bytes are one ``value`` without ``uk``."""
    value = json_reader(descriptor.value_type)
    if descriptor.key_type is None:
        return lambda reader: iter([{"value": value(reader)}])
    return partial(_entries, descriptor, json_reader(descriptor.key_type), value)


def _entries(descriptor: OperatorStateDescriptor, key: ReadJson, value: ReadJson, reader: Reader) -> Iterator[Members]:
    part = bytes(reader.take(reader.remaining))
    spans = entry_spans(descriptor, part, reader.what)
    if spans is None:
        yield {"value": _undivided(descriptor, part)}
        return
    for begin, middle, end in spans:
        uk = key(Reader(part[begin:middle], reader.what))
        yield {"uk": uk, "value": value(Reader(part[middle:end], reader.what))}


def _undivided(descriptor: OperatorStateDescriptor, part: bytes) -> Json:
    """Return the JSON of a whole map. ``hex`` are the bytes after its count."""
    kinds = (descriptor.key_type, descriptor.value_type)
    opaque = next(inner for kind in kinds if kind is not None and (inner := opaque_part(kind)) is not None)
    return {
        "type": "opaque",
        "serializer": opaque.serializer,
        "class": opaque.java_class,
        "entries": int.from_bytes(part[:_COUNT_BYTES], "big"),
        "types": [str(kind) for kind in kinds],
        "note": "only a decoder can divide these entries: statelib.serializers.register_decoder",
        "hex": part[_COUNT_BYTES:].hex(),
    }


def _opaque_key(key: StateType, opaque: Opaque, descriptor: StateDescriptor) -> ReadJson:
    """Return the reader of a key that does not end by itself. If the namespace has a fixed width and nothing follows
    it, the key is everything before the namespace.

    Raise UnsupportedError (``opaque-key``) otherwise."""
    namespace_bytes = codec_of(descriptor.namespace_type).width
    if namespace_bytes <= 0 or descriptor.user_key_type is not None:
        raise opaque_key(opaque, descriptor)
    read = json_reader(key)
    return lambda reader: read(Reader(reader.take(reader.remaining - namespace_bytes), reader.what))


def _namespace(descriptor: StateDescriptor) -> Callable[[Reader], Json | None]:
    read = json_reader(descriptor.namespace_type)
    if descriptor.namespace_type != VOID:
        return read

    def void(reader: Reader) -> None:
        read(reader)

    return void


def _part(read: Callable[[Reader], Json | None], delimited: bool, reader: Reader) -> Json | None:
    """Read a key or a namespace. ``delimited``: its length follows it.

    Raise CorruptStateError (``bad-key-length``)."""
    start = reader.offset
    value = read(reader)
    size = reader.offset - start
    if delimited:
        expected = size.to_bytes(max(1, (size.bit_length() + 7) // 8), "little")
        if reader.take(len(expected)) != expected:
            raise CorruptStateError(
                f"{reader.what}: the length behind offset {start + size} is not {size}", kind="bad-key-length"
            )
    return value


def _no_members(reader: Reader) -> Iterator[Members]:
    _check_end(reader)
    yield {}


def _value(read: ReadJson, flagged: bool, reader: Reader) -> Iterator[Members]:
    """Read a value. ``flagged``: the byte before it is 1 if it is null; bytes after a null have no meaning."""
    if flagged and reader.bool():
        yield {"value": {"type": "null"}}
        return
    value = read(reader)
    _check_end(reader)
    yield {"value": value}


def _elements(read: ReadJson, numbered: bool, reader: Reader) -> Iterator[Members]:
    index = 0
    while True:
        element = read(reader)
        yield {"idx": index, "value": element} if numbered else {"value": element}
        if not reader.remaining:
            return
        at, separator = reader.offset, reader.u8()
        if separator != _SEPARATOR:
            raise CorruptStateError(
                f"{reader.what}: expected a separator, byte {_SEPARATOR:#04x}, at offset {at}, found {separator:#04x}",
                kind="bad-separator",
            )
        index += 1


def _check_end(reader: Reader) -> None:
    if reader.remaining:
        raise CorruptStateError(
            f"{reader.what}: expected the end at offset {reader.offset}, found {reader.remaining} bytes more",
            kind="trailing-bytes",
            hint="the state was written with another type",
        )
