"""Conditions of sources that compare a bound of the interval with a column: as the moment that it is, or not at all."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from statelib.definition.pipeline import Pipeline
from statelib.definition.source.intervals import first_intervals
from statelib.errors import InvalidRequestError
from statelib.model.moments import epoch_ms
from statelib.spark.events.source import SourcePlaces, read_interval
from tests.support.worlds import new_deployment

Read = Callable[..., list[int]]
BOUNDS = "{column} >= '{{start}}' AND {column} < '{{end}}'"
DATES = "{column} >= '{{start:%Y-%m-%d}}' AND {column} < '{{end:%Y-%m-%d}}'"
TEXTS = "{column} >= '{{start:%Y-%m-%dT%H:%M:%S}}' AND {column} < '{{end:%Y-%m-%dT%H:%M:%S}}'"
COUNT = {"n": {"kind": "value", "value": {"agg": "count"}}}
START = datetime(2025, 12, 31, 12, tzinfo=UTC)


@pytest.fixture
def read(spark: SparkSession, tmp_path: Path) -> Read:
    """Return a function of a condition, the zones of schedule and source, and the cron. It returns which of the hours
    20 to 27 after 2026-01-01 00:00 UTC the interval has that begins on this day. Each hour has an event, with its time
    as an instant, as a time without a zone, as a text and as a date."""
    text = "date_format(at, \"yyyy-MM-dd'T'HH:mm:ss\") AS text"
    spark.range(20, 28).selectExpr(
        "id AS hour", "timestamp_seconds(unix_date(DATE '2026-01-01') * 86400 + id * 3600) AS at"
    ).selectExpr(
        "*", "CAST(at AS timestamp_ntz) AS local", "DATE(at) AS day", text, "struct(at, string(at) AS text) AS event"
    ).createOrReplaceTempView("hours")  # fmt: skip

    def hours(where: str, schedule: str = "UTC", source: str | None = None, cron: str = "@daily") -> list[int]:
        pipeline = Pipeline.model_validate({
            "name": "orders", "key": "hour", "backend": "heap", "states": COUNT,
            "source": {"table": "hours", "where": where, "columns": {"hour": "long"}, "time_zone": source},
            "schedule": {"cron": cron, "start": START, "time_zone": schedule},
        })  # fmt: skip
        assert pipeline.schedule is not None
        (interval,) = first_intervals(pipeline.schedule, epoch_ms(START), 1)
        places = SourcePlaces.of(new_deployment(tmp_path, tmp_path, tmp_path))
        return sorted(read_interval(spark, pipeline, places, interval).toArrow()["hour"].to_pylist())

    return hours


def refused(read: Read, *arguments: str, **more: str) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        read(*arguments, **more)
    assert caught.value.kind == "bad-expression"
    return caught.value


@pytest.mark.parametrize("column", ["text", "`TEXT`", "event.text"])
def test_a_text_is_not_compared_with_a_bound(read: Read, column: str) -> None:
    """In the order of letters, a text with a T is after every hour of its day, and one without an offset before it."""
    error = refused(read, BOUNDS.format(column=column))
    assert f"source.where: {column} is a text, which is compared with {{start}} and {{end}} letter by" in error.message
    assert f"CAST({column} AS TIMESTAMP) >= '{{start}}'" in error.hint


def test_texts_are_compared_as_times_or_in_their_own_form(read: Read) -> None:
    conditions = [BOUNDS.format(column="CAST(text AS TIMESTAMP)"), TEXTS.format(column="text")]
    conditions.append(BOUNDS.format(column="event.at"))
    assert [read(where) for where in conditions] == [[20, 21, 22, 23]] * 3


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Europe/London"])
def test_an_instant_is_not_compared_with_a_local_date_that_is_a_later_moment_in_utc(read: Read, zone: str) -> None:
    """At midnight in Berlin, the day of UTC still has an hour or two to come. In London this begins in summer."""
    error = refused(read, DATES.format(column="at"), zone)
    assert (
        "source.where: at is compared with '{start:%Y-%m-%d}', which is a time in UTC here and later" in error.message
    )
    assert "write '{start}' and '{end}', which have their offsets" in error.hint
    assert read(BOUNDS.format(column="at"), zone)[-1] == (22 if zone == "Europe/Berlin" else 23)


@pytest.mark.parametrize(
    "where",
    [
        "to_date(at) = {start}", "CAST(at AS date) = {start}", "date_format(at, 'yyyy-MM-dd') = {start}",
        "date(at) >= {start} AND date(at) < {end}", "(at) >= {start} AND (at) < {end}", "{start} <= at AND {end} > at",
        "at >= CAST({start} AS timestamp) AND at < CAST({end} AS timestamp)", "at >= {start}::timestamp AND at < {end}",
        "at >= to_timestamp({start}) AND at < to_timestamp({end})", "hours.at >= {start} AND hours.at < {end}",
        "date(at) >= '{{start}}' AND date(at) < '{{end}}'",
    ],
)  # fmt: skip
def test_a_local_date_is_recognised_in_other_forms_of_comparisons(read: Read, where: str) -> None:
    texts = {name: f"'{{{name}:%Y-%m-%d}}'" for name in ("start", "end")}
    error = refused(read, where.format(**texts), "Europe/Berlin")
    assert "at is compared with '{start" in error.message
    assert "at >= '{start}' AND" in error.hint
    assert read(where.format(**texts)) == [20, 21, 22, 23], "in UTC"


@pytest.mark.parametrize(
    ("zone", "cron"), [("UTC", "@daily"), ("America/New_York", "@daily"), ("Europe/Berlin", "0 6 * * *")]
)
def test_a_date_whose_day_is_over_may_be_compared(read: Read, zone: str, cron: str) -> None:
    assert read(DATES.format(column="at"), zone, cron=cron) == [20, 21, 22, 23]


def test_a_local_time_is_not_compared_with_a_date_whose_day_is_not_over_there(read: Read) -> None:
    where = DATES.format(column="local")
    error = refused(read, where, "UTC", "America/New_York")
    assert "local is compared with '{start:%Y-%m-%d}', which is a time in America/New_York here" in error.message
    assert "to_utc_timestamp(local, 'America/New_York') >= '{start}'" in error.hint
    for cron, source in (("0 6 * * *", "America/New_York"), ("@daily", "UTC")):
        assert read(where, "UTC", source, cron) == [20, 21, 22, 23]
    assert read(where, "America/New_York", "America/New_York") == [20, 21, 22, 23]


@pytest.mark.parametrize(("zone", "cron"), [("America/New_York", "@daily"), ("UTC", "0 6 * * *")])
def test_a_date_is_not_compared_with_an_instant_after_its_midnight(read: Read, zone: str, cron: str) -> None:
    """In New York, the day begins hours after the midnight in UTC that Spark takes for the date."""
    instants = "day >= TIMESTAMP '{start}' AND day < TIMESTAMP '{end}'"
    error = refused(read, instants, zone, cron=cron)
    assert "source.where: day is a date, whose midnight in UTC is compared with TIMESTAMP '{start}'" in error.message
    assert "as in day >= '{start}' AND day < '{end}'" in error.hint
    assert read(BOUNDS.format(column="day"), zone, cron=cron) == [20, 21, 22, 23]
    for schedule in ("UTC", "Europe/Berlin"):
        assert read(instants, schedule) == [20, 21, 22, 23]


def test_an_interval_begins_where_the_last_one_ended(read: Read) -> None:
    """Midnight in UTC is five hours before the one in New York, which the interval before has applied until its end."""
    mixed = "{column} >= '{{start:%Y-%m-%d}}' AND {column} < '{{end}}'"
    error = refused(read, mixed.format(column="at"), "America/New_York")
    assert "at is compared with '{start:%Y-%m-%d}' and '{end}': an interval does not begin where" in error.message
    assert "at >= '{start}' AND at < '{end}'" in error.hint
    assert read(mixed.format(column="day"), "America/New_York") == [20, 21, 22, 23]
    assert read(mixed.format(column="local"), "America/New_York") == [20, 21, 22, 23]
    narrower = f"{BOUNDS.format(column='at')} AND at >= '{{start:%Y-%m-%d}}'"
    assert read(narrower, "America/New_York")[0] == 20
