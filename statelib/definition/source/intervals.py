"""The data intervals of a schedule, equal to those of Airflow's CronDataIntervalTimetable."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice

from croniter import CroniterBadDateError, croniter

from statelib.errors import InvalidRequestError
from statelib.model.checkpoint import DataInterval
from statelib.model.moments import epoch_ms, moment_of

MAX_INTERVALS = 100_000
"""The largest number of intervals in one call. A larger number is probably a wrong date."""
_PRESETS = {"@quarterly": "0 0 1 */3 *"}
"""Presets of Airflow that croniter does not have."""


def intervals(cron: str, start_ms: int, end_ms: int | None = None) -> Iterator[DataInterval]:
    """Yield the intervals within [``start_ms``, ``end_ms``), in order; without an end only the first one.

    Raises InvalidRequestError: ``bad-cron``; ``bad-interval`` if no interval begins at ``start_ms``, or the range
    contains more than :data:`MAX_INTERVALS`."""
    problem = cron_problem(cron)
    if problem is not None:
        raise InvalidRequestError(
            f"schedule {cron!r}: {problem}",
            kind="bad-cron",
            hint="correct schedule.cron; or give the interval's end with --end, and run it with --whole",
        )
    if not _begins_at(cron, start_ms):
        raise InvalidRequestError(
            f"no interval of the schedule {cron!r} begins at {moment_of(start_ms):%Y-%m-%d %H:%M:%S} UTC",
            kind="bad-interval",
            hint=_nearest(cron, start_ms),
        )
    for number, interval in enumerate(_following(cron, start_ms)):
        if end_ms is not None and interval.end_ms > end_ms:
            return
        if number == MAX_INTERVALS:
            raise InvalidRequestError(f"more than {MAX_INTERVALS:,} intervals of {cron!r}", kind="bad-interval")
        yield interval
        if end_ms is None:
            return


def first_intervals(cron: str, start_ms: int, count: int) -> list[DataInterval]:
    """Return the first ``count`` intervals that begin at or after ``start_ms``, as Airflow does for a schedule's start.
    The schedule must be valid (:func:`cron_problem`)."""
    first_ms = _tick_after(cron, start_ms - 1)
    return list(islice(_following(cron, first_ms), count))


def cut(cron: str, interval: DataInterval) -> tuple[DataInterval, ...] | None:
    """Return the intervals of the schedule that ``interval`` consists of, None if it begins or ends within one."""
    if cron_problem(cron) is not None or not _begins_at(cron, interval.start_ms):
        return None
    parts = tuple(intervals(cron, interval.start_ms, interval.end_ms))
    return parts if parts and parts[-1].end_ms == interval.end_ms else None


def cron_problem(cron: str) -> str | None:
    """Return the problem of a schedule, None if it is valid. A schedule that never fires, such as on 30 February, is
    not valid."""
    expression = _PRESETS.get(cron, cron)
    if not croniter.is_valid(expression):
        return "expected a cron expression of five fields, or a preset such as @daily"
    try:
        croniter(expression, moment_of(0)).get_next(datetime)
    except CroniterBadDateError:
        return "its time never comes"
    return None


def _following(cron: str, start_ms: int) -> Iterator[DataInterval]:
    ticks = croniter(_PRESETS.get(cron, cron), moment_of(start_ms))
    while True:
        tick_ms = epoch_ms(ticks.get_next(datetime))
        yield DataInterval(start_ms, tick_ms)
        start_ms = tick_ms


def _begins_at(cron: str, start_ms: int) -> bool:
    """Return whether an interval begins exactly at ``start_ms``. croniter's ``match`` ignores seconds."""
    return _tick_after(cron, start_ms - 1) == start_ms


def _tick_after(cron: str, moment_ms: int) -> int:
    ticks = croniter(_PRESETS.get(cron, cron), moment_of(moment_ms))
    return epoch_ms(ticks.get_next(datetime))


def _nearest(cron: str, moment_ms: int) -> str:
    before = croniter(_PRESETS.get(cron, cron), moment_of(moment_ms)).get_prev(datetime)
    after = moment_of(_tick_after(cron, moment_ms))
    return f"one begins at {before:%Y-%m-%dT%H:%M:%S}, the next at {after:%Y-%m-%dT%H:%M:%S}"


def moment(text: str) -> int:
    """Return a date or time in ISO 8601 as epoch milliseconds. It is in UTC unless it has an offset.

    Raises InvalidRequestError (``bad-time``)."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequestError(
            f"{text!r} is no time", kind="bad-time", hint="write 2026-01-31, or 2026-01-31T06:00"
        ) from None
    return epoch_ms(parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed)
