"""The data intervals of a schedule, equal to those of Airflow's CronDataIntervalTimetable."""

import re
from collections.abc import Iterator
from datetime import datetime, tzinfo
from functools import lru_cache
from itertools import islice

from croniter import CroniterBadDateError, croniter

from statelib.definition.parts.model import Schedule
from statelib.definition.parts.zones import ClockChange, clock_changes, in_zone
from statelib.definition.source.ticks import PRESETS, Ticks
from statelib.errors import InvalidRequestError
from statelib.model.checkpoint import DataInterval
from statelib.model.moments import epoch_ms, moment_of

MAX_INTERVALS = 100_000
"""The largest number of intervals in one call. A larger number is probably a wrong date."""
REMEMBERED = 256
"""The number of schedules whose checks a process remembers, because many pipelines have the same schedule."""
_FORESEEN_MS = 10 * 366 * 86_400_000
"""How far after the schedule's start its clock changes are examined."""


def intervals(schedule: Schedule, start_ms: int, end_ms: int | None = None) -> Iterator[DataInterval]:
    """Yield the intervals within [``start_ms``, ``end_ms``), in order; without an end only the first one.

    Raises InvalidRequestError: ``bad-cron``; ``bad-interval`` if no interval begins at ``start_ms``, or the range
    contains more than :data:`MAX_INTERVALS`."""
    cron = schedule.cron
    problem = cron_problem(cron)
    if problem is not None:
        raise InvalidRequestError(
            f"schedule {cron!r}: {problem}",
            kind="bad-cron",
            hint="correct schedule.cron; or give the interval's end with --end, and run it with --whole",
        )
    ticks = Ticks(cron, schedule.zone)
    if not ticks.begins_at(start_ms):
        raise InvalidRequestError(
            f"no interval of the schedule {schedule.text!r} begins at {moment_of(start_ms):%Y-%m-%d %H:%M:%S} UTC",
            kind="bad-interval",
            hint=f"one begins at {schedule.local_text(ticks.last_before(start_ms))}, the next at "
            f"{schedule.local_text(ticks.after(start_ms))}",
        )
    for number, interval in enumerate(ticks.intervals(start_ms)):
        if end_ms is not None and interval.end_ms > end_ms:
            return
        if number == MAX_INTERVALS:
            raise InvalidRequestError(
                f"more than {MAX_INTERVALS:,} intervals of {schedule.text!r}", kind="bad-interval"
            )
        yield interval
        if end_ms is None:
            return


def first_intervals(schedule: Schedule, start_ms: int, count: int) -> list[DataInterval]:
    """Return the first ``count`` intervals that begin at or after ``start_ms``, as Airflow does for a schedule's start.
    Airflow itself leaves out the first of them if it ends at a time that the clock leaves out. The schedule must be
    valid (:func:`cron_problem`)."""
    ticks = Ticks(schedule.cron, schedule.zone)
    return list(islice(ticks.intervals(ticks.first_from(start_ms)), count))


def cut(schedule: Schedule, interval: DataInterval) -> tuple[DataInterval, ...] | None:
    """Return the intervals of the schedule that ``interval`` consists of, None if it begins or ends within one."""
    if cron_problem(schedule.cron) is not None:
        return None
    if not Ticks(schedule.cron, schedule.zone).begins_at(interval.start_ms):
        return None
    parts = tuple(intervals(schedule, interval.start_ms, interval.end_ms))
    return parts if parts and parts[-1].end_ms == interval.end_ms else None


def cron_problem(cron: str) -> str | None:
    """Return the problem of a schedule, None if it is valid. A schedule that never fires, such as on 30 February, is
    not valid. Neither is one with ``R``, for which each process would choose another time."""
    expression = PRESETS.get(cron, cron)
    if re.search(r"(^|[\s,])r", expression, re.IGNORECASE):
        return "expected times that are always the same, found the mark R for a random one"
    if not croniter.is_valid(expression):
        return "expected a cron expression of five fields, or a preset such as @daily"
    try:
        croniter(expression, moment_of(0)).get_next(datetime)
    except CroniterBadDateError:
        return "its time never comes"
    return None


def changes_of(schedule: Schedule) -> Iterator[tuple[ClockChange, list[DataInterval]]]:
    """Yield each clock change in the first ten years of a valid schedule, and the intervals around it: from the last
    one before the hours that are repeated or left out to the first one after them."""
    ticks, start_ms = Ticks(schedule.cron, schedule.zone), epoch_ms(schedule.start)
    end_ms = start_ms + _FORESEEN_MS if schedule.end is None else epoch_ms(schedule.end)
    for change in clock_changes(schedule.zone, start_ms, min(end_ms, start_ms + _FORESEEN_MS)):
        reach_ms = abs(change.shift_ms)
        around = []
        for interval in ticks.intervals(ticks.last_before(change.at_ms - reach_ms)):
            around.append(interval)
            if interval.start_ms > change.at_ms + reach_ms:
                break
        yield change, around


@lru_cache(maxsize=REMEMBERED)
def clock_change_problem(schedule: Schedule) -> str | None:
    """Return the problem of a valid schedule whose intervals do not follow each other in Airflow when the clock of its
    zone changes, None if they do. Airflow would skip or repeat the time in between, or schedule no further run."""
    ticks = Ticks(schedule.cron, schedule.zone)
    for change, around in changes_of(schedule):
        for interval in around:
            if not ticks.begins_at(interval.end_ms):
                clock = "forward" if change.shift_ms > 0 else "back"
                return (
                    f"{schedule.cron!r}: Airflow's intervals do not follow each other when the clock of "
                    f"{schedule.time_zone} is set {clock} at {schedule.local_text(change.at_ms)}: leave "
                    "schedule.time_zone out, or write a cron that fires in every hour of every day, or that does not "
                    "fire several times within the hours that are repeated or left out"
                )
    return None


def moment(text: str, zone: tzinfo) -> int:
    """Return a date or time in ISO 8601 as epoch milliseconds. It is in ``zone`` unless it has an offset.

    Raises InvalidRequestError (``bad-time``)."""
    try:
        return epoch_ms(in_zone(datetime.fromisoformat(text), zone))
    except ValueError:
        raise InvalidRequestError(
            f"{text!r} is no time", kind="bad-time", hint="write 2026-01-31, or 2026-01-31T06:00"
        ) from None
    except OverflowError:
        raise InvalidRequestError(
            f"expected a time within the years 1 to 9999, in UTC, found {text!r}", kind="bad-time"
        ) from None
