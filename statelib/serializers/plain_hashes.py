"""The hash code of a key once more, one value and one step at a time: what written entries are checked against.

A key in a wrong key group is accepted by Flink and never found again, so this shares nothing with the arithmetic
on columns. Source: flink-formats.md sections 1.1 to 1.3.
"""

import struct
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from statelib.errors import UnsupportedError
from statelib.model.key_hash import FieldsHash
from statelib.model.types import (
    Either,
    ListOf,
    MapOf,
    Nullable,
    Pojo,
    Row,
    Scalar,
    Sql,
    StateType,
    Tuple,
)
from statelib.serializers.registry import codec_of

MASK = 0xFFFFFFFF
_SIZE_BYTES = 4
"""In front of a row of SQL."""


def plain_hashes(type_: StateType, values: pa.Array, rule: FieldsHash | None = None) -> list[int]:
    """``hashCode()`` of each value, signed; null is 0. Raises UnsupportedError (``no-key-hash``)."""
    if isinstance(type_, Sql):
        return [_signed(_hash_of_row(data[_SIZE_BYTES:])) for data in codec_of(type_).encode(values).to_list()]
    return [_signed(_hash(type_, value, rule)) for value in values]


def plain_key_group(hash_code: int, max_parallelism: int) -> int:
    """Murmur3 of one hash code, as one number goes through it."""
    k = _rotated((hash_code * 0xCC9E2D51) & MASK, 15) * 0x1B873593 & MASK
    h = (_rotated(k, 13) * 5 + 0xE6546B64) & MASK
    mixed = _signed(_finished(h ^ 4))
    return (0 if mixed == -(1 << 31) else abs(mixed)) % max_parallelism


def _hash(type_: StateType, value: Any, rule: FieldsHash | None = None) -> int:
    if not value.is_valid:
        return 0
    if isinstance(type_, Pojo) and rule is not None:
        types = {field.name: field.type for field in type_.fields}
        return _combined((_hash(types[name], value[name]) for name in rule.fields), rule.start, rule.times)
    known = _HASHES.get(type_.__class__)
    if known is None or (isinstance(type_, Scalar) and type_.name not in _SCALARS):
        raise UnsupportedError(f"type {type_} as a key has no hash that could be checked", kind="no-key-hash")
    return known(type_, value)


def _tuple(type_: Tuple, value: Any) -> int:
    first, *rest = [_hash(field, value[f"f{i}"]) for i, field in enumerate(type_.fields)]
    return _combined(rest, first)


def _row(type_: Row, value: Any) -> int:
    """The kind of a row, of which statelib holds inserted ones only, would add 31 times its number."""
    return _combined((_deep(field.type, value[field.name]) for field in type_.fields), 1)


def _either(type_: Either, value: Any) -> int:
    side, held = ("left", type_.left) if value["left"].is_valid else ("right", type_.right)
    return _hash(held, value[side])


def _deep(type_: StateType, value: Any) -> int:
    """What a value adds to the hash of the row that holds it."""
    if not value.is_valid:
        return 0
    known = _DEEP.get(type_.__class__)
    if known is not None:
        return known(type_, value)
    return 31 + _hash(type_, value) & MASK


def _deep_map(type_: MapOf, value: Any) -> int:
    pairs = ((pair["key"], pair["value"]) for pair in value.values)
    return 1 + sum(_deep(type_.key, k) ^ _deep(type_.value, v) for k, v in pairs) & MASK


def _combined(hashes: Iterable[int], start: int, times: int = 31) -> int:
    h = start
    for one in hashes:
        h = (times * h + one) & MASK
    return h & MASK


def _hash_of_row(data: bytes) -> int:
    """Murmur3 over the little-endian words of a BinaryRowData."""
    h = 42
    for (word,) in struct.iter_unpack("<I", data):
        k = _rotated(word * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK
        h = (_rotated(h ^ k, 13) * 5 + 0xE6546B64) & MASK
    return _finished(h ^ len(data))


def _finished(h: int) -> int:
    h ^= h >> 16
    h = h * 0x85EBCA6B & MASK
    h ^= h >> 13
    h = h * 0xC2B2AE35 & MASK
    return h ^ h >> 16


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & MASK


def _signed(word: int) -> int:
    word &= MASK
    return word - (1 << 32) if word >> 31 else word


def _folded(value: int) -> int:
    word = value & 0xFFFFFFFFFFFFFFFF
    return (word ^ word >> 32) & MASK


def _text(value: Any) -> int:
    data = value.as_buffer().to_pybytes().decode("utf-8", "surrogatepass").encode("utf-16-be", "surrogatepass")
    return _combined((unit for (unit,) in struct.iter_unpack(">H", data)), 0)


def _float(value: Any) -> int:
    number = value.as_py()
    return 0x7FC00000 if number != number else int(struct.unpack(">I", struct.pack(">f", number))[0])  # noqa: PLR0124


def _double(value: Any) -> int:
    number = value.as_py()
    bits = 0x7FF8000000000000 if number != number else struct.unpack(">Q", struct.pack(">d", number))[0]  # noqa: PLR0124
    return _folded(int(bits))


def _big(number: int) -> int:
    magnitude = abs(number)
    words = [magnitude >> shift & MASK for shift in range(0, max(magnitude.bit_length(), 1), 32)]
    return _combined(reversed(words), 0) * (-1 if number < 0 else 1) & MASK


def _decimal(value: Any) -> int:
    sign, digits, exponent = Decimal(value.as_py()).as_tuple()
    unscaled = int("".join(map(str, digits)) or "0") * (-1 if sign else 1)
    return 31 * _big(unscaled) - int(exponent) & MASK


def _date(days: int) -> int:
    """The proleptic Gregorian date, counted from a first of March so that leap days come last."""
    era, day = divmod(days + 719468, 146097)
    year = (day - day // 1460 + day // 36524 - day // 146096) // 365
    of_year = day - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    number = month + 3 if month < 10 else month - 9
    full = year + era * 400 + (number <= 2)
    return (full & 0xFFFFF800) ^ ((full << 11) + (number << 6) + of_year - (153 * month + 2) // 5 + 1) & MASK


_DAY_NS = 86_400 * 10**9


def _datetime(value: Any) -> int:
    days, nanos = divmod(int(value.value), _DAY_NS)
    return _date(days) ^ _folded(nanos)


def _instant(value: Any) -> int:
    seconds, nanos = divmod(int(value.value), 10**9)
    return _folded(seconds) + 51 * nanos & MASK


_SCALARS: dict[str, Callable[[Any], int]] = {
    **dict.fromkeys(("byte", "short", "int", "char"), lambda value: int(value.as_py())),
    "boolean": lambda value: 1231 if value.as_py() else 1237,
    "long": lambda value: _folded(value.as_py()),
    "float": _float,
    "double": _double,
    "string": _text,
    "bigint": lambda value: _big(int(value.as_py())),
    "bigdecimal": _decimal,
    "date": lambda value: _date(value.value),
    "time": lambda value: _folded(value.value),
    "datetime": _datetime,
    "instant": _instant,
}
_HASHES: dict[Any, Callable[[Any, Any], int]] = {
    Scalar: lambda type_, value: _SCALARS[type_.name](value) & MASK,
    Nullable: lambda type_, value: _hash(type_.element, value),
    Tuple: _tuple,
    Row: _row,
    Either: _either,
}
_DEEP: dict[Any, Callable[[Any, Any], int]] = {
    ListOf: lambda type_, value: _combined((_deep(type_.element, item) for item in value), 1),
    MapOf: _deep_map,
}
