"""The data intervals of a schedule, cut as Airflow's CronDataIntervalTimetable cuts them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice

from croniter import CroniterBadDateError, croniter

from statelib.errors import InvalidRequestError
from statelib.model.checkpoint import DataInterval
from statelib.model.moments import epoch_ms, moment_of

MAX_INTERVALS = 100_000
"""More in one call is a mistake in a date."""
_PRESETS = {"@quarterly": "0 0 1 */3 *"}
"""Presets of Airflow that croniter does not have."""


def intervals(cron: str, start_ms: int, end_ms: int | None = None) -> Iterator[DataInterval]:
    """The intervals that lie in [``start_ms``, ``end_ms``), in order; without an end just the first one.

    Raises InvalidRequestError: ``bad-cron``, ``bad-interval`` where no interval begins at ``start_ms``, or the range
    holds more than :data:`MAX_INTERVALS`."""
    problem = cron_problem(cron)
    if problem is not None:
        raise InvalidRequestError(
            f"schedule {cron!r}: {problem}",
            kind="bad-cron",
            hint="correct schedule.cron; or say where the interval ends with --end, and run it with --whole",
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
    """The first ``count`` intervals that begin at or after ``start_ms``, as Airflow aligns a schedule's start.
    The schedule has to be a valid one (:func:`cron_problem`)."""
    first_ms = _tick_after(cron, start_ms - 1)
    return list(islice(_following(cron, first_ms), count))


def cut(cron: str, interval: DataInterval) -> tuple[DataInterval, ...] | None:
    """The intervals of the schedule that ``interval`` consists of; None where its bounds are not among theirs."""
    if cron_problem(cron) is not None or not _begins_at(cron, interval.start_ms):
        return None
    parts = tuple(intervals(cron, interval.start_ms, interval.end_ms))
    return parts if parts and parts[-1].end_ms == interval.end_ms else None


def cron_problem(cron: str) -> str | None:
    """What is wrong with a schedule: it cannot be read, or its time never comes, such as 30 February."""
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
    """Whether one begins there, to the millisecond; croniter's own ``match`` looks at the minute only."""
    return _tick_after(cron, start_ms - 1) == start_ms


def _tick_after(cron: str, moment_ms: int) -> int:
    ticks = croniter(_PRESETS.get(cron, cron), moment_of(moment_ms))
    return epoch_ms(ticks.get_next(datetime))


def _nearest(cron: str, moment_ms: int) -> str:
    before = croniter(_PRESETS.get(cron, cron), moment_of(moment_ms)).get_prev(datetime)
    after = moment_of(_tick_after(cron, moment_ms))
    return f"one begins at {before:%Y-%m-%dT%H:%M:%S}, the next at {after:%Y-%m-%dT%H:%M:%S}"


def moment(text: str) -> int:
    """A date or a time in ISO 8601 as epoch milliseconds; UTC unless it says otherwise.

    Raises InvalidRequestError (``bad-time``)."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequestError(
            f"{text!r} is no time", kind="bad-time", hint="write 2026-01-31, or 2026-01-31T06:00"
        ) from None
    aware = found.replace(tzinfo=UTC) if found.tzinfo is None else found
    return epoch_ms(aware)
