"""Numbers, texts and times of :mod:`statelib.serializers.typed_json`, beyond what columns can hold.

Source: flink-formats.md sections 6.2 and 6.2.1.
"""

import math
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

from statelib.errors import CorruptStateError
from statelib.wire.json_text import integer_text
from statelib.wire.reader import Reader

Json = dict[str, Any]
_NULL: Json = {"type": "null"}
_CONSTANTS = {1: 0, 2: 1, 3: 10}
"""Lengths that stand for a BigInteger of its own."""
_ERA_DAYS, _ERA_YEARS = 146_097, 400


def _number(name: str, read: Callable[[Reader], Any], reader: Reader) -> Json:
    return {"type": name, "v": read(reader)}


def _float(name: str, layout: str, reader: Reader) -> Json:
    raw = bytes(reader.take(struct.calcsize(layout)))
    (value,) = struct.unpack(layout, raw)
    return {"type": name, "v": java_text(value, single=layout == ">f"), "bits": raw.hex()}


def java_text(value: float, *, single: bool = False) -> str:
    """A float as Java writes it: ``1.0E10``, ``-0.0``, ``NaN``."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return repr(value)
    digits, exponent = _digits(abs(value), single)
    sign = "-" if value < 0 else ""
    if -3 <= exponent < 7:
        digits = digits.ljust(exponent + 2, "0") if exponent >= 0 else "0" * -exponent + digits
        point = max(exponent, 0) + 1
        return f"{sign}{digits[:point]}.{digits[point:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _digits(value: float, single: bool) -> tuple[str, int]:
    """The shortest digits, two at least, that read back as the value, and the exponent of the first."""
    if single:
        raw = struct.pack(">f", value)
        places = next(n for n in range(1, 17) if _packed_single(float(f"{value:.{n}e}")) == raw)
    else:  # Python's own text has the fewest digits; it may do with one
        places = max(1, len(repr(value).partition("e")[0].replace(".", "").strip("0")) - 1)
    mantissa, exponent = f"{value:.{places}e}".split("e")
    return mantissa.replace(".", "").rstrip("0") or "0", int(exponent)


def _packed_single(value: float) -> bytes | None:
    try:
        return struct.pack(">f", value)
    except OverflowError:
        return None  # rounded up beyond the largest float


def _varlen(reader: Reader) -> int:
    value = shift = 0
    while True:
        byte = reader.u8()
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
        if shift > 28:
            raise CorruptStateError(
                f"{reader.what} at offset {reader.offset}: length of over 5 bytes", kind="bad-length"
            )


def _read_string(reader: Reader) -> str | None:
    """A count of UTF-16 units plus one, 0 for null, then the units."""
    length = _varlen(reader)
    return _read_units(reader, length - 1) if length else None


def _read_units(reader: Reader, count: int) -> str:
    if count > reader.remaining:
        raise CorruptStateError(
            f"{reader.what} at offset {reader.offset}: expected {count} units, found {reader.remaining} bytes",
            kind="bad-length",
        )
    start, first = reader.offset, bytes(reader.take(count))
    if first.isascii():  # a byte a unit
        return first.decode("ascii")
    reader.offset = start
    units = [_varlen(reader) for _ in range(count)]
    if max(units, default=0) > 0xFFFF:
        raise CorruptStateError(f"{reader.what} before offset {reader.offset}: no unit of UTF-16", kind="bad-string")
    return struct.pack(f">{len(units)}H", *units).decode("utf-16-be", "surrogatepass")


def _string(reader: Reader) -> Json:
    text = _read_string(reader)
    return _NULL if text is None else {"type": "string", "v": text}


def _string_value(reader: Reader) -> Json:
    return {"type": "string", "v": _read_units(reader, _varlen(reader))}


def _bytes(reader: Reader) -> Json:
    return {"type": "bytes", "hex": bytes(reader.take(reader.count())).hex()}


def _big_integer(reader: Reader) -> int | None:
    size = reader.i32()
    if size == 0:
        return None
    if size in _CONSTANTS:
        return _CONSTANTS[size]
    return int.from_bytes(reader.take(size - 4), "big", signed=True)


def _bigint(reader: Reader) -> Json:
    value = _big_integer(reader)
    return _NULL if value is None else {"type": "bigint", "v": integer_text(value)}


def _bigdecimal(reader: Reader) -> Json:
    value = _big_integer(reader)
    return _NULL if value is None else {"type": "bigdecimal", "unscaled": integer_text(value), "scale": reader.i32()}


def _instant(reader: Reader) -> Json:
    seconds, nano = reader.i64(), reader.i32()
    return _NULL if (seconds, nano) == (-(2**63), -(2**31)) else {"type": "instant", "sec": seconds, "nano": nano}


def _date_text(reader: Reader) -> str | None:
    year, month, day = reader.i32(), reader.i8(), reader.i8()
    if year == -(2**31):
        return None
    return f"{_year_text(year)}-{month:02}-{day:02}"


def _year_text(year: int) -> str:
    """As java.time writes it: four digits, and a sign where four are not enough."""
    return f"{year:04}" if 0 <= year <= 9999 else f"{'-' if year < 0 else '+'}{abs(year):04}"


def date_text(days: int) -> str:
    """The date of days since 1970-01-01, any year."""
    era, rest = divmod(days + 719_468, _ERA_DAYS)
    year = (rest - rest // 1460 + rest // 36_524 - rest // 146_096) // 365
    of_year = rest - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    day, month = of_year - (153 * shifted + 2) // 5 + 1, shifted + 3 if shifted < 10 else shifted - 9
    return f"{_year_text(year + era * _ERA_YEARS + (month <= 2))}-{month:02}-{day:02}"


def _nano_of_day(reader: Reader) -> int | None:
    hour, minute, second, nano = reader.i8(), reader.i8(), reader.i8(), reader.i32()
    return None if hour == -128 else ((hour * 60 + minute) * 60 + second) * 10**9 + nano


def _date(reader: Reader) -> Json:
    text = _date_text(reader)
    return _NULL if text is None else {"type": "localdate", "v": text}


def _time(reader: Reader) -> Json:
    nanos = _nano_of_day(reader)
    return _NULL if nanos is None else {"type": "localtime", "nanoOfDay": nanos}


def _datetime(reader: Reader) -> Json:
    text, nanos = _date_text(reader), _nano_of_day(reader)
    return _NULL if text is None or nanos is None else {"type": "localdatetime", "date": text, "nanoOfDay": nanos}


def _millis(name: str, reader: Reader) -> Json:
    value = reader.i64()
    return _NULL if value == -(2**63) else {"type": name, "v": value}


def _sql_timestamp(reader: Reader) -> Json:
    millis, nanos = reader.i64(), reader.i32()
    return _NULL if millis == -(2**63) else {"type": "sqltimestamp", "v": millis, "nanos": nanos}


def _void(reader: Reader) -> Json:
    if reader.u8():
        raise CorruptStateError(f"{reader.what} before offset {reader.offset}: expected byte 0", kind="bad-void")
    return _NULL


def _time_window(reader: Reader) -> Json:
    return {"type": "timewindow", "start": reader.i64(), "end": reader.i64()}


def _global_window(reader: Reader) -> Json:
    _void(reader)
    return {"type": "globalwindow"}


SCALAR_READERS: dict[str, Callable[[Reader], Json]] = {
    "boolean": partial(_number, "boolean", Reader.bool),
    "byte": partial(_number, "byte", Reader.i8),
    "short": partial(_number, "short", Reader.i16),
    "int": partial(_number, "int", Reader.i32),
    "long": partial(_number, "long", Reader.i64),
    "char": partial(_number, "char", Reader.u16),
    "float": partial(_float, "float", ">f"),
    "double": partial(_float, "double", ">d"),
    "string": _string,
    "stringvalue": _string_value,
    "bytes": _bytes,
    "bigint": _bigint,
    "bigdecimal": _bigdecimal,
    "date": _date,
    "time": _time,
    "datetime": _datetime,
    "instant": _instant,
    "javadate": partial(_millis, "javadate"),
    "sqldate": partial(_millis, "sqldate"),
    "sqltime": partial(_millis, "sqltime"),
    "sqltimestamp": _sql_timestamp,
    "void": _void,
    "timewindow": _time_window,
    "globalwindow": _global_window,
}
