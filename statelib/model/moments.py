"""Exact conversion between Python's datetime and epoch milliseconds, also before 1970."""

from datetime import UTC, datetime, timedelta

HOUR_MS = 3_600_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def epoch_ms(moment: datetime) -> int:
    """Return the epoch milliseconds of a moment, rounded down. ``moment`` must have a time zone."""
    return (moment - _EPOCH) // _MILLISECOND


def moment_of(ms: int) -> datetime:
    """Return the moment of these epoch milliseconds, in UTC. Raises OverflowError outside of the years 1 to 9999."""
    return _EPOCH + timedelta(milliseconds=ms)
