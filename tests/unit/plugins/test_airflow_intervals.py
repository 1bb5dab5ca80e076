"""The intervals of a schedule are those of Airflow's scheduler, also where the clock of a time zone changes."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise, takewhile

import pendulum
import pytest
from airflow.timetables.base import DataInterval as AirflowInterval
from airflow.timetables.base import TimeRestriction
from airflow.timetables.interval import CronDataIntervalTimetable
from hypothesis import example, given, settings
from hypothesis import strategies as st

from statelib.definition.parts.model import Schedule
from statelib.definition.source.intervals import changes_of, clock_change_problem, first_intervals
from statelib.definition.source.ticks import Ticks
from statelib.model.checkpoint import DataInterval
from statelib.model.moments import epoch_ms, moment_of
from tests.support.extent import cases, examples

ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC", "America/Havana", "Asia/Kolkata"]
FIRST_MS, LAST_MS = (epoch_ms(datetime(2026, month, 1, tzinfo=UTC)) for month in (1, 12))
DAY_MS, COUNT = 86_400_000, 12
minutes = st.sampled_from(["0", "30", "59", "*/15", "*/40", "0,30", "5,50", "7"])
hours = st.sampled_from(["*", "0", "1", "2", "3", "2-3", "*/2", "*/6", "0,12", "1,2,3", "9-17", "0-23"])
days = st.sampled_from(["* * *", "* * *", "* * *", "1 * *", "* * 0", "* * 1-5", "15 */3 *", "29 3 *"])
crons = st.one_of(
    st.tuples(minutes, hours, days).map(" ".join), st.sampled_from(["@hourly", "@daily", "@weekly", "@quarterly"])
)


def scheduled(cron: str, zone: str, start_ms: int, count: int) -> Iterator[DataInterval]:
    """Yield the intervals of Airflow's scheduler. It stops with ValueError if Airflow finds no next one."""
    timetable = CronDataIntervalTimetable(cron, zone)
    restriction = TimeRestriction(pendulum.instance(moment_of(start_ms)), None, catchup=True)
    last: AirflowInterval | None = None
    for _ in range(count):
        run = timetable.next_dagrun_info(last_automated_data_interval=last, restriction=restriction)
        assert run is not None
        last = run.data_interval
        yield DataInterval(*(round(moment.timestamp() * 1000) for moment in (last.start, last.end)))


def runs_until(last_start_ms: int, cron: str, zone: str, start_ms: int) -> list[DataInterval]:
    return list(takewhile(lambda run: run.start_ms <= last_start_ms, scheduled(cron, zone, start_ms, 10_000)))


def follow_each_other(cron: str, zone: str, start_ms: int, end_ms: int) -> bool:
    try:
        runs = runs_until(end_ms, cron, zone, start_ms)
    except ValueError:
        return False
    return all(before.end_ms == after.start_ms for before, after in pairwise(runs))


def schedule_of(cron: str, zone: str) -> Schedule:
    return Schedule(cron=cron, time_zone=zone, start=moment_of(FIRST_MS), end=moment_of(LAST_MS))


@given(crons, st.sampled_from(ZONES), st.integers(FIRST_MS // 60_000, LAST_MS // 60_000))
@example("30 2 * * *", "Europe/Berlin", epoch_ms(datetime(2026, 3, 28, tzinfo=UTC)) // 60_000)
@example("30 2 * * *", "Europe/Berlin", epoch_ms(datetime(2026, 10, 24, tzinfo=UTC)) // 60_000)
@settings(max_examples=examples(150), deadline=None)
def test_intervals_equal_those_of_airflow_from_any_start(cron: str, zone: str, minute: int) -> None:
    schedule = schedule_of(cron, zone)
    if clock_change_problem(schedule) is None and schedule.end is not None:
        expected = list(scheduled(cron, zone, minute * 60_000, COUNT))
        first_ones = first_intervals(schedule, minute * 60_000, COUNT + 1)
        if first_ones[0].start_ms == minute * 60_000 != expected[0].start_ms:
            first_ones = first_ones[1:]  # Its end is a time that the clock leaves out.
        assert first_ones[0] == expected[0]
        assert [each for each in first_ones[:COUNT] if each.end_ms < LAST_MS] == [
            each for each in expected if each.end_ms < LAST_MS
        ]


@given(crons, st.sampled_from(ZONES))
@example("0 * 29 3 *", "America/New_York")
@settings(max_examples=examples(100), deadline=None)
def test_intervals_around_each_change_of_the_clock_equal_those_of_airflow(cron: str, zone: str) -> None:
    """A cron is refused if, and only if, Airflow's own intervals do not follow each other."""
    schedule = schedule_of(cron, zone)
    refused = clock_change_problem(schedule) is not None
    broken = False
    for _, around in changes_of(schedule):
        if refused:
            broken |= not follow_each_other(cron, zone, around[0].start_ms - DAY_MS, around[-1].end_ms)
        else:
            start_ms = Ticks(cron, schedule.zone).last_before(around[0].start_ms)
            runs = runs_until(around[-1].start_ms, cron, zone, start_ms)
            assert runs[-len(around) :] == around
    assert broken == refused


@pytest.mark.parametrize(
    ("zone", "cron"),
    cases(
        ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"],
        ["0 0 * * *", "30 2 * * *", "*/30 * * * *", "0 */2 * * *"],
    ),
)
def test_intervals_of_a_whole_year_equal_those_of_airflow(cron: str, zone: str) -> None:
    schedule = schedule_of(cron, zone)
    assert clock_change_problem(schedule) is None
    count = 340 if cron != "*/30 * * * *" else 1000
    for month in (1, 3, 10):
        start_ms = epoch_ms(datetime(2026, month, 10, tzinfo=UTC))
        assert first_intervals(schedule, start_ms, count) == list(scheduled(cron, zone, start_ms, count))
