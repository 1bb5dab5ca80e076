"""The moments of a cron expression in a time zone, by the rules of Airflow's CronDataIntervalTimetable.

Cron reads a clock on the wall. If the clock is set forward, a time that is left out means the moment after the change:
02:30 means 03:30. If it is set back, a time that comes twice means the second one. An expression that fires in every
hour follows the time that passes instead, so that it also fires in the hour that comes twice.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, tzinfo

from croniter import croniter

from statelib.model.checkpoint import DataInterval
from statelib.model.moments import epoch_ms, moment_of

PRESETS = {"@quarterly": "0 0 1 */3 *"}
"""Presets of Airflow that croniter does not have."""
_MILLISECOND = timedelta(milliseconds=1)


class Ticks:
    """The moments of a valid cron expression in a time zone."""

    def __init__(self, cron: str, zone: tzinfo) -> None:
        self._cron = croniter(PRESETS.get(cron, cron), moment_of(0))
        self._zone = zone
        self._every_hour = self._cron.expanded[1] == ["*"]

    def after(self, moment_ms: int) -> int:
        """Return the first moment after this one."""
        return self._moment(moment_ms, self._cron.get_next)

    def before(self, moment_ms: int) -> int:
        """Return the last moment before this one."""
        return self._moment(moment_ms, self._cron.get_prev)

    def begins_at(self, moment_ms: int) -> bool:
        """Return whether an interval begins here: whether Airflow continues at this moment if one ended at it."""
        previous = self.before(moment_ms)
        return previous == moment_ms or self.after(previous) == moment_ms

    def last_before(self, moment_ms: int) -> int:
        """Return the last moment before this one at which an interval begins. :meth:`before` counts the hours of the
        clock back, and is wrong by the shift if the clock of an expression that fires in every hour has changed
        meanwhile."""
        previous = self.before(moment_ms)
        while not self.begins_at(previous):
            previous = self.before(previous)
        return previous

    def first_from(self, moment_ms: int) -> int:
        """Return the first moment at or after this one at which an interval begins."""
        return moment_ms if self.begins_at(moment_ms) else self.after(moment_ms)

    def intervals(self, start_ms: int) -> Iterator[DataInterval]:
        """Yield the intervals from ``start_ms`` on, without end."""
        while True:
            end_ms = self.after(start_ms)
            yield DataInterval(start_ms, end_ms)
            start_ms = end_ms

    def _moment(self, moment_ms: int, step: Callable[[type[datetime]], datetime]) -> int:
        local = moment_of(moment_ms).astimezone(self._zone).replace(tzinfo=None, fold=0)
        self._cron.set_current(local)
        scheduled = step(datetime)
        if self._every_hour:
            return moment_ms + (scheduled - local) // _MILLISECOND
        first, second = (epoch_ms(scheduled.replace(tzinfo=self._zone, fold=fold)) for fold in (0, 1))
        return max(first, second)
