from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from statelib.definition.pipeline import load_pipeline
from statelib.testing.local_run import LocalRun

SHIPPED = Path(__file__).parents[3] / "dags" / "pipelines"
HOUR_NS = 3_600_000_000_000


def flights(rows: int, seed: int) -> pa.Table:
    """Return random flights, many of them in the same hour; some are cancelled, some have no aircraft."""
    rng = np.random.default_rng(seed)
    cancelled = rng.random(rows) < 0.1

    def minutes(low: int, high: int) -> pa.Array:
        return pa.array(rng.integers(low, high, rows).astype(float), mask=cancelled)

    return pa.table(
        {
            "tailnum": pa.array(rng.choice(["N1", "N2", "N3"], rows), mask=cancelled & (rng.random(rows) < 0.5)),
            "carrier": rng.choice(["AA", "UA"], rows),
            "origin": rng.choice(["EWR", "JFK"], rows),
            "dest": rng.choice(["SFO", "LAX", "BOS"], rows),
            "flight": rng.integers(1, 5, rows),
            "distance": rng.integers(100, 3000, rows),
            "dep_delay": minutes(-20, 200),
            "arr_delay": minutes(-60, 300),
            "air_time": minutes(30, 400),
            "time_hour": pa.array(rng.integers(0, 24, rows) * HOUR_NS).cast(pa.timestamp("ns", "UTC")),
        }
    )


@pytest.mark.parametrize("name", ["aircraft_activity", "route_delays", "carrier_streaks"])
def test_the_state_does_not_depend_on_the_order_of_delivery(name):
    pipeline = load_pipeline(SHIPPED / f"{name}.yaml")
    one, other = LocalRun(pipeline), LocalRun(pipeline)
    for day in range(3):
        events = flights(200, day)
        shuffled = events.take(pa.array(np.random.default_rng(day).permutation(len(events))))
        assert one.apply(events) == other.apply(shuffled) == (events["tailnum"].null_count if "air" in name else 0)
    for a, b in zip(one.backend.statistics(), other.backend.statistics(), strict=True):
        assert a.total_entries > 0
        assert a.same_content(b)


def test_aircraft_activity_aggregates_a_few_flights():
    run = LocalRun(load_pipeline(SHIPPED / "aircraft_activity.yaml"))
    events = flights(4, 0)
    for name, column in {
        "tailnum": pa.array(["N1", "N1", "N1", None]),
        "dest": pa.array(["SFO", "BOS", "SFO", "LAX"]),
        "flight": pa.array([7, 30, 4, 1]),
        "distance": pa.array([100, 20, 100, 5]),
        "dep_delay": pa.array([10.0, None, -3.0, 1.0]),
        "time_hour": pa.array([0, HOUR_NS, HOUR_NS, 0]).cast(pa.timestamp("ns", "UTC")),
    }.items():
        events = events.set_column(events.column_names.index(name), name, column)
    assert run.apply(events) == 1
    (activity,) = run.state("activity").values()
    assert (activity["flights"], activity["distance"], activity["dep_delay"]) == (3, 220, 7.0)
    assert (activity["last_dest"]["value"], activity["last_dest"]["by_flight"]) == ("BOS", 30)
    assert activity["last_seen"] > activity["first_seen"]
    assert run.state("flights_per_dest") == {"N1": {"SFO": 2, "BOS": 1}}


def test_route_delays_count_every_arrival_once():
    run = LocalRun(load_pipeline(SHIPPED / "route_delays.yaml"))
    events = flights(300, 1)
    run.apply(events)
    histograms, delays = run.state("arr_delay_histogram"), run.state("delays")
    assert sum(map(sum, histograms.values())) == 300 - events["arr_delay"].null_count
    assert {k: sum(h) for k, h in histograms.items()} == {k: d["arr_delay"]["count"] for k, d in delays.items()}
    assert set(delays) == set(zip(*(events[c].to_pylist() for c in ("origin", "dest", "carrier")), strict=True))
