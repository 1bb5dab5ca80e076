"""The paths that a data interval reads: one for each interval of the schedule in it. Other data intervals are
refused."""

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from statelib.definition.parts.types import COLUMN_TYPES, type_of
from statelib.definition.pipeline import Pipeline
from statelib.definition.source.intervals import first_intervals
from statelib.definition.source.parts import source_parts
from statelib.definition.source.readiness import ready_rules
from statelib.definition.source.templates import at_interval, names_exactly, units_of, with_variables
from statelib.errors import InvalidRequestError
from statelib.flows.checkpoint.readiness import missing
from statelib.model.checkpoint import DataInterval
from statelib.model.moments import HOUR_MS
from statelib.spark.events.source_types import spark_name
from statelib.storage.source_listing import SourceListing

FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def new_pipeline(path: str, cron: str | None = None) -> Pipeline:
    schedule: dict[str, Any] = {"schedule": {"cron": cron, "start": FIRST}} if cron else {}
    states = {"n": {"kind": "value", "value": {"agg": "count"}}}
    source = {"path": path, "columns": {"k": "string"}}
    return Pipeline.model_validate(
        {"name": "p", "source": source, "key": "k", "states": states, "backend": "heap", **schedule}
    )


def hours(first: float, last: float) -> DataInterval:
    start_ms = int(FIRST.timestamp() * 1000)
    return DataInterval(int(start_ms + first * HOUR_MS), int(start_ms + last * HOUR_MS))


def paths(pipeline: Pipeline, first: float, last: float) -> list[str]:
    return [part.path for part in source_parts(pipeline, "/d", hours(first, last))]


def test_a_wide_interval_reads_every_path_of_the_schedule() -> None:
    daily = new_pipeline("{data}/{start:%Y-%m-%d}", "@daily")
    assert paths(daily, 0, 24) == ["/d/2026-01-01"]
    assert paths(daily, 24, 72) == ["/d/2026-01-02", "/d/2026-01-03"]
    both = new_pipeline("{start:%d}-{end:%d%Y%m}", "@daily")
    assert paths(both, 0, 48) == ["01-02202601", "02-03202601"]
    assert paths(new_pipeline("{end:%Y-%m-%d}", "0 0 * * 1"), 96, 96 + 168) == ["2026-01-12"]


