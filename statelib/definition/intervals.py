"""The data intervals of a schedule, cut as Airflow's CronDataIntervalTimetable cuts them."""

from collections.abc import Iterator
from datetime import UTC, datetime

from croniter import croniter

from statelib.errors import InvalidRequestError
from statelib.model.checkpoint import DataInterval

MAX_INTERVALS = 100_000
"""More in one call is a mistake in a date."""


def intervals(cron: str, start_ms: int, end_ms: int | None = None) -> Iterator[DataInterval]:
    """Those that lie in [``start_ms``, ``end_ms``), in order; without an end just the first one.

    Raises InvalidRequestError: ``bad-cron``, ``bad-interval`` where no interval begins at ``start_ms``, or the range
    holds more than :data:`MAX_INTERVALS`."""
    if not croniter.is_valid(cron):
        raise InvalidRequestError(
            f"schedule {cron!r} is no cron expression",
            kind="bad-cron",
            hint="say where the interval ends with --end, and run it with --whole",
        )
    start = _utc(start_ms)
    ticks = croniter(cron, start)
    if not croniter.match(cron, start):
        nearest = croniter(cron, start).get_prev(datetime)
        raise InvalidRequestError(
            f"no interval of the schedule {cron!r} begins at {start:%Y-%m-%d %H:%M:%S} UTC",
            kind="bad-interval",
            hint=f"one begins at {nearest:%Y-%m-%dT%H:%M:%S}, the next at {ticks.get_next(datetime):%Y-%m-%dT%H:%M:%S}",
        )
    for _ in range(MAX_INTERVALS):
        tick_ms = int(ticks.get_next(datetime).timestamp()) * 1000
        if end_ms is not None and tick_ms > end_ms:
            return
        yield DataInterval(start_ms, tick_ms)
        if end_ms is None:
            return
        start_ms = tick_ms
    raise InvalidRequestError(f"more than {MAX_INTERVALS:,} intervals of {cron!r}", kind="bad-interval")


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
    return int(aware.timestamp()) * 1000 + aware.microsecond // 1000


def _utc(epoch_ms: int) -> datetime:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)
