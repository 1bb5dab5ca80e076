"""The text of a float as Java writes it."""

import math
import struct


def java_text(value: float, *, single: bool = False) -> str:
    """Return a float as Java writes it, such as ``1.0E10``, ``-0.0`` or ``NaN``. ``single``: it has 32 bits."""
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
    """Return the fewest digits, but two or more, that read back as the value, and the exponent of the first digit."""
    if single:
        raw = struct.pack(">f", value)
        places = next(n for n in range(1, 17) if _packed_single(float(f"{value:.{n}e}")) == raw)
    else:  # Python's own text has the fewest digits, which may be one
        places = max(1, len(repr(value).partition("e")[0].replace(".", "").strip("0")) - 1)
    mantissa, exponent = f"{value:.{places}e}".split("e")
    return mantissa.replace(".", "").rstrip("0") or "0", int(exponent)


def _packed_single(value: float) -> bytes | None:
    try:
        return struct.pack(">f", value)
    except OverflowError:
        return None  # rounded up beyond the largest float
