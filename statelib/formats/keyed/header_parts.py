"""A keyed header in its parts, as bytes: what a rewritten stream keeps of the one it came from.

Types say all that statelib needs to know of a serializer, not all that its snapshot may hold; so what did not
change is written again byte for byte. Source: flink-formats.md section 3.3.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from statelib.formats.keyed.header import VERSION, decode_keyed_header, encode_header, read_framed, read_meta_info
from statelib.model.state import KeyedStateSchema
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer


@dataclass(frozen=True)
class HeaderParts:
    """``key``: the framed snapshot of the key serializer; ``states``: name -> the whole meta info of a state."""

    key: bytes
    states: dict[str, bytes]


def header_parts(data: bytes | memoryview, what: str = "keyed header") -> HeaderParts:
    """The parts of a header, which may be followed by more; raises as :func:`decode_keyed_header`."""
    header = decode_keyed_header(data, 1, what)
    content = bytes(data[: header.size_bytes])
    reader = Reader(content, what)
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


def encode_header_with(parts: HeaderParts, schema: KeyedStateSchema, compressed: bool, kept: Sequence[str]) -> bytes:
    """The header of ``schema``, with the key and the states ``kept`` as ``parts`` has them."""
    own = header_parts(encode_header(schema, compressed))
    writer = Writer()
    writer.i32(VERSION)
    writer.bool(compressed)
    writer.put(parts.key)
    writer.i16(len(schema.states))
    for state in schema.states:
        writer.put((parts if state.name in kept else own).states[state.name])
    return writer.getvalue()
