"""Slow and simple serializers, which encode one value at a time and are written from the description of the format.

Property tests compare the vectorised codecs of ``statelib.serializers`` with them.

Values are *plain*: int, float, bool, str, bytes or None; a list for an array, list, tuple or row; a list of
(key, value) pairs for a map. Times are integers like in Arrow: days for ``date``, nanoseconds of the day for ``time``,
nanoseconds since 1970 for ``datetime`` and ``instant``.

Source: docs/spec/formats.md#key-groups, #composite-keys, #serializer-snapshots.
"""

import datetime
import decimal
import math
import struct
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import LONG, ArrayOf, Decimal, ListOf, MapOf, Row, Scalar, StateType, Ttl, Tuple
from statelib.serializers.registry import codec_of

Plain = int | float | str | bytes | decimal.Decimal | list["Plain"] | tuple["Plain", "Plain"] | None

_SECOND, _DAY = 10**9, 86_400 * 10**9
_LAYOUTS = {"boolean": ">?", "byte": ">b", "short": ">h", "int": ">i", "long": ">q", "float": ">f", "double": ">d"}


def encode(type_: StateType, value: Plain) -> bytes:  # noqa: PLR0911 - one case per type
    """Return the serialized value. Only a field of a Row and a value of a map may be None."""
    if isinstance(type_, Tuple):
        return b"".join(encode(field, v) for field, v in zip(type_.fields, _items(value), strict=True))
    if isinstance(type_, Row):
        return _encode_row(type_, _items(value))
    if isinstance(type_, Ttl):
        moment, inner = _items(value)
        return struct.pack(">q", moment) + encode(type_.value, inner)
    if isinstance(type_, ArrayOf | ListOf):
        return struct.pack(">i", len(_items(value))) + b"".join(encode(type_.element, v) for v in _items(value))
    if isinstance(type_, MapOf):
        entries = [encode(type_.key, k) + flagged(type_.value, v) for k, v in _pairs(value)]
        return struct.pack(">i", len(entries)) + b"".join(entries)
    if isinstance(type_, Decimal):
        return _big_number(_unscaled(value)) + struct.pack(">i", type_.scale)
    name = _scalar(type_)
    if name in _LAYOUTS:
        return struct.pack(_LAYOUTS[name], value)
    return _SCALARS[name](value)


def _scalar(type_: StateType) -> str:
    assert isinstance(type_, Scalar), f"no reference codec for {type_}"
    return type_.name


def flagged(type_: StateType, value: Plain) -> bytes:
    """Return the serialized value of a map entry: a byte that is 1 for null, then the value if it is not null."""
    return b"\x01" if value is None else b"\x00" + encode(type_, value)


