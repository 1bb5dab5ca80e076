"""An example of a user function: on-time streaks of carriers, a state that depends on the order of events.

A flight is on time if it arrives at most 15 minutes late; a cancelled or diverted one (no arrival
delay) is not. Flights follow each other by scheduled hour and flight number.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

ON_TIME_MINUTES = 15.0

Integers = npt.NDArray[np.int64]


def update(events: pa.Table, state: pa.Table) -> pa.Table:
    """Continue each carrier's streak through the flights of one interval, which may be in any order.

    ``state``: carrier, flights, on_time, current_streak, longest_streak (long), last_flight (instant).
    """
    on_time = pc.fill_null(pc.less_equal(events["arr_delay"], ON_TIME_MINUTES), False)
    owner = pc.index_in(events["carrier"], value_set=state["carrier"].combine_chunks())
    flights = pa.table({"owner": owner, "hour": events["time_hour"], "flight": events["flight"], "on_time": on_time})
    # on_time is the last key: flights alike in all else count the same in either order.
    flights = flights.sort_by([(name, "ascending") for name in flights.column_names])
    owners = flights["owner"].to_numpy().astype(np.int64)
    good = flights["on_time"].to_numpy().astype(bool)
    current = _stored(state, "current_streak")
    streaks = _streaks(owners, good, current)

    carriers = len(state)
    counts = np.bincount(owners, minlength=carriers)
    last = np.cumsum(counts) - 1
    longest = np.maximum.reduceat(streaks, np.cumsum(counts) - counts)
    return pa.table(
        {
            "carrier": state["carrier"],
            "flights": _stored(state, "flights") + counts,
            "on_time": _stored(state, "on_time") + np.bincount(owners, good, minlength=carriers).astype(np.int64),
            "current_streak": streaks[last],
            "longest_streak": np.maximum(_stored(state, "longest_streak"), longest),
            "last_flight": _later(state["last_flight"], flights["hour"].take(pa.array(last))),
        }
    )


def _streaks(owners: Integers, good: npt.NDArray[np.bool_], current: Integers) -> Integers:
    """Return the length of the streak that ends with each flight, rows sorted by owner; 0 for a late flight.

    A streak reaches back to the last late flight of the same owner or, if this interval has none
    before it, into the streak that the state has for the owner (``current``)."""
    rows = np.arange(len(owners), dtype=np.int64)
    begins = np.concatenate(([True], owners[1:] != owners[:-1]))
    begin = np.maximum.accumulate(np.where(begins, rows, 0))
    late = np.maximum.accumulate(np.where(good, -1, rows))
    return np.where(late >= begin, rows - late, rows - begin + 1 + current[owners])


def _stored(state: pa.Table, name: str) -> Integers:
    return np.asarray(pc.fill_null(state[name], 0).to_numpy(), np.int64)


def _later(stored: pa.ChunkedArray, seen: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.coalesce(pc.if_else(pc.fill_null(pc.greater(stored, seen), False), stored, seen), stored)