@pytest.mark.parametrize(
    ("path", "cron", "first", "last"),
    [
        pytest.param("{start:%Y-%m-%d}", "@daily", 12, 36, id="between the intervals"),
        pytest.param("{start:%Y-%m-%d}", "@daily", 0, 36, id="ends between them"),
        pytest.param("{start:%Y-%m-%d}", "@daily", 1 / 120, 24, id="begins within the minute of one"),
        pytest.param("{start:%Y-%m-%d}", "0 0 * * 1", 96, 120, id="a Monday of a weekly schedule"),
        pytest.param("{start:%Y-%m-%d}", None, 0, 36, id="a day and a half of daily paths"),
        pytest.param("{start:%Y-%m-%d}", None, 12, 60, id="days that begin at noon"),
        pytest.param("{start:%Y-%m-%d}", None, 0, 1, id="an hour of daily paths"),
        pytest.param("{start}", None, 0, 24, id="begins there, ends nobody knows where"),
        pytest.param("{start:%Y-%m-%d}-{end:%Y-%m-%d}", None, 0, 12, id="the same text for other hours"),
    ],
)
def test_an_interval_that_is_not_of_the_schedule_is_refused(
    path: str, cron: str | None, first: float, last: int
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        paths(new_pipeline(path, cron), first, last)
    assert caught.value.kind == "interval-not-of-schedule"


@pytest.mark.parametrize(
    ("path", "first", "last"),
    [
        ("{start:%Y-%m-%d}", 24, 48), ("{end:%Y-%m-%d}", 24, 48), ("{start:%Y/%m/%d/%H}", 3, 4),
        ("{start:%Y-%m}", 0, 744),
        ("{start:%G-W%V}", 96, 264), ("{start:%Y}", 0, 8760), ("{start}-{end}", 0.0001, 1.5),
        ("{start:%Y-%m-%d}-{end:%Y-%m-%d}", 0, 96), ("{start:%Y%m%dT%H%M}", 1, 1 + 1 / 60),
    ],
)  # fmt: skip
def test_a_path_that_names_the_interval_needs_no_schedule(path: str, first: float, last: float) -> None:
    assert len(paths(new_pipeline(path), first, last)) == 1


@pytest.mark.parametrize(
    ("path", "first", "last", "expected"),
    [
        ("{start:%Y-%m-%d}", 0, 48, ["2026-01-01", "2026-01-02"]),
        ("{end:%Y-%m-%d}", 0, 48, ["2026-01-02", "2026-01-03"]),
        ("{start:%Y-%m}", 0, 1416, ["2026-01", "2026-02"]),
        ("{start:%Y-%jT%H}", 23, 26, ["2026-001T23", "2026-002T00", "2026-002T01"]),
    ],
)
def test_an_interval_without_a_schedule_may_consist_of_several_units_of_the_path(
    path: str, first: float, last: float, expected: list[str]
) -> None:
    assert paths(new_pipeline(path), first, last) == expected


def test_joined_days_of_a_time_zone_are_read_day_by_day() -> None:
    schedule = {"asset": "s3://raw/orders", "time_zone": "Europe/Berlin", "start": "2026-01-01"}
    pipeline = Pipeline.model_validate(new_pipeline("{start:%Y-%m-%d}").model_dump() | {"schedule": schedule})
    spring = [datetime(2026, 3, day, tzinfo=ZoneInfo("Europe/Berlin")) for day in (28, 29, 30, 31)]
    bounds = [int(moment.timestamp() * 1000) for moment in spring]
    parts = source_parts(pipeline, "", DataInterval(bounds[0], bounds[-1]))
    assert [part.path for part in parts] == ["2026-03-28", "2026-03-29", "2026-03-30"]
    assert [part.interval for part in parts] == [DataInterval(*pair) for pair in pairwise(bounds)]


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (datetime(2026, 10, 25, 0, tzinfo=UTC), ["02+0200", "02+0100", "03+0100"]),
        (datetime(2026, 3, 29, 0, tzinfo=UTC), ["01+0100", "03+0200", "04+0200"]),
    ],
)
def test_joined_hours_are_read_hour_by_hour_when_the_clock_changes(first: datetime, expected: list[str]) -> None:
    schedule = {"asset": "s3://raw/orders", "time_zone": "Europe/Berlin", "start": "2026-01-01"}
    pipeline = Pipeline.model_validate(new_pipeline("{start:%Y-%m-%dT%H%z}").model_dump() | {"schedule": schedule})
    first_ms = int(first.timestamp() * 1000)
    parts = source_parts(pipeline, "", DataInterval(first_ms, first_ms + 3 * 3_600_000))
    assert [part.path.partition("T")[2] for part in parts if part.path] == expected


@pytest.mark.parametrize("zone", ["Africa/Cairo", "America/Havana", "Atlantic/Azores"])
def test_a_day_whose_midnight_is_left_out_or_comes_twice_has_a_directory(zone: str) -> None:
    days = [datetime(2026, 1, 1) + timedelta(days=number) for number in range(366)]
    bounds = [int(day.replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000) for day in days]
    for day, *interval in zip(days, bounds, bounds[1:], strict=False):
        assert names_exactly("{start:%Y-%m-%d}", DataInterval(*interval), ZoneInfo(zone)), day
    assert len(units_of("{start:%Y-%m-%d}", DataInterval(bounds[0], bounds[-1]), ZoneInfo(zone))) == 365


@pytest.mark.parametrize(
    ("template", "schedule"),
    [
        ("{start:%m-%d}", "@daily"), ("{start:%j}", "@daily"), ("{start:%d/%H}", "@hourly"), ("{end:%u/%H}", "@hourly"),
        ("{start:%H%M}", "*/5 * * * *"), ("{start:%m-%d}", None),
    ],
)  # fmt: skip
def test_a_path_that_comes_again_in_another_year_is_refused(template: str, schedule: str | None) -> None:
    with pytest.raises(ValidationError, match=r"comes again in a later year.*name the year too, as \{start:%Y-%m-%d\}"):
        new_pipeline(template, schedule)
    new_pipeline(f"{{start:%Y-%m-%d}}/{template}", schedule)


def test_a_path_that_comes_again_after_a_century_is_refused_in_a_wide_interval() -> None:
    monthly = new_pipeline("{start:%y-%m}", "@monthly")
    assert len(paths(monthly, 0, 36_524 * 24)) == 1200
    with pytest.raises(InvalidRequestError, match="is the path of two intervals") as caught:
        paths(monthly, 0, 36_555 * 24)
    assert caught.value.kind == "source-not-bounded"


def test_without_a_schedule_the_path_must_still_depend_on_the_interval() -> None:
    for path in ("{data}/all", "{start:all}"):
        with pytest.raises(ValidationError, match=r"the same events again|have the same path"):
            new_pipeline(path)


