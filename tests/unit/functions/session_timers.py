"""A small example of a function with timers: visits that end after a quiet hour. Used by test_user_timers."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LOG: list[tuple[str, str, int]] = []
"""(key, time domain, epoch ms) of every timer that fired, in that order."""
QUIET_MS = 3_600_000


def update(events: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Extend the visit of each key, and set a timer one hour after each event."""
    last = events.group_by("k").aggregate([("t", "max"), ("t", "count")])
    at = pc.index_in(state["k"], value_set=last["k"].combine_chunks())
    seen, count = last["t_max"].take(at), last["t_count"].take(at)
    rows = pa.table(
        {
            "k": state["k"],
            "events": pc.add(pc.fill_null(state["events"], 0), count),
            "last": pc.if_else(pc.fill_null(pc.greater(state["last"], seen), False), state["last"], seen),
            "visits": state["visits"],
        }
    )
    wake = pc.add(events["t"], pa.scalar(QUIET_MS, pa.duration("ms")))
    return rows, pa.table({"k": events["k"], "event_time": wake})


def update_without_timers(events: pa.Table, state: pa.Table) -> pa.Table:
    """Extend the visit of each key."""
    return update(events, state)[0]


def on_timer(timers: pa.Table, state: pa.Table) -> pa.Table:
    """End a visit if no event came in the hour before the timer."""
    LOG.extend(zip(timers["k"].to_pylist(), timers["domain"].to_pylist(), moments(timers["timestamp"]), strict=True))
    assert timers["k"].to_pylist() == state["k"].to_pylist()
    ends = pc.add(state["last"].cast(pa.timestamp("ms", "UTC")), pa.scalar(QUIET_MS, pa.duration("ms")))
    over = pc.and_(pc.greater(state["events"], 0), pc.equal(timers["timestamp"], ends))
    over = pc.fill_null(over, False)
    return pa.table(
        {
            "k": state["k"],
            "events": pc.if_else(over, 0, state["events"]),
            "last": state["last"],
            "visits": pc.add(pc.fill_null(state["visits"], 0), over.cast(pa.int64())),
        }
    )


def both_update(events: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Set the timer that each event describes: ``n`` is the time, ``u`` the time domain."""
    event = pc.if_else(pc.equal(events["u"], "event_time"), events["n"], None).cast(pa.timestamp("ms", "UTC"))
    clock = pc.if_else(pc.equal(events["u"], "event_time"), None, events["n"]).cast(pa.timestamp("ms", "UTC"))
    return state.slice(0, 0), pa.table({"k": events["k"], "event_time": event, "processing_time": clock})


def both_on_timer(timers: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Count the timers, and set an event-time timer 10 ms after each timer of processing time."""
    LOG.extend(zip(timers["k"].to_pylist(), timers["domain"].to_pylist(), moments(timers["timestamp"]), strict=True))
    rows = state.set_column(1, "fired", pc.add(pc.fill_null(state["fired"], 0), 1))
    clock = timers.filter(pc.equal(timers["domain"], "processing_time"))
    later = pc.add(clock["timestamp"], pa.scalar(10, pa.duration("ms")))
    return rows, pa.table({"k": clock["k"], "event_time": later})


def forever(timers: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Set the timer that has fired again."""
    return state, pa.table({"k": timers["k"], "event_time": timers["timestamp"]})


def moments(column: pa.ChunkedArray) -> list[int]:
    return [int(ms) for ms in np.asarray(column.cast(pa.int64()))]
