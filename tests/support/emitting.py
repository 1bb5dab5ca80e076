"""User functions that emit rows, the pipeline file that calls them, and the rows that they emit for some events."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

COUNTS = """\
name: counts
source: {path: "{data}/{start}-{end}", columns: {k: long, n: long, at: instant}}
key: [k]
states:
  open:
    kind: value
    fields: {total: long}
    function: "tests.support.emitting:update"
    on_timer: "tests.support.emitting:on_timer"
outputs:
  alerts: {columns: {k: long, n: long, text: string, price: "decimal(18, 2)"}}
  closed: {columns: {k: long, total: long}}
backend: BACKEND
parallelism: 2
max_parallelism: 8
checkpoint: {strategy: STRATEGY, inline_threshold_bytes: 0, retain: {count: 1}}
"""
"""A pipeline that emits an alert per event with a number of 10 or more. The total of a key is closed, and emitted, an
hour after its first event."""
LIMIT = 10
HOUR_MS = 3_600_000


def update(events: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table, dict[str, pa.Table]]:
    sums = state.join(events.group_by("k").aggregate([("n", "sum"), ("at", "min")]), "k")
    total = pc.add(pc.coalesce(sums["total"], pa.scalar(0, pa.int64())), sums["n_sum"])
    first = sums["at_min"].cast(pa.timestamp("ms", "UTC"))
    due = pc.if_else(pc.is_null(sums["total"]), first.cast(pa.int64()), None)
    timers = pa.table({"k": sums["k"], "event_time": pc.add(due, HOUR_MS).cast(pa.timestamp("ms", "UTC"))})
    large = events.filter(pc.greater_equal(events["n"], LIMIT))
    texts = pc.binary_join_element_wise("n is", large["n"].cast(pa.string()), " ")
    price = large["n"].cast(pa.decimal128(21, 2))
    alerts = pa.table({"text": texts, "price": price, "k": large["k"], "n": large["n"]})
    return pa.table({"k": sums["k"], "total": total}), timers, {"alerts": alerts}


def on_timer(timers: pa.Table, state: pa.Table) -> tuple[pa.Table, None, dict[str, pa.Table]]:
    removed = pa.table({"k": state["k"], "total": pa.nulls(len(state), pa.int64())})
    return removed, None, {"closed": state}


def events_of(rows: list[tuple[int, int]], at_ms: int) -> pa.Table:
    """Return events with a key and a number, all at one moment."""
    return pa.table(
        {
            "k": pa.array([k for k, _ in rows], pa.int64()),
            "n": pa.array([n for _, n in rows], pa.int64()),
            "at": pa.array([at_ms] * len(rows), pa.timestamp("ms", "UTC")),
        }
    )


def expected_alerts(rows: list[tuple[int, int]]) -> list[tuple[Any, ...]]:
    """Return the alerts of events, sorted."""
    return sorted((k, n, f"n is {n}", f"{n}.00") for k, n in rows if n >= LIMIT)


def found_alerts(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return alerts in the form of :func:`expected_alerts`."""
    return sorted((row["k"], row["n"], row["text"], str(row["price"])) for row in table.to_pylist())
