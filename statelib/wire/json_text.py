"""JSON on one line that any program can read, and integers of any size as text."""

import json
from decimal import Decimal

from statelib.errors import UnsupportedError

_PLAIN_BITS, MAX_BITS = 14_000, 1 << 19
"""The size in bits of the largest integer that ``str`` converts, and of the largest one that is converted at all.

Python refuses to convert integers of more than about 4300 digits with ``str``; other ways take a time that grows with
the square of the number of digits.
"""


def integer_text(number: int) -> str:
    """Return the decimal digits of ``number``.

    Raise UnsupportedError (``number-too-large``) if it has more than :data:`MAX_BITS` bits.
    """
    bits = number.bit_length()
    if bits <= _PLAIN_BITS:
        return str(number)
    if bits > MAX_BITS:
        raise UnsupportedError(f"a number of {bits} bits, expected at most {MAX_BITS}", kind="number-too-large")
    return format(Decimal(number), "f")


def json_text(value: object) -> str:
    """Return ``value`` as compact JSON. Characters are not escaped, except for lone surrogates, which UTF-8 cannot
    hold."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text)
    return text
