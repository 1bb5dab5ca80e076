"""JSON as one line of text that any program can read, and numbers of any size."""

import json
from decimal import Decimal

from statelib.errors import UnsupportedError

_PLAIN_BITS, MAX_BITS = 14_000, 1 << 19
"""Python itself refuses to write more than some 4300 digits; writing takes the square of their number."""


def integer_text(number: int) -> str:
    """Decimal digits. Raises UnsupportedError (``number-too-large``) beyond :data:`MAX_BITS`."""
    bits = number.bit_length()
    if bits <= _PLAIN_BITS:
        return str(number)
    if bits > MAX_BITS:
        raise UnsupportedError(f"a number of {bits} bits, expected at most {MAX_BITS}", kind="number-too-large")
    return format(Decimal(number), "f")


def json_text(value: object) -> str:
    """Compact; characters as themselves, half a surrogate pair escaped, because UTF-8 cannot hold it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text)
    return text