FORMATS = ["%Y", "%Y-%m", "%Y-%m-%d", "%Y-%m-%d %H", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S", "%G %V", "", "%Y %j"]
moments = st.datetimes(datetime(1971, 1, 1), datetime(2069, 12, 31)).map(
    lambda moment: moment.replace(tzinfo=UTC, microsecond=0)
)


@given(st.sampled_from(FORMATS), st.sampled_from(FORMATS), moments, st.integers(1, 10**6), st.integers(-(10**6), 10**6))
def test_no_two_intervals_have_the_same_path_if_the_template_names_both_bounds(
    start: str, end: str, first: datetime, length_s: int, shift_s: int
) -> None:
    """This includes intervals with the same start and intervals with the same end."""
    template = f"{{start:{start}}} {{end:{end}}}"
    first_ms = int(first.timestamp() * 1000)
    interval = DataInterval(first_ms, first_ms + length_s * 1000)
    if shift_s > 0 and names_exactly(template, interval):
        later = DataInterval(first_ms - shift_s * 1000, interval.end_ms)
        assert at_interval(template, "", later) != at_interval(template, "", interval)
        shorter = DataInterval(first_ms, interval.end_ms - min(shift_s, length_s - 1) * 1000)
        assert shorter == interval or at_interval(template, "", shorter) != at_interval(template, "", interval)


@given(st.sampled_from(["@daily", "@hourly", "15 3 * * 1,4", "@quarterly", "0 0 29 2 *"]), moments, st.integers(1, 40))
def test_the_parts_of_an_interval_are_consecutive_and_cover_it(cron: str, moment: datetime, count: int) -> None:
    pipeline = new_pipeline("{start:%Y-%m-%d-%H-%M}", cron)
    assert pipeline.schedule is not None
    expected = first_intervals(pipeline.schedule, int(moment.timestamp() * 1000), count)
    parts = source_parts(pipeline, "", DataInterval(expected[0].start_ms, expected[-1].end_ms))
    assert [part.interval for part in parts] == expected
    assert all(before.end_ms == after.start_ms for before, after in pairwise(expected))


def test_a_column_type_has_the_name_that_spark_uses() -> None:
    for name in (*COLUMN_TYPES, "sql<DECIMAL(9, 2)>"):
        assert spark_name(type_of(name.replace("precision, scale", "9, 2")))
    nested = type_of("map<string, list<row<a: long, b: instant>>>")
    assert spark_name(nested) == "map<string,array<struct<a:bigint,b:timestamp>>>"


WHERE = "at >= '{start}' AND at < '{end}'"


def new_table_pipeline(cron: str | None = None, **source: Any) -> Pipeline:
    schedule: dict[str, Any] = {"schedule": {"cron": cron, "start": FIRST}} if cron else {}
    given = {"columns": {"k": "string"}, **source}
    states = {"n": {"kind": "value", "value": {"agg": "count"}}}
    return Pipeline.model_validate(
        {"name": "p", "source": given, "key": "k", "states": states, "backend": "heap", **schedule}
    )


def test_a_table_is_read_in_one_part_per_interval_of_the_schedule() -> None:
    pipeline = new_table_pipeline("@daily", table="lake.orders", where=WHERE)
    parts = source_parts(pipeline, "/d", hours(0, 48))
    assert [(part.path, part.table, part.where) for part in parts] == [
        (None, "lake.orders", f"at >= '2026-01-0{day} 00:00:00+00:00' AND at < '2026-01-0{day + 1} 00:00:00+00:00'")
        for day in (1, 2)
    ]


def test_a_condition_with_both_bounds_needs_no_schedule() -> None:
    pipeline = new_table_pipeline(table="lake.orders", where=WHERE)
    (part,) = source_parts(pipeline, "/d", hours(0.5, 7))
    assert part.where == "at >= '2026-01-01 00:30:00+00:00' AND at < '2026-01-01 07:00:00+00:00'"
    one_day = new_table_pipeline(table="lake.orders", where="day = '{start:%Y-%m-%d}'")
    assert len(source_parts(one_day, "/d", hours(0, 24))) == 1
    with pytest.raises(InvalidRequestError, match=r"source\.table 'lake\.orders' with source\.where \"day = "):
        source_parts(one_day, "/d", hours(0, 36))


def test_a_condition_may_compare_other_columns_with_its_bounds_too() -> None:
    valid = f"{WHERE} AND valid_from <= '{{end}}' AND valid_until > '{{start}}'"
    (part,) = source_parts(new_table_pipeline(table="lake.orders", where=valid), "/d", hours(0, 24))
    assert str(part.where).count("2026-01-02 00:00:00+00:00") == 2


def test_options_are_filled_with_the_interval_and_contain_no_secret() -> None:
    options = {"url": "jdbc:x", "query": "SELECT * FROM o WHERE {start:%Y%j} = d", "password": "{env[SECRET]}", "n": 3}
    pipeline = new_table_pipeline("@daily", format="jdbc", options={**options, "fast": True})
    (part,) = source_parts(pipeline, "/d", hours(0, 24))
    assert dict(part.options) == {
        "url": "jdbc:x", "query": "SELECT * FROM o WHERE 2026001 = d", "password": "{env[SECRET]}", "n": "3",
        "fast": "true",
    }  # fmt: skip
    assert with_variables(dict(part.options)["password"], {"SECRET": "{start}"}) == "{start}"


FOLLOWED = {"format": "delta", "path": "{data}/orders", "incremental": True}


@pytest.mark.parametrize("hours_each", [24, 36, 240])
def test_an_incremental_source_has_one_place_whatever_the_interval(hours_each: int) -> None:
    pipeline = new_table_pipeline(None, **FOLLOWED)
    (part,) = source_parts(pipeline, "/d", hours(0, hours_each))
    assert (part.path, part.interval) == ("/d/orders", hours(0, hours_each))
    (part,) = source_parts(new_table_pipeline("@daily", **FOLLOWED), "/d", hours(0, 240))
    assert part.interval == hours(0, 240)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            {"format": "parquet"},
            "source.incremental: expected format delta with a path, or format iceberg with a table; found parquet",
        ),
        ({"path": "{data}/{start:%Y}"}, "source.path: names {start} or {end}: an incremental source"),
        ({"where": WHERE}, "source.where: names {start} or {end}: an incremental source"),
        ({"ready": {"min_age": "5m"}}, "is for dated files"),
    ],
)
def test_a_source_that_cannot_be_read_by_commits_is_refused(changed: dict[str, object], expected: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(expected)):
        new_table_pipeline("@daily", **FOLLOWED | changed)


