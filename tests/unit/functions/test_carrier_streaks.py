import pyarrow as pa
import pytest
from statelib_jobs.functions.carrier_streaks import update

STATE = pa.schema(
    [
        ("carrier", pa.string()),
        *((name, pa.int64()) for name in ("flights", "on_time", "current_streak", "longest_streak")),
        ("last_flight", pa.timestamp("ns", "UTC")),
    ]
)


def events(*rows: tuple[str, int, int, float | None]) -> pa.Table:
    carriers, hours, flights, delays = zip(*rows, strict=True)
    return pa.table(
        {
            "carrier": list(carriers),
            "flight": list(flights),
            "arr_delay": pa.array(delays, pa.float64()),
            "time_hour": pa.array(hours, pa.int64()).cast(pa.timestamp("ns", "UTC")),
        }
    )


def state(*rows: tuple[object, ...]) -> pa.Table:
    columns = zip(*rows, strict=True)
    arrays = [
        pa.array(list(c), pa.int64() if f.name == "last_flight" else f.type).cast(f.type)
        for c, f in zip(columns, STATE, strict=True)
    ]
    return pa.table(arrays, schema=STATE)


def new(carrier: str) -> tuple[object, ...]:
    return (carrier, None, None, None, None, None)


def results(table: pa.Table) -> dict[str, tuple[int, ...]]:
    table = table.select(STATE.names).cast(STATE)
    columns = [table[n].cast(pa.int64()) if n == "last_flight" else table[n] for n in STATE.names]
    return {row[0]: row[1:] for row in zip(*(c.to_pylist() for c in columns), strict=True)}


def test_fifteen_minutes_are_on_time_and_more_are_not():
    flown = events(("AA", 1, 1, 15.0), ("AA", 2, 1, -3.0), ("AA", 3, 1, 15.5), ("AA", 4, 1, 0.0))
    assert results(update(flown, state(new("AA")))) == {"AA": (4, 3, 1, 2, 4)}


def test_a_cancelled_flight_ends_a_streak():
    assert results(update(events(("AA", 1, 1, 0.0), ("AA", 2, 1, None)), state(new("AA")))) == {"AA": (2, 1, 0, 1, 2)}


def test_a_streak_continues_from_the_state_until_a_late_flight():
    before = state(("AA", 10, 8, 4, 6, 5), ("UA", 10, 8, 4, 6, 5))
    flown = events(("AA", 8, 1, 0.0), ("AA", 9, 1, 0.0), ("AA", 10, 1, 0.0), ("UA", 8, 1, 0.0), ("UA", 9, 1, 99.0))
    assert results(update(flown, before)) == {"AA": (13, 11, 7, 7, 10), "UA": (12, 9, 0, 6, 9)}


def test_a_streak_after_a_late_flight_does_not_include_the_state():
    flown = events(("AA", 8, 1, 99.0), ("AA", 9, 1, 0.0))
    assert results(update(flown, state(("AA", 10, 8, 4, 6, 5)))) == {"AA": (12, 9, 1, 6, 9)}


def test_flights_in_one_hour_follow_their_numbers():
    flown = events(("AA", 1, 30, 0.0), ("AA", 1, 10, 0.0), ("AA", 1, 20, 99.0))
    assert results(update(flown, state(new("AA"))))["AA"][2:4] == (1, 1)


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (2, 4, 0, 3, 1)])
def test_the_order_of_delivery_does_not_matter(order):
    rows = [("AA", 1, 1, 0.0), ("UA", 1, 1, 99.0), ("AA", 2, 1, 99.0), ("UA", 1, 1, 0.0), ("AA", 3, 1, 0.0)]
    result = results(update(events(*(rows[i] for i in order)), state(new("UA"), new("AA"))))
    # UA's two flights differ only in their delay: the late one counts first.
    assert result == {"AA": (3, 2, 1, 1, 3), "UA": (2, 1, 1, 1, 1)}


def test_the_last_flight_never_moves_back():
    assert results(update(events(("AA", 3, 1, 0.0)), state(("AA", 1, 1, 1, 1, 7))))["AA"][-1] == 7
