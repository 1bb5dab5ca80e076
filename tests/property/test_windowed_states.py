"""Windowed states against a loop over single events, however the intervals are checkpointed, restored and rescaled."""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.definition.pipeline import Pipeline
from statelib.testing.local_run import LocalRun
from statelib.testing.subtask_run import SubtaskRun
from tests.support.extent import examples

MS = pa.timestamp("ms", "UTC")
COLUMNS = pa.schema([("k", pa.string()), ("u", pa.string()), ("n", pa.int64()), ("t", MS)])
HOUR = 3_600_000
Event = tuple[str, str, int, int]
"""An event: key, user key, number, epoch ms."""
Window = tuple[int, int]

TUMBLING = {"time": "t", "tumbling": "1h", "retain": "2h", "allowed_lateness": "30m"}
SLIDING = {"time": "t", "sliding": {"size": "3h", "slide": "2h"}, "retain": "0s"}
STATES: dict[str, dict[str, Any]] = {
    "sums": {"kind": "reducing", "value": {"agg": "sum", "of": "n"}, "window": TUMBLING},
    "rows": {"kind": "value", "fields": {"n": {"agg": "count"}, "most": {"agg": "max", "of": "n"}}, "window": SLIDING},
    "mean": {"kind": "aggregating", "value": {"agg": "avg", "of": "n"}, "window": TUMBLING},
    "list": {"kind": "list", "value": {"agg": "collect", "of": "n"}, "window": SLIDING},
    "per_u": {"kind": "map", "user_key": "u", "value": {"agg": "count"}, "window": TUMBLING},
    "all": {"kind": "reducing", "value": {"agg": "count"}},
}
SPECS = {name: (spec["window"] is TUMBLING) for name, spec in STATES.items() if "window" in spec}


def pipeline(**changes: object) -> Pipeline:
    columns = {"k": "string", "u": "string", "n": "long", "t": "instant"}
    document = {
        "name": "p",
        "source": {"path": "{start}-{end}", "columns": columns},
        "key": "k",
        "states": STATES,
        "backend": "heap",
    }
    return Pipeline.model_validate(document | changes)


def table(events: Iterable[Event]) -> pa.Table:
    columns = list(zip(*events, strict=True)) or [()] * 4
    arrays = [pa.array(list(c), pa.int64() if i > 1 else pa.string()) for i, c in enumerate(columns)]
    return pa.table([*arrays[:3], arrays[3].cast(MS)], schema=COLUMNS)


class Reference:
    """A slow reference: it applies one event after the other to one dict per state, and removes the content of a window
    when its time has come."""

    def __init__(self) -> None:
        self.contents: dict[str, dict[tuple[str, int, int], list[Event]]] = {name: {} for name in SPECS}
        self.events: list[Event] = []
        self.late = dict.fromkeys(SPECS, 0)
        self.watermark = -(2**63)

    def apply(self, events: list[Event], end_ms: int) -> None:
        self.events += events
        for name, tumbling in SPECS.items():
            size, slide, lateness, retain = (1, 1, 0.5, 2) if tumbling else (3, 2, 0, 0)
            for event in events:
                starts = [
                    s * HOUR for s in range(-40, 40) if s % slide == 0 and s * HOUR <= event[3] < (s + size) * HOUR
                ]
                open_ = [s for s in starts if s + size * HOUR - 1 + lateness * HOUR > self.watermark]
                self.late[name] += not open_
                for start in open_:
                    self.contents[name].setdefault((event[0], start, start + size * HOUR), []).append(event)
            for place in list(self.contents[name]):
                if place[2] - 1 + (lateness + retain) * HOUR <= end_ms - 1:
                    del self.contents[name][place]
        self.watermark = end_ms - 1

    def state(self, name: str) -> dict[object, object]:
        return {place: value(name, events) for place, events in self.contents[name].items()}

    def timers(self, name: str) -> set[object]:
        """Return the timers: each window with content has exactly one."""
        wait = 2.5 * HOUR if SPECS[name] else 0
        return {(*place, int(place[2] - 1 + wait)) for place in self.contents[name]}


def value(name: str, events: list[Event]) -> object:
    numbers = [event[2] for event in events]
    if name == "per_u":
        return {u: sum(event[1] == u for event in events) for u in {event[1] for event in events}}
    return {
        "sums": sum(numbers),
        "rows": {"n": len(numbers), "most": max(numbers)},
        "mean": {"sum": float(sum(numbers)), "count": len(numbers)},
        "list": sorted(numbers),
    }[name]


EVENT = st.tuples(
    st.sampled_from("abcdefgh"),
    st.sampled_from("xyz"),
    st.integers(-5, 5),
    st.integers(-8 * 60, 20 * 60).map(lambda m: m * 60_000),
)
INTERVALS = st.lists(st.tuples(st.lists(EVENT, max_size=25), st.integers(0, 5)), min_size=1, max_size=6)


def with_ends(intervals: list[tuple[list[Event], int]]) -> list[tuple[list[Event], int]]:
    """Return consecutive intervals of some hours."""
    end, windows = 0, []
    for events, hours in intervals:
        end += hours * HOUR
        windows.append((events, end))
    return windows


def same(run: LocalRun | SubtaskRun, reference: Reference) -> None:
    for name in SPECS:
        assert run.state(name) == reference.state(name)
        assert set(run.state(f"_timer_state/event_{name}")) == reference.timers(name)
    counts = {k: sum(event[0] == k for event in reference.events) for k in {event[0] for event in reference.events}}
    assert run.state("all") == counts


