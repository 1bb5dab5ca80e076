"""Schedules in a time zone: days of 23 and 25 hours, hours that occur twice or not at all, and paths in local time."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from statelib.definition.parts.model import Schedule
from statelib.definition.parts.zones import ClockChange, clock_changes, is_ambiguous
from statelib.definition.pipeline import Pipeline
from statelib.definition.source.intervals import clock_change_problem, cut, first_intervals, intervals, moment
from statelib.definition.source.parts import source_parts
from statelib.definition.source.readiness import ready_rules
from statelib.definition.source.templates import at_interval, names_exactly
from statelib.definition.source.ticks import Ticks
from statelib.errors import InvalidRequestError
from statelib.model.checkpoint import DataInterval
from statelib.model.moments import moment_of

BERLIN = ZoneInfo("Europe/Berlin")
HOUR_MS = 3_600_000
FORWARD, BACK = (moment(text, UTC) for text in ("2026-03-29T01:00", "2026-10-25T01:00"))


def berlin(cron: str, start: str = "2026-01-01", end: str | None = None) -> Schedule:
    return Schedule.model_validate({"cron": cron, "time_zone": "Europe/Berlin", "start": start, "end": end})


def local(text: str) -> int:
    return moment(text, BERLIN)


def new_pipeline(cron: str, zone: str | None = "Europe/Berlin", **source: object) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "p", "schedule": {"cron": cron, "time_zone": zone, "start": "2026-01-01"},
            "source": {"columns": {"k": "string"}, **source}, "key": "k", "backend": "heap",
            "states": {"n": {"kind": "value", "value": {"agg": "count"}}},
        }
    )  # fmt: skip


@pytest.mark.parametrize(("first", "hours"), [("2026-03-27", [24, 24, 23, 24]), ("2026-10-23", [24, 24, 25, 24])])
def test_a_day_has_as_many_hours_as_its_clock(first: str, hours: list[int]) -> None:
    days = first_intervals(berlin("0 0 * * *"), local(first), 4)
    assert [(day.end_ms - day.start_ms) // HOUR_MS for day in days] == hours
    assert all(before.end_ms == after.start_ms for before, after in pairwise(days))


def test_every_hour_that_passes_is_an_interval() -> None:
    for change in (FORWARD, BACK):
        hours = first_intervals(berlin("@hourly"), change - 3 * HOUR_MS, 6)
        assert [hour.start_ms for hour in hours] == [change + n * HOUR_MS for n in range(-3, 3)]


def test_a_time_that_does_not_exist_is_later_and_one_that_exists_twice_is_the_second() -> None:
    ends = [moment_of(each.end_ms) for each in first_intervals(berlin("30 2 * * *"), local("2026-03-28"), 2)]
    assert ends == [datetime(2026, 3, 29, 1, 30, tzinfo=UTC), datetime(2026, 3, 30, 0, 30, tzinfo=UTC)]
    ends = [moment_of(each.end_ms) for each in first_intervals(berlin("30 2 * * *"), local("2026-10-24"), 2)]
    assert ends == [datetime(2026, 10, 25, 1, 30, tzinfo=UTC), datetime(2026, 10, 26, 1, 30, tzinfo=UTC)]


def test_times_without_an_offset_are_in_the_zone() -> None:
    schedule = berlin("0 0 * * *", "2026-07-01", "2026-12-01T00:00:00Z")
    assert schedule.start == datetime(2026, 6, 30, 22, tzinfo=UTC)
    assert schedule.end == datetime(2026, 12, 1, tzinfo=UTC)
    assert moment("2026-10-25T02:30", BERLIN) == BACK - HOUR_MS // 2, "the first of two"
    assert moment("2026-10-25T02:30+01:00", BERLIN) == BACK + HOUR_MS // 2


def test_an_interval_that_ends_at_a_time_that_does_not_exist_is_one_of_the_schedule() -> None:
    schedule = berlin("30 2 * * *")
    days = first_intervals(schedule, local("2026-03-27"), 4)
    assert all(cut(schedule, day) == (day,) for day in days)
    assert all(list(intervals(schedule, day.start_ms)) == [day] for day in days)


def test_a_range_is_cut_at_local_midnights() -> None:
    schedule = berlin("0 0 * * *")
    days = cut(schedule, DataInterval(local("2026-03-28"), local("2026-03-31")))
    assert days is not None
    assert [day.start_ms for day in days] == [local(f"2026-03-{day}") for day in (28, 29, 30)]
    assert cut(schedule, DataInterval(moment("2026-03-28", UTC), moment("2026-03-31", UTC))) is None


def test_a_start_that_begins_no_interval_is_answered_in_the_zone() -> None:
    expected = "schedule '@daily in Europe/Berlin' begins at 2026-03-29 12:00:00 UTC"
    with pytest.raises(InvalidRequestError, match=expected) as caught:
        list(intervals(berlin("@daily"), moment("2026-03-29T12:00", UTC)))
    assert caught.value.hint == "one begins at 2026-03-29T00:00:00+01:00, the next at 2026-03-30T00:00:00+02:00"
    assert moment("2026-03-29T00:00:00+01:00", BERLIN) == local("2026-03-29")


def test_the_directory_of_a_local_day_has_the_local_date() -> None:
    ready = {"next_interval": True, "marker": "{end:%d}.done"}
    pipeline = new_pipeline("@daily", path="{data}/{start:%Y-%m-%d}", ready=ready)
    days = DataInterval(local("2026-03-29"), local("2026-03-31"))
    assert [part.path for part in source_parts(pipeline, "/d", days)] == ["/d/2026-03-29", "/d/2026-03-30"]
    (rule,) = ready_rules(pipeline, "/d", days)
    assert [(part.marker, part.next_path) for part in rule.parts] == [
        ("/d/2026-03-29/30.done", "/d/2026-03-30"), ("/d/2026-03-30/31.done", "/d/2026-03-31"),
    ]  # fmt: skip


def test_a_condition_has_the_offset_of_each_bound() -> None:
    pipeline = new_pipeline("@daily", table="lake.orders", where="at >= '{start}' AND at < '{end}'")
    (part,) = source_parts(pipeline, "", DataInterval(local("2026-03-29"), local("2026-03-30")))
    assert part.where == "at >= '2026-03-29 00:00:00+01:00' AND at < '2026-03-30 00:00:00+02:00'"


@pytest.mark.parametrize("path", ["{start:%Y-%m-%dT%H}", "{end:%Y/%m/%d/%H}"])
def test_a_path_of_an_hour_that_occurs_twice_needs_its_offset(path: str) -> None:
    with pytest.raises(ValidationError, match="the clock of Europe/Berlin is set back: write the offset too") as caught:
        new_pipeline("@hourly", path=path)
    assert "source.path: the intervals [2026-10-25T00:00:00+00:00" in str(caught.value) or path.startswith("{end")
    new_pipeline("@hourly", path=path.replace("%H", "%H%z"))
    new_pipeline("@hourly", "Asia/Kolkata", path=path)
    new_pipeline("@hourly", None, path=path)
    new_pipeline("0 */2 * * *", path=path)


def test_the_error_for_a_path_that_repeats_for_another_reason_does_not_mention_the_clock() -> None:
    with pytest.raises(ValidationError, match="have the same path") as caught:
        new_pipeline("@daily", path="{start:%Y-%m}")
    assert "clock" not in str(caught.value)


def test_a_local_day_is_not_a_day_of_utc() -> None:
    local_day = DataInterval(local("2026-07-01"), local("2026-07-02"))
    utc_day = DataInterval(moment("2026-07-01", UTC), moment("2026-07-02", UTC))
    for zone, day, other in ((BERLIN, local_day, utc_day), (UTC, utc_day, local_day)):
        assert names_exactly("{start:%Y-%m-%d}", day, zone)
        assert not names_exactly("{start:%Y-%m-%d}", other, zone)


def test_a_text_of_a_time_that_occurs_twice_names_no_instant() -> None:
    twice = DataInterval(BACK - HOUR_MS, BACK + HOUR_MS)
    assert is_ambiguous(moment_of(BACK).astimezone(BERLIN))
    assert not is_ambiguous(moment_of(FORWARD).astimezone(BERLIN))
    assert not names_exactly("{start:%Y-%m-%dT%H}-{end:%Y-%m-%dT%H}", twice, BERLIN)
    assert names_exactly("{start:%Y-%m-%dT%H%z}-{end:%Y-%m-%dT%H}", twice, BERLIN)
    assert names_exactly("{start}-{end}", twice, BERLIN)


def test_changes_of_a_clock_are_found_to_the_millisecond() -> None:
    year = (moment("2026-01-01", UTC), moment("2027-01-01", UTC))
    assert list(clock_changes(BERLIN, *year)) == [ClockChange(FORWARD, HOUR_MS), ClockChange(BACK, -HOUR_MS)]
    assert [change.shift_ms for change in clock_changes(ZoneInfo("Australia/Lord_Howe"), *year)] == [
        -HOUR_MS // 2, HOUR_MS // 2,
    ]  # fmt: skip
    assert list(clock_changes(ZoneInfo("Asia/Kolkata"), *year)) == []
    assert list(clock_changes(UTC, *year)) == []


@pytest.mark.parametrize("cron", ["0,30 2-3 * * *", "* 2 * * *", "0 * * * 1"])
def test_a_cron_whose_intervals_airflow_cannot_keep_together_is_refused(cron: str) -> None:
    problem = clock_change_problem(berlin(cron))
    assert problem is not None
    assert "Airflow's intervals do not follow each other when the clock of Europe/Berlin is set" in problem
    with pytest.raises(ValidationError, match=r"schedule\.cron: .* leave schedule\.time_zone out"):
        new_pipeline(cron, path="{start}")
    new_pipeline(cron, None, path="{start}")
    assert clock_change_problem(berlin(cron, end="2026-01-31")) is None


def test_the_moments_before_and_after_are_inverse_where_the_clock_is_steady() -> None:
    ticks = Ticks("15 */6 * * *", BERLIN)
    tick_ms = local("2026-06-01T06:15")
    assert ticks.after(ticks.before(tick_ms)) == tick_ms
    assert ticks.begins_at(tick_ms)
    assert not ticks.begins_at(tick_ms + 1)
    assert ticks.first_from(tick_ms - 1) == ticks.first_from(tick_ms) == tick_ms


@pytest.fixture(params=["UTC", "America/New_York"])
def host_zone(request: pytest.FixtureRequest) -> Iterator[str]:
    """Set the time zone of this host for a while."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


@pytest.mark.parametrize("zone", [UTC, BERLIN])
def test_the_seconds_of_a_bound_are_the_same_on_every_host(host_zone: str, zone: ZoneInfo) -> None:
    hour = DataInterval(BACK, BACK + HOUR_MS)
    text = at_interval("t >= {start:%s} AND t < {end:%s} -- %% {start:%%s}", "", hour, zone)
    assert text == f"t >= {BACK // 1000} AND t < {BACK // 1000 + 3600} -- %% %s", host_zone
