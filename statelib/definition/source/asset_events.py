"""The data interval that an update of an Airflow asset names: by its extra information, or by its partition."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta, tzinfo

from statelib.definition.parts.zones import in_zone
from statelib.definition.source.intervals import moment
from statelib.errors import InvalidRequestError
from statelib.model.checkpoint import DataInterval
from statelib.model.moments import HOUR_MS, epoch_ms

_HOUR, _DAY, _MONTH = (re.compile(text) for text in (r"\d{4}-\d\d-\d\dT\d\d", r"\d{4}-\d\d-\d\d", r"\d{4}-\d\d"))


def interval_of_event(extra: Mapping[str, object], partition: str | None, zone: tzinfo) -> DataInterval | None:
    """Return the interval that an update names: ``start`` and ``end`` in its ``extra``, or its partition, which is an
    hour, a day, a month or ``start/end``. Times without an offset are in ``zone``. None if it names no interval.

    Raises InvalidRequestError (``bad-time``, ``bad-interval``)."""
    start, end = extra.get("start"), extra.get("end")
    if start is None and end is None:
        return None if not partition else _of_partition(partition, zone)
    if start is None or end is None:
        raise InvalidRequestError(
            f"the update of the asset has only one of start and end: {dict(extra)}", kind="bad-interval"
        )
    return _interval(str(start), str(end), zone)


def _of_partition(text: str, zone: tzinfo) -> DataInterval:
    start, slash, end = text.partition("/")
    if slash:
        return _interval(start, end, zone)
    if _HOUR.fullmatch(text):
        begin = moment(f"{text}:00", zone)
        return DataInterval(begin, begin + HOUR_MS)
    day = f"{text}-01" if _MONTH.fullmatch(text) else text
    if not _DAY.fullmatch(day):
        raise InvalidRequestError(
            f"partition {text!r} of the asset names no interval: expected an hour, a day, a month or start/end",
            kind="bad-interval",
            hint="write 2026-01-31T06, 2026-01-31, 2026-01 or 2026-01-31/2026-02-07; or give the update an extra with "
            "start and end",
        )
    start_ms = moment(day, zone)
    first = datetime.fromisoformat(day)
    try:
        following = first + timedelta(days=1) if day == text else (first + timedelta(days=31)).replace(day=1)
        return DataInterval(start_ms, epoch_ms(in_zone(following, zone)))
    except OverflowError:
        raise InvalidRequestError(
            f"partition {text!r} of the asset ends after the year 9999", kind="bad-time"
        ) from None


def _interval(start: str, end: str, zone: tzinfo) -> DataInterval:
    interval = DataInterval(moment(start, zone), moment(end, zone))
    if interval.end_ms <= interval.start_ms:
        raise InvalidRequestError(
            f"the update of the asset names {start} to {end}: expected start before end", kind="bad-interval"
        )
    return interval
