"""Damage to bytes, of the kinds that disks, networks, programs and people do. Everything comes from a seeded Random."""

from collections.abc import Callable
from random import Random

_BYTES = (0x00, 0x01, 0x02, 0x2C, 0x7F, 0x80, 0xC0, 0xFE, 0xFF)
_LENGTHS = (0, 1, 2, 5, 24, 127, 128, 255, 256, 1023, 32767, 32768, 65535, 65536, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
_MAGIC = tuple(
    bytes.fromhex(word)
    for word in (
        "aced0005", "4960672d", "000de704", "001457fd", "000004f2c69a3d70", "ff060000734e61507059", "53544154454c4942",
        "055f3f18", "c96b1696", "00000006", "ffff", "ffffffffffffffff", "7fffffffffffffff", "8000000000000000",
    )
)  # fmt: skip
_HEAD = 600
"""The first bytes, with the headers and the bytes before them: half of all damage is done there."""


def mutated(random: Random, data: bytes, other: bytes) -> bytes:
    """Return ``data`` after one to three kinds of damage; ``other``: the source of inserted bytes."""
    copy = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        random.choice(_KINDS)(random, copy, other)
    return bytes(copy)


def place(random: Random, data: bytearray) -> int:
    size = len(data)
    return random.randrange(min(size, _HEAD) if random.random() < 0.5 else size) if size else 0


def _flip(random: Random, data: bytearray, _: bytes) -> None:
    if data:
        data[place(random, data)] ^= 1 << random.randrange(8)


def _set(random: Random, data: bytearray, _: bytes) -> None:
    if data:
        data[place(random, data)] = random.choice(_BYTES) if random.random() < 0.7 else random.randrange(256)


def _truncate(random: Random, data: bytearray, _: bytes) -> None:
    del data[place(random, data) :]


def _number(random: Random, data: bytearray, _: bytes) -> None:
    """Replace a length, a count or an offset by another: near the existing one, or at an edge."""
    size = random.choice((1, 2, 4, 4, 4, 8))
    at = place(random, data)
    old_number = int.from_bytes(data[at : at + size], "big")
    near = old_number + random.choice((-1000, -8, -1, 1, 2, 7, 1000))
    number = near if random.random() < 0.4 else random.choice(_LENGTHS)
    data[at : at + size] = (number % (1 << 8 * size)).to_bytes(size, "big")


def _remove(random: Random, data: bytearray, _: bytes) -> None:
    at = place(random, data)
    del data[at : at + random.choice((1, 2, 4, 8, 64, 1000))]


def _repeat(random: Random, data: bytearray, _: bytes) -> None:
    at, size = place(random, data), random.choice((1, 2, 4, 8, 64, 1000))
    data[at:at] = data[at : at + size] * random.choice((1, 1, 2, 20))


def _splice(random: Random, data: bytearray, other: bytes) -> None:
    at, start = place(random, data), random.randrange(len(other) + 1)
    size = random.choice((1, 4, 16, 100, 1000))
    data[at : at + random.choice((0, size))] = other[start : start + size]


def _magic(random: Random, data: bytearray, _: bytes) -> None:
    word, at = random.choice(_MAGIC), place(random, data)
    data[at : at + len(word)] = word


def _zeros(random: Random, data: bytearray, _: bytes) -> None:
    """Fill a block with zeros, as if it was never written."""
    at, size = place(random, data), random.choice((4, 16, 512))
    data[at : at + size] = bytes(len(data[at : at + size]))


_KINDS: tuple[Callable[[Random, bytearray, bytes], None], ...] = (
    _flip, _set, _truncate, _number, _number, _remove, _repeat, _splice, _magic, _zeros,
)  # fmt: skip
