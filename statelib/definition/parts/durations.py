"""Durations in the form of a pipeline file: ``30d``, ``12h``, ``90s``."""

import re

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")


def milliseconds(duration: str) -> int:
    """Return the milliseconds of a duration. Raises ValueError if the text is not a duration."""
    match = _DURATION.fullmatch(duration)
    if match is None:
        raise ValueError("a duration such as 500ms, 90s, 15m, 1h or 7d")
    return int(match[1]) * _UNITS_MS[match[2]]


def normal_form(duration: str) -> str:
    """Return the one text of a duration that can be written in several ways: ``1h`` for ``60m``."""
    length_ms = milliseconds(duration)
    unit = next(unit for unit in reversed(_UNITS_MS) if length_ms % _UNITS_MS[unit] == 0)
    return f"{length_ms // _UNITS_MS[unit]}{unit}"
