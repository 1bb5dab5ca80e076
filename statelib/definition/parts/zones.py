"""Time zones by their names, and the moments at which their clocks change."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from statelib.model.moments import moment_of

_WEEK_MS = 7 * 86_400_000
"""The step of the search for clock changes. No zone changes its clock twice within a week."""


@cache
def zone_problem(name: str) -> str | None:
    """Return the problem of a time zone's name, None if there is such a zone."""
    return None if name in available_timezones() else f"expected a time zone such as Europe/Berlin, found {name!r}"


def zone_of(name: str | None) -> tzinfo:
    """Return the time zone of this name. UTC stands for no name, and for a name that :func:`zone_problem` refuses."""
    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        return UTC


def in_zone(moment: datetime, zone: tzinfo) -> datetime:
    """Return a datetime in UTC. Without an offset it is in ``zone``; of two moments with that local time, the first.

    Raises OverflowError outside of the years 1 to 9999."""
    return (moment.replace(tzinfo=zone) if moment.tzinfo is None else moment).astimezone(UTC)


def is_ambiguous(moment: datetime) -> bool:
    """Return whether another moment has the same local time, because the clock is set back around it."""
    earlier, later = moment.replace(fold=0).utcoffset(), moment.replace(fold=1).utcoffset()
    return earlier is not None and later is not None and earlier > later


@dataclass(frozen=True)
class ClockChange:
    """The moment at which the offset of a time zone changes, and by how much. ``shift_ms``: negative if the clock is
    set back."""

    at_ms: int
    shift_ms: int


def clock_changes(zone: tzinfo, start_ms: int, end_ms: int) -> Iterator[ClockChange]:
    """Yield the clock changes of a zone between two moments, in order."""
    if zone is UTC:
        return
    for before_ms in range(start_ms, end_ms, _WEEK_MS):
        after_ms = min(before_ms + _WEEK_MS, end_ms)
        shift = clock_offset(zone, after_ms) - clock_offset(zone, before_ms)
        if shift:
            yield ClockChange(_change_between(zone, before_ms, after_ms), shift // timedelta(milliseconds=1))


def _change_between(zone: tzinfo, before_ms: int, after_ms: int) -> int:
    """Return the first moment with the offset of ``after_ms``."""
    offset = clock_offset(zone, after_ms)
    while after_ms - before_ms > 1:
        middle_ms = (before_ms + after_ms) // 2
        if clock_offset(zone, middle_ms) == offset:
            after_ms = middle_ms
        else:
            before_ms = middle_ms
    return after_ms


def clock_offset(zone: tzinfo, moment_ms: int) -> timedelta:
    """Return by how much the clock of a zone is ahead of UTC at a moment."""
    return moment_of(moment_ms).astimezone(zone).utcoffset() or timedelta()