def encode_key(
    schema: KeyedStateSchema, state: StateDescriptor, group: int, parts: tuple[Plain, Plain, Plain]
) -> bytes:
    """Return the serialized composite key. ``parts``: key, namespace and user key, which is None if the state has no
    user keys."""
    key, namespace, user_key = parts
    result = group.to_bytes(1 if schema.max_parallelism <= 128 else 2, "big")
    ambiguous = codec_of(schema.key_type).reported_length < 0 and codec_of(state.namespace_type).reported_length < 0
    for data in (encode(schema.key_type, key), encode(state.namespace_type, namespace)):
        size = len(data).to_bytes(max(1, (len(data).bit_length() + 7) // 8), "little")
        result += data + (size if ambiguous else b"")
    return result + (b"" if state.user_key_type is None else encode(state.user_key_type, user_key))


def encode_value(state: StateDescriptor, value: Plain) -> bytes:
    if state.kind is StateKind.MAP:
        return flagged(state.value_type, value)
    if state.kind is StateKind.LIST:
        return b",".join(encode(state.value_type, v) for v in _items(value))
    return encode(state.value_type, value)


def java_hash(type_: StateType, value: Plain) -> int:
    """Return Java's ``hashCode()`` of a key as a signed number. The hash of null is 0."""
    return _signed(_hash(type_, value))


def key_group(hash_code: int, max_parallelism: int) -> int:
    """Return the key group of a hash code: the remainder of ``MathUtils.murmurHash`` by the maximum parallelism."""
    c = hash_code * 0xCC9E2D51 & 0xFFFFFFFF
    c = _rotate(c, 15) * 0x1B873593 & 0xFFFFFFFF
    c = (_rotate(c, 13) * 5 + 0xE6546B64 & 0xFFFFFFFF) ^ 4
    c = (c ^ c >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    c = (c ^ c >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    c = _signed(c ^ c >> 16)
    return (0 if c == -(2**31) else abs(c)) % max_parallelism


def arrow(type_: StateType, values: list[Plain]) -> pa.Array:
    """Return plain values as an Arrow column of the type that the codec of ``type_`` accepts."""
    target = codec_of(type_).arrow_type
    if isinstance(type_, Tuple | Row | Ttl):
        types = _parts(type_)
        columns = [arrow(t, [None if v is None else _items(v)[i] for v in values]) for i, t in enumerate(types)]
        return pa.StructArray.from_arrays(columns, fields=list(target), mask=_nulls(values))
    if isinstance(type_, ArrayOf | ListOf):
        elements = arrow(type_.element, [e for v in values for e in _items(v)])
        return pa.ListArray.from_arrays(_offsets(values), elements, type=target, mask=_nulls(values))
    if isinstance(type_, MapOf):
        keys = arrow(type_.key, [k for v in values for k, _ in _pairs(v)])
        items = arrow(type_.value, [i for v in values for _, i in _pairs(v)])
        return pa.MapArray.from_arrays(_offsets(values), keys, items, type=target, mask=_nulls(values))
    if isinstance(type_, Decimal):
        return pa.array(values, target)
    if _scalar(type_) in ("date", "time", "datetime", "instant"):
        return pa.array(values, pa.int32() if _scalar(type_) == "date" else pa.int64()).view(target)
    return pa.array(values, target)


def _parts(type_: Tuple | Row | Ttl) -> list[StateType]:
    if isinstance(type_, Ttl):
        return [LONG, type_.value]
    return list(type_.fields) if isinstance(type_, Tuple) else [field.type for field in type_.fields]


def _offsets(values: list[Plain]) -> pa.Array:
    return pa.array(np.cumsum([0, *(len(_items(v)) for v in values)]).astype(np.int32))


def _nulls(values: list[Plain]) -> pa.Array:
    return pa.array([v is None for v in values], pa.bool_())


def _items(value: Plain) -> list[Plain]:
    if value is None:
        return []
    assert isinstance(value, list)
    return value


def _pairs(value: Plain) -> list[tuple[Plain, Plain]]:
    return [(pair[0], pair[1]) for pair in _items(value) if isinstance(pair, tuple)]


def _encode_row(type_: Row, values: list[Plain]) -> bytes:
    bits = "00" + "".join("1" if v is None else "0" for v in values)
    bits += "0" * (-len(bits) % 8)
    mask = bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))
    pairs = zip(type_.fields, values, strict=True)
    return mask + b"".join(encode(field.type, v) for field, v in pairs if v is not None)


def _varlen(value: int) -> bytes:
    result = bytearray()
    while value >= 0x80:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*result, value])


def _utf16(value: Plain) -> list[int]:
    data = str(value).encode("utf-16-be")
    return [int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2)]


def _string(value: Plain) -> bytes:
    units = _utf16(value)
    return _varlen(len(units) + 1) + b"".join(map(_varlen, units))


def _bytes(value: Plain) -> bytes:
    assert isinstance(value, bytes)
    return struct.pack(">i", len(value)) + value


def _civil(days: int) -> tuple[int, int, int]:
    """Return (year, month, day) of a number of days since 1970-01-01.

    The calendar repeats every 400 years, which are 146097 days; 0001-01-01 is day -719162."""
    cycle, rest = divmod(days + 719_162, 146_097)
    date = datetime.date.fromordinal(rest + 1)
    return date.year + 400 * cycle, date.month, date.day


def _date(value: Plain) -> bytes:
    return struct.pack(">ibb", *_civil(_number(value)))


