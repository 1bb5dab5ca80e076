"""Numbers, sizes and moments as people read them; a dash stands for what is unknown."""

import re
from datetime import UTC, datetime

_LONG_BYTES = re.compile(r"(?<![0-9a-f])([0-9a-f]{16})(?:[0-9a-f]{2}){57,}(?![0-9a-f])")
"""More than 64 bytes in hexadecimal digits; the group has the first 8."""


def size(size_bytes: int | None) -> str:
    """Return a number of bytes with its unit: ``1.5 MiB``."""
    if size_bytes is None:
        return "-"
    amount = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def when(epoch_ms: int | None) -> str:
    """Return a moment in UTC, to the second: ``2026-02-01 06:00:00``."""
    return "-" if epoch_ms is None else datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def minute(epoch_ms: int | None) -> str:
    """Return a moment in UTC, to the minute: ``2026-02-01 06:00``."""
    return when(epoch_ms)[:16]


def count(number: int | None) -> str:
    """Return a number with thousands separators: ``2,039``."""
    return "-" if number is None else f"{number:,}"


def duration(milliseconds: int | None) -> str:
    """Return a duration with its unit: ``250 ms``, ``2.5 s``, ``1:05 min``."""
    if milliseconds is None:
        return "-"
    if milliseconds < 1_000:
        return f"{milliseconds} ms"
    seconds = milliseconds // 1_000
    return f"{milliseconds / 1000:.1f} s" if seconds < 60 else f"{seconds // 60}:{seconds % 60:02d} min"


def short_bytes(text: str) -> str:
    """Return the text of a value, where long bytes such as a sketch are shown by their beginning and their number:
    ``05010f02c8000800… (1,744 bytes)``."""
    return _LONG_BYTES.sub(lambda match: f"{match[1]}… ({len(match[0]) // 2:,} bytes)", text)
