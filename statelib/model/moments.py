"""Moments as Python has them and as epoch milliseconds: exact, before 1970 too."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def epoch_ms(moment: datetime) -> int:
    """Return the last whole millisecond up to a moment that says its zone."""
    return (moment - _EPOCH) // _MILLISECOND


def moment_of(ms: int) -> datetime:
    """Return the moment in UTC; raises OverflowError outside of the years 1 to 9999."""
    return _EPOCH + timedelta(milliseconds=ms)
