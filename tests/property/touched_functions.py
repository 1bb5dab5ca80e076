"""A user function of the property test of runs that read only touched entries."""

import pyarrow as pa
import pyarrow.compute as pc


def update(events: pa.Table, state: pa.Table) -> pa.Table:
    """Count the events of each user. A user with an event of the price 0 is removed."""
    grouped = events.group_by("user").aggregate([("price", "count"), ("price", "min")])
    at = pc.index_in(state["user"], value_set=grouped["user"].combine_chunks())
    events_now = pc.add(pc.fill_null(state["n"], 0), grouped["price_count"].take(at))
    counted = pc.if_else(pc.equal(grouped["price_min"].take(at), 0), None, events_now)
    return pa.table({"user": state["user"], "n": counted}).filter(pc.is_valid(counted))
