"""Stop with savepoint, and drain: the same job, stopped by a real Flink and by statelib, leaves the same state."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from statelib.flows.checkpoint.steps import begin, register
from statelib.flows.savepoint.steps import begin_savepoint, stop_mode
from statelib.formats.metadata.operator_id import operator_id
from statelib.model.checkpoint import DataInterval
from statelib.model.types import LONG
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from tests.interop.flink_kit import NoFlink, flink
from tests.support.extent import cases
from tests.support.worlds import new_deployment, publish_here

EVENTS, KEYS, HOUR = 600, 7, 3_600_000
START_MS = 1_700_000_000_000 // HOUR * HOUR
FAR_MS = 9_000_000_000_000
PIPELINE = """\
name: ending
source: {path: "{data}/{start}-{end}", columns: {k: long, n: long, t: instant}}
key: [k]
states:
  sums: {kind: reducing, value: {agg: sum, of: n}, window: {time: t, tumbling: 1h, allowed_lateness: 6h, retain: 0s}}
  waking:
    kind: value
    function: tests.interop.test_flink_stops:update
    on_timer: tests.interop.test_flink_stops:on_timer
    fields: {fired: long}
backend: rocksdb
parallelism: 2
checkpoint: {strategy: incremental}
"""


def update(events: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Set timers far in the future, in both time domains, one for each number."""
    moments = pa.array(events["n"].to_numpy() + FAR_MS).cast(pa.timestamp("ms", "UTC"))
    return state.slice(0, 0), pa.table({"k": events["k"], "event_time": moments, "processing_time": moments})


def on_timer(timers: pa.Table, state: pa.Table) -> pa.Table:
    """Count the timers that fired: one for each row."""
    fired = state["fired"].fill_null(0).to_numpy() + 1
    return state.set_column(1, "fired", pa.array(fired))


def by_key(checkpoint: Checkpoint, state: str) -> dict[int, list[object]]:
    """Return the values of a state, or the times of its timers, by key."""
    table = checkpoint.to_arrow(state)
    values_read: dict[int, list[object]] = {}
    column = "timestamp" if "timestamp" in table.column_names else "value"
    values = table[column].cast(pa.int64()) if column == "timestamp" else table[column]
    for key, value in zip(table["key"].to_pylist(), values.to_pylist(), strict=True):
        values_read.setdefault(key, []).append(value["fired"] if isinstance(value, dict) else value)
    return {key: sorted(values, key=str) for key, values in values_read.items()}


def stopped_by_statelib(root: Path, how: str) -> Checkpoint:
    (root / "pipelines").mkdir()
    (root / "pipelines" / "ending.yaml").write_text(PIPELINE)
    deployment = new_deployment(root, root, root / "pipelines")
    numbers = np.arange(EVENTS)
    times = pa.array(START_MS + numbers).cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("ns", "UTC"))
    events = pa.table({"k": numbers % KEYS, "n": numbers, "t": times})
    pipeline = deployment.pipeline("ending")
    first = begin(deployment, pipeline, DataInterval(START_MS, START_MS + EVENTS), "test").checkpoint_id
    publish_here(deployment, pipeline, first, events)
    register(deployment, pipeline, first)
    begun = begin_savepoint(
        deployment, pipeline, format="canonical", target=None, note="", owner="test", key="k", stop=stop_mode(how)
    )
    publish_here(deployment, pipeline, begun.checkpoint_id)
    return open_checkpoint(register(deployment, pipeline, begun.checkpoint_id).directory)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("version", "how"), cases(["1.20.5", "2.3.0"], ["suspend", "drain"]))
def test_flink_and_statelib_leave_the_same_windows_timers_and_values(version: str, how: str, tmp_path: Path) -> None:
    (theirs_at := tmp_path / "flink").mkdir()
    try:
        written = flink(version).log_changes(theirs_at, {}, [EVENTS], job="ending", stop=how)
    except NoFlink as reason:
        pytest.skip(str(reason))
    ours = stopped_by_statelib(tmp_path, how)

    def theirs(uid: str, state: str) -> dict[int, list[object]]:
        return by_key(open_checkpoint(str(written[-1]), key_type=LONG).select(operator_id(uid).hex()), state)

    everything = {key: [sum(range(key, EVENTS, KEYS))] for key in range(KEYS)}
    sums = everything if how == "suspend" else {}
    assert by_key(ours, "sums") == theirs("sums", "window-contents") == sums
    timers = theirs("waking", "_timer_state/event_user-timers")
    assert by_key(ours, "_timer_state/event_waking") == timers
    assert bool(timers) == (how == "suspend")
    waiting = {key: [FAR_MS + n for n in range(key, EVENTS, KEYS)] for key in range(KEYS)}
    assert by_key(ours, "_timer_state/processing_waking") == theirs("waking", "_timer_state/processing_user-timers")
    assert theirs("waking", "_timer_state/processing_user-timers") == waiting
    fired = {} if how == "suspend" else {key: [len(range(key, EVENTS, KEYS))] for key in range(KEYS)}
    assert by_key(ours, "waking") == theirs("waking", "fired") == fired