def _time(value: Plain) -> bytes:
    seconds, nanos = divmod(_number(value), _SECOND)
    return struct.pack(">bbbi", seconds // 3600, seconds % 3600 // 60, seconds % 60, nanos)


def _datetime(value: Plain) -> bytes:
    days, nanos = divmod(_number(value), _DAY)
    return _date(days) + _time(nanos)


def _instant(value: Plain) -> bytes:
    return struct.pack(">qi", *divmod(_number(value), _SECOND))


def _unscaled(value: Plain) -> int:
    """Return a decimal without its point."""
    assert isinstance(value, decimal.Decimal)
    sign, digits, _ = value.as_tuple()
    return int("".join(map(str, digits))) * (-1 if sign else 1)


def _big_number(number: int) -> bytes:
    """Return a ``BigInteger``. The numbers 0, 1 and 10 are a length alone."""
    if number in (0, 1, 10):
        return struct.pack(">i", (0, 1, 10).index(number) + 1)
    size = next(n for n in range(1, 17) if -(2 ** (8 * n - 1)) <= number < 2 ** (8 * n - 1))
    return struct.pack(">i", size + 4) + number.to_bytes(size, "big", signed=True)


def _big_hash(number: int) -> int:
    """Return ``BigInteger.hashCode``: the polynomial of the 32-bit words of the magnitude, times the sign."""
    words = [abs(number) >> shift & 0xFFFFFFFF for shift in (96, 64, 32, 0)]
    return _polynomial(words, 0) * (1 if number >= 0 else -1)


def _number(value: Plain) -> int:
    assert isinstance(value, int)
    return value


_SCALARS: dict[str, Callable[[Plain], bytes]] = {
    "string": _string,
    "bytes": _bytes,
    "date": _date,
    "time": _time,
    "datetime": _datetime,
    "instant": _instant,
    "void": lambda _: b"\x00",
}


def _hash(type_: StateType, value: Plain) -> int:  # noqa: PLR0911 - one case per type
    if value is None:
        return 0
    if isinstance(type_, Tuple):
        hashes = [_hash(field, v) for field, v in zip(type_.fields, _items(value), strict=True)]
        return _polynomial(hashes, 0)
    if isinstance(type_, Row):
        return _polynomial([_deep(f.type, v) for f, v in zip(type_.fields, _items(value), strict=True)], 1)
    if isinstance(type_, ListOf):
        return _polynomial([_hash(type_.element, v) for v in _items(value)], 1)
    if isinstance(type_, MapOf):
        return sum(_hash(type_.key, k) ^ _hash(type_.value, v) for k, v in _pairs(value)) & 0xFFFFFFFF
    if isinstance(type_, Decimal):
        return 31 * _big_hash(_unscaled(value)) + type_.scale & 0xFFFFFFFF
    assert not isinstance(type_, ArrayOf | Ttl)
    return _HASHES[_scalar(type_)](value) & 0xFFFFFFFF


def _deep(type_: StateType, value: Plain) -> int:
    """Return the hash of a field as it enters the hash of its Row."""
    if value is None:
        return 0
    if isinstance(type_, ListOf):
        return _polynomial([_deep(type_.element, v) for v in _items(value)], 1)
    if isinstance(type_, MapOf):
        pairs = _pairs(value)
        return 1 + sum(_deep(type_.key, k) ^ _deep(type_.value, v) for k, v in pairs) & 0xFFFFFFFF
    return 31 + _hash(type_, value) & 0xFFFFFFFF


def _polynomial(hashes: list[int], start: int) -> int:
    for value in hashes:
        start = (31 * start + value) & 0xFFFFFFFF
    return start


def _long_hash(value: int) -> int:
    value &= 2**64 - 1
    return (value ^ value >> 32) & 0xFFFFFFFF


def _bits(value: Plain, layout: str, nan: int) -> int:
    assert isinstance(value, int | float)
    return nan if math.isnan(value) else int.from_bytes(struct.pack(layout, value), "big")


def _date_hash(value: Plain) -> int:
    year, month, day = _civil(_number(value))
    return (year & 0xFFFFF800) ^ ((year << 11) + (month << 6) + day)


def _datetime_hash(value: Plain) -> int:
    days, nanos = divmod(_number(value), _DAY)
    return (_date_hash(days) ^ _long_hash(nanos)) & 0xFFFFFFFF


def _instant_hash(value: Plain) -> int:
    seconds, nanos = divmod(_number(value), _SECOND)
    return _long_hash(seconds) + 51 * nanos


_HASHES: dict[str, Callable[[Plain], int]] = {
    "boolean": lambda v: 1231 if v else 1237,
    "byte": _number,
    "short": _number,
    "int": _number,
    "long": lambda v: _long_hash(_number(v)),
    "float": lambda v: _bits(v, ">f", 0x7FC00000),
    "double": lambda v: _long_hash(_bits(v, ">d", 0x7FF8000000000000)),
    "string": lambda v: _polynomial(_utf16(v), 0),
    "date": _date_hash,
    "time": lambda v: _long_hash(_number(v)),
    "datetime": _datetime_hash,
    "instant": _instant_hash,
}


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & 0xFFFFFFFF


def _signed(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value
