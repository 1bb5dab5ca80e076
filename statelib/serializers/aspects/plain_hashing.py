"""Java's hash code of one value, computed by plain arithmetic.

It checks the hash codes that codecs compute from columns, so it shares no arithmetic with them.

Source: docs/spec/formats.md#key-groups, #hash-codes-of-keys, #hash-codes-of-sql-keys.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from statelib.model.types import StateType

MASK = 0xFFFFFFFF


class PlainHasher(Protocol):
    """The hashes of the parts of a value. Values are Arrow scalars, and results lie between 0 and 2**32 - 1."""

    def of_key(self, type_: StateType, value: Any) -> int:
        """Return ``hashCode()`` of a value, 0 for null."""

    def in_row(self, type_: StateType, value: Any) -> int:
        """Return the number that a value adds to the hash of the row that holds it, 0 for null."""


@dataclass(frozen=True)
class PlainHash:
    """The plain hash codes of a type. An aspect is None if the type does not have it.

    ``of_key``: the hash of a value that is not null.
    ``in_row``: the number that such a value adds to the hash of a row, if it is not 31 plus the hash of the value.
    ``of_bytes``: the hash of a value from its serialized bytes, for a type whose values are hashed by their bytes. It
    counts for whole keys only.
    """

    of_key: Callable[[Any, Any, PlainHasher], int] | None = None
    in_row: Callable[[Any, Any, PlainHasher], int] | None = None
    of_bytes: Callable[[bytes], int] | None = None


NO_PLAIN_HASH = PlainHash()
"""The plain hash of types that Flink refuses as keys, and of types whose hash nothing checks."""


def plain_scalar(hash_of: Callable[[Any], int]) -> PlainHash:
    """Return the plain hash of a scalar. ``hash_of`` takes the Arrow scalar; more than 32 bits are cut off."""
    return PlainHash(of_key=lambda _type, value, _hasher: hash_of(value) & MASK)


def combined(hashes: Iterable[int], start: int, times: int = 31) -> int:
    """Return h of: h = start, then h = times * h + hash for each of the hashes."""
    result = start
    for one in hashes:
        result = (times * result + one) & MASK
    return result & MASK


def folded(value: int) -> int:
    """Return ``Long.hashCode``: the exclusive or of the two halves of 64 bits."""
    word = value & 0xFFFFFFFFFFFFFFFF
    return (word ^ word >> 32) & MASK


def _rotated(word: int, bits: int) -> int:
    """Return the 32-bit word rotated to the left."""
    return (word << bits | word >> 32 - bits) & MASK


def finished(word: int) -> int:
    """Return the word after the last step of Murmur3."""
    word ^= word >> 16
    word = word * 0x85EBCA6B & MASK
    word ^= word >> 13
    word = word * 0xC2B2AE35 & MASK
    return word ^ word >> 16


def mixed(state: int, word: int) -> int:
    """Return the state of Murmur3 after one more word."""
    word = _rotated(word * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK
    return (_rotated(state ^ word, 13) * 5 + 0xE6546B64) & MASK


def signed(word: int) -> int:
    """Return the word as Java's signed int."""
    word &= MASK
    return word - (1 << 32) if word >> 31 else word
