"""A function that uses everything at once: state that expires, timers, and state of its subtask."""

import pyarrow as pa
import pyarrow.compute as pc

from statelib.backends.operator.state import OperatorStateBackend

WAKE = pa.scalar(60 * 3_600_000, pa.duration("ms"))


def update(events: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Count the events of a user, and set a timer 60 hours after each."""
    result = events.group_by("user").aggregate([("t", "count")])
    new = result["t_count"].take(pc.index_in(state["user"], value_set=result["user"].combine_chunks()))
    rows = state.set_column(state.column_names.index("seen"), "seen", pc.add(pc.fill_null(state["seen"], 0), new))
    wake = pc.add(events["t"].cast(pa.timestamp("ms", "UTC")), WAKE)
    return rows, pa.table({"user": events["user"], "event_time": wake})


def on_timer(timers: pa.Table, state: pa.Table, operator: OperatorStateBackend) -> pa.Table:
    """Record the users whose state has expired by then."""
    gone = state.filter(pc.is_null(state["seen"]))
    operator.list_state("gone").add_all(gone["user"].to_pylist())
    return state.slice(0, 0)