@pytest.mark.parametrize(
    ("ready", "expected"),
    [
        ({"min_age": "5m"}, "is for dated files, which this source does not have; use marker or asset"),
        ({"next_interval": True}, "is for dated files"),
        ({"marker": "_SUCCESS"}, "this source has no dated directory: write a path of its own"),
    ],
)
def test_a_table_refuses_rules_about_files(ready: dict[str, object], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        new_table_pipeline("@daily", table="lake.orders", where=WHERE, ready=ready)


def test_a_table_may_wait_for_a_marker_file() -> None:
    ready = {"marker": "{data}/done/{start:%Y-%m-%d}"}
    pipeline = new_table_pipeline("@daily", table="lake.orders", where=WHERE, ready=ready)
    (rule,) = ready_rules(pipeline, "/d", hours(0, 24))
    assert rule.parts[0].path is None
    assert rule.parts[0].marker == "/d/done/2026-01-01"
    assert missing(rule, {"/d/done/2026-01-01": SourceListing(True, 1, 0)}.__getitem__) == []
    assert missing(rule, {"/d/done/2026-01-01": SourceListing(False, 0, None)}.__getitem__) == [
        "/d/done/2026-01-01 does not exist"
    ]


@pytest.mark.parametrize(
    ("path", "marker", "problem"),
    [
        ("{data}/{start:%Y-%m-%d}", "{data}/done/orders", "is the same file for all intervals"),
        ("{data}/{start:%Y-%m-%d}-*.parquet", "_SUCCESS", "is the same file for all intervals"),
        ("{data}/{start:%Y-%m-%d}", "{data}/done/{start:%d}", "repeats"),
        ("{data}/{start:%Y-%m-%d}/*.parquet", "_SUCCESS", None),
        ("{data}/{start:%Y-%m-%d}", "{data}/done/{start:%Y-%m}", None),
    ],
)
def test_a_marker_belongs_to_one_interval_or_to_some_in_sequence(path: str, marker: str, problem: str | None) -> None:
    if problem is None:
        new_table_pipeline("@daily", path=path, ready={"marker": marker})
        return
    for cron in ("@daily", None) if problem != "repeats" else ("@daily",):
        with pytest.raises(ValidationError, match=problem):
            new_table_pipeline(cron, path=path, ready={"marker": marker})
