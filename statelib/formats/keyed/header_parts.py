"""A keyed header in parts, as bytes, so that a rewritten stream can repeat the parts that did not change.

A type holds all that statelib needs of a serializer, but a serializer snapshot may hold more. Unchanged parts are
therefore copied byte for byte. Source: docs/spec/formats.md#header-of-a-keyed-stream.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from statelib.formats.keyed.header import VERSION, decode_keyed_header, encode_header, read_framed, read_meta_info
from statelib.model.state import KeyedStateSchema
from statelib.serializers.snapshots import ForeignReader
from statelib.wire.writer import Writer


@dataclass(frozen=True)
class HeaderParts:
    """The bytes of a keyed header. ``key``: the framed snapshot of the key serializer; ``states``: the whole meta info
    of each state, by name."""

    key: bytes
    states: dict[str, bytes]


def header_parts(data: bytes | memoryview, what: str = "keyed header") -> HeaderParts:
    """Return the parts of the header at the start of ``data``; other bytes may follow it.

    Raise the errors of :func:`decode_keyed_header`.
    """
    header = decode_keyed_header(data, 1, what)
    content = bytes(data[: header.size_bytes])
    reader = ForeignReader(content, what)  # the header was decoded above, so its bytes make sense
    reader.i32()
    reader.bool()
    start = reader.offset
    read_framed(reader)
    key = content[start : reader.offset]
    states = {}
    for _ in range(reader.i16()):
        start = reader.offset
        name = read_meta_info(reader).name
        states[name] = content[start : reader.offset]
    return HeaderParts(key, states)


def encode_header_with(parts: HeaderParts, schema: KeyedStateSchema, compressed: bool, copied: Sequence[str]) -> bytes:
    """Return the header of ``schema``, with the key and the states named in ``copied`` copied from ``parts``."""
    encoded = header_parts(encode_header(schema, compressed))
    writer = Writer()
    writer.i32(VERSION)
    writer.bool(compressed)
    writer.put(parts.key)
    writer.i16(len(schema.states))
    for state in schema.states:
        writer.put((parts if state.name in copied else encoded).states[state.name])
    return writer.getvalue()
