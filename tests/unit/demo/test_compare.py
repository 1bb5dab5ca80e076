"""The comparison of the demonstration must be able to fail, otherwise its verdict has no value."""

from datetime import UTC, datetime

import polars as pl
import pytest

from demo.compare import aircraft_expected, destinations_expected, difference, routes_expected

EXPECTED = pl.DataFrame({"key": ["a", "b", "c"], "count": [1, 2, 3], "delay": [0.5, None, -1.0]})


def test_equal_frames_in_another_order_do_not_differ() -> None:
    result = difference("x", EXPECTED, EXPECTED.sort("key", descending=True).select("delay", "count", "key"), ["key"])
    assert (result.entries, result.different, result.examples) == (3, 0, ())


@pytest.mark.parametrize(
    ("actual", "example"),
    [
        (EXPECTED.with_columns(count=pl.Series([1, 2, 4])), "c: count is 4, expected 3"),
        (EXPECTED.with_columns(delay=pl.Series([0.5, 0.0, -1.0])), "b: delay is 0.0, expected None"),
        (EXPECTED.with_columns(delay=pl.Series([None, None, -1.0])), "a: delay is None, expected 0.5"),
        (EXPECTED.head(2), "c: only in the direct computation"),
    ],
)
def test_one_wrong_key_is_named(actual: pl.DataFrame, example: str) -> None:
    result = difference("x", EXPECTED, actual, ["key"])
    assert (result.entries, result.different, result.examples) == (3, 1, (example,))


def test_an_additional_key_is_named() -> None:
    more = pl.concat([EXPECTED, pl.DataFrame({"key": ["d"], "count": [None], "delay": [None]}, EXPECTED.schema)])
    result = difference("x", EXPECTED, more, ["key"])
    assert (result.entries, result.different, result.examples) == (4, 1, ("d: only in the state",))


def test_a_missing_column_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected columns"):
        difference("x", EXPECTED, EXPECTED.drop("delay"), ["key"])


def flights(*rows: tuple[str | None, str, int, float | None, int]) -> pl.DataFrame:
    """Return flights from rows of (tail number, destination, flight number, delays and air time, hour of
    2013-01-01)."""
    return pl.DataFrame(
        {
            "tailnum": [r[0] for r in rows],
            "origin": ["JFK"] * len(rows),
            "dest": [r[1] for r in rows],
            "carrier": ["AA"] * len(rows),
            "flight": [r[2] for r in rows],
            "distance": [100] * len(rows),
            **{
                name: pl.Series([r[3] for r in rows], dtype=pl.Float64)
                for name in ("dep_delay", "arr_delay", "air_time")
            },
            "time_hour": [datetime(2013, 1, 1, r[4], tzinfo=UTC) for r in rows],
        }
    )


def test_aircraft_without_a_number_are_left_out_and_the_higher_flight_number_wins_ties() -> None:
    seen = flights(
        ("N1", "BOS", 7, 1.0, 9), ("N1", "LAX", 5, None, 9), (None, "SFO", 1, 1.0, 9), ("N2", "SFO", 1, None, 3)
    )
    rows = {row["tailnum"]: row for row in aircraft_expected(seen).iter_rows(named=True)}
    assert set(rows) == {"N1", "N2"}
    assert (rows["N1"]["flights"], rows["N1"]["distance"], rows["N1"]["last_dest"]) == (2, 200, "BOS")
    assert (rows["N1"]["arr_delay"], rows["N2"]["arr_delay"]) == (1.0, None)
    assert destinations_expected(seen).height == 3


def test_a_delay_on_a_bound_counts_in_the_bar_below_and_a_missing_delay_in_none() -> None:
    seen = flights(
        ("N1", "BOS", 1, 15.0, 1), ("N1", "BOS", 1, 15.5, 1), ("N1", "BOS", 1, 241.0, 1), ("N1", "LAX", 1, None, 1)
    )
    rows = {row["dest"]: row for row in routes_expected(seen).iter_rows(named=True)}
    assert [rows["BOS"][f"histogram_{i}"] for i in range(8)] == [0, 0, 1, 1, 0, 0, 0, 1]
    assert [rows["LAX"][f"histogram_{i}"] for i in range(8)] == [None] * 8
    assert (rows["LAX"]["flights"], rows["LAX"]["departed"], rows["LAX"]["dep_delay_count"]) == (1, 0, None)
