"""A reference codec of the key groups of a canonical stream, one entry at a time.

It is slow and simple on purpose: property tests compare the vectorised codec with it. Source:
docs/spec/formats.md#canonical-stream.
"""

from statelib.formats import snappy_framing
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

Entry = tuple[bytes, bytes]
"""A pair of a serialized key, with its key-group prefix, and a serialized value."""
_END = 0xFFFF


def encode_key_group(states: dict[int, list[Entry]], compressed: bool) -> bytes:
    """Return the bytes of a key group, b'' if it has no entries. ``states``: entries by state id."""
    used = [(state_id, entries) for state_id, entries in sorted(states.items()) if entries]
    if not used:
        return b""
    followers = [state_id for state_id, _ in used[1:]] + [_END]
    writer = Writer()
    writer.u16(used[0][0])
    for (_, entries), follower in zip(used, followers, strict=True):
        for number, (key, value) in enumerate(entries):
            last = number == len(entries) - 1
            writer.i32(len(key))
            writer.put(bytes([key[0] | 0x80]) + key[1:] if last else key)
            writer.i32(len(value))
            writer.put(value)
            if last:
                writer.u16(follower)
    data = writer.getvalue()
    return bytes(snappy_framing.compress(data)) if compressed else data


def decode_key_group(data: bytes, compressed: bool) -> dict[int, list[Entry]]:
    """Return the entries of a key group by state id, the inverse of :func:`encode_key_group`. ``data`` holds this key
    group and nothing else."""
    content = snappy_framing.decompress(memoryview(data), "key group")[0].tobytes() if compressed else data
    reader = Reader(content, "key group")
    states: dict[int, list[Entry]] = {}
    state_id = reader.u16()
    while state_id != _END:
        key = bytes(reader.take(reader.i32()))
        value = bytes(reader.take(reader.i32()))
        entries = states.setdefault(state_id, [])
        if key[0] & 0x80:
            entries.append((bytes([key[0] & 0x7F]) + key[1:], value))
            state_id = reader.u16()
        else:
            entries.append((key, value))
    return states