@settings(deadline=None, max_examples=examples(60))
@given(INTERVALS)
def test_windows_contain_the_result_of_applying_single_events(intervals: list[tuple[list[Event], int]]) -> None:
    run, reference = LocalRun(pipeline()), Reference()
    for events, end_ms in with_ends(intervals):
        run.apply(table(events), end_ms)
        reference.apply(events, end_ms)
        same(run, reference)
    assert {name: run.late[name] for name in SPECS} == reference.late
    assert "all" not in run.late, "only windows can be missed"


STEPS = st.tuples(
    st.sampled_from(["canonical", "full", "incremental"]), st.sampled_from(["heap", "rocksdb"]), st.integers(1, 3)
)


@settings(deadline=None, max_examples=examples(25))
@given(INTERVALS, st.lists(STEPS, min_size=6, max_size=6))
def test_checkpoints_restores_and_rescaling_change_nothing(
    intervals: list[tuple[list[Event], int]], steps: list[tuple[str, str, int]]
) -> None:
    with tempfile.TemporaryDirectory() as root:
        backend, reference = steps[0][1], Reference()
        run = SubtaskRun(pipeline(), Path(root), backend)
        for (events, end_ms), (strategy, next_backend, parallelism) in zip(with_ends(intervals), steps, strict=False):
            run.apply(table(events), end_ms)
            reference.apply(events, end_ms)
            native_heap = backend == "heap" and strategy != "canonical"
            backend = "heap" if native_heap else next_backend  # RocksDB cannot read the heap's own stream.
            run.checkpoint(strategy, backend, parallelism)
            same(run, reference)
        run.close()
        assert {name: run.late.get(name, 0) for name in SPECS} == reference.late


def test_events_at_the_edges_of_a_window_are_counted_or_late() -> None:
    """The window [0h, 1h) with half an hour of lateness accepts events until the watermark is 1h30m - 1ms, and is
    removed at 3h30m - 1ms."""
    states = {"sums": STATES["sums"]}
    half, closing = HOUR // 2, HOUR + HOUR // 2
    run = LocalRun(pipeline(states=states))
    run.apply(table([("a", "x", 1, 0), ("a", "x", 2, HOUR - 1), ("a", "x", 4, HOUR), ("a", "x", 8, -1)]), HOUR)
    assert run.state("sums") == {("a", 0, HOUR): 3, ("a", HOUR, 2 * HOUR): 4, ("a", -HOUR, 0): 8}
    run.apply(table([("a", "x", 16, half)]), closing - 1)
    run.apply(table([("a", "x", 32, half)]), closing)
    assert (run.state("sums")[("a", 0, HOUR)], run.late) == (51, {"sums": 0})
    run.apply(table([("a", "x", 64, half), ("a", "x", 64, HOUR)]), closing)
    assert run.state("sums") == {("a", 0, HOUR): 51, ("a", HOUR, 2 * HOUR): 68, ("a", -HOUR, 0): 8}
    assert run.late == {"sums": 1}
    run.apply(table([]), closing + 2 * HOUR - 1)
    assert ("a", 0, HOUR) in run.state("sums")
    run.apply(table([]), closing + 2 * HOUR)
    assert run.state("sums") == {("a", HOUR, 2 * HOUR): 68}


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
@pytest.mark.parametrize("kind", ["reducing", "map"])
def test_a_longer_lateness_counts_for_windows_that_are_stored(tmp_path: Path, backend: str, kind: str) -> None:
    def lasting(lateness: str, retain: str) -> Pipeline:
        window = {"time": "t", "tumbling": "1h", "allowed_lateness": lateness, "retain": retain}
        key = {"user_key": "u"} if kind == "map" else {}
        return pipeline(states={"sums": {"kind": kind, **key, "value": {"agg": "sum", "of": "n"}, "window": window}})

    def total(number: int) -> object:
        return {"x": number} if kind == "map" else number

    run = SubtaskRun(lasting("0s", "0s"), tmp_path, backend)
    run.apply(table([("a", "x", 1, 0), ("b", "x", 2, 0)]), HOUR // 2)
    run.pipeline = lasting("2h", "1h")
    run.checkpoint("canonical", backend, 1)
    run.apply(table([("a", "x", 4, 1)]), 2 * HOUR)
    run.apply(table([("a", "x", 8, 2)]), 4 * HOUR - 1)
    assert run.state("sums") == {("a", 0, HOUR): total(13), ("b", 0, HOUR): total(2)}
    run.apply(table([]), 4 * HOUR)
    assert run.state("sums") == run.state("_timer_state/event_sums") == {}
    run.close()


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_a_renamed_state_keeps_the_timers_of_its_windows(tmp_path: Path, backend: str) -> None:
    run = SubtaskRun(pipeline(states={"sums": STATES["sums"]}), tmp_path, backend)
    run.apply(table([("a", "x", 1, 0)]), HOUR)
    run.pipeline = pipeline(states={"totals": {**STATES["sums"], "renamed_from": "sums"}})
    run.checkpoint("canonical", backend, 1)
    assert run.state("totals") == {("a", 0, HOUR): 1}
    run.apply(table([]), 4 * HOUR)
    assert run.state("totals") == run.state("_timer_state/event_totals") == {}
    run.close()
