"""The intervals that updates of an Airflow asset name."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from statelib.definition.source.asset_events import interval_of_event
from statelib.errors import InvalidRequestError
from statelib.model.moments import moment_of

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("extra", "partition", "start", "end"),
    [
        ({"start": "2026-01-01", "end": "2026-01-02"}, None, "2026-01-01T00:00+01:00", "2026-01-02T00:00+01:00"),
        ({"start": "2026-01-01T06:00Z", "end": "2026-01-01T07:00Z"}, "2025", "2026-01-01T06:00Z", "2026-01-01T07:00Z"),
        ({}, "2026-03-29", "2026-03-29T00:00+01:00", "2026-03-30T00:00+02:00"),
        ({}, "2026-02", "2026-02-01T00:00+01:00", "2026-03-01T00:00+01:00"),
        ({}, "2026-12", "2026-12-01T00:00+01:00", "2027-01-01T00:00+01:00"),
        ({"id": 4}, "2026-01-31T23", "2026-01-31T23:00+01:00", "2026-02-01T00:00+01:00"),
        ({}, "2026-01-05/2026-01-12", "2026-01-05T00:00+01:00", "2026-01-12T00:00+01:00"),
    ],
)
def test_an_update_names_its_interval(extra: dict[str, object], partition: str | None, start: str, end: str) -> None:
    interval = interval_of_event(extra, partition, BERLIN)
    assert interval is not None
    bounds = (moment_of(interval.start_ms), moment_of(interval.end_ms))
    assert bounds == (datetime.fromisoformat(start), datetime.fromisoformat(end))


@pytest.mark.parametrize("partition", [None, ""])
def test_an_update_without_bounds_names_none(partition: str | None) -> None:
    assert interval_of_event({"id": 4, "bytes": 10}, partition, UTC) is None


@pytest.mark.parametrize(
    ("extra", "partition", "expected"),
    [
        ({"start": "2026-01-01"}, None, "only one of start and end"),
        ({"start": "2026-01-02", "end": "2026-01-01"}, None, "expected start before end"),
        ({"start": "yesterday", "end": "today"}, None, "'yesterday' is no time"),
        ({}, "europe", "partition 'europe' of the asset names no interval"),
        ({}, "2026-01-05T00:00:00", "names no interval"),
        ({}, "2026-13", "is no time"),
        ({}, "9999-12", "ends after the year 9999"),
    ],
)
def test_an_update_that_names_no_interval_is_refused(
    extra: dict[str, object], partition: str | None, expected: str
) -> None:
    with pytest.raises(InvalidRequestError, match=expected):
        interval_of_event(extra, partition, UTC)
