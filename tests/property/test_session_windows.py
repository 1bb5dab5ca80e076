"""Session windows against a loop over single events that merges like Flink, however the intervals are checkpointed,
restored and rescaled."""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.definition.parts.durations import milliseconds
from statelib.definition.pipeline import Pipeline
from statelib.functions.sessions.spans import SessionWindows
from statelib.model.session_state import WINDOW_CONTENTS, session_timers, window_set
from statelib.testing.local_run import LocalRun
from statelib.testing.subtask_run import SubtaskRun
from tests.support.extent import examples

MS = pa.timestamp("ms", "UTC")
MINUTE = 60_000
HOUR = 60 * MINUTE
Event = tuple[str, int, int]
"""An event: key, number, epoch ms."""

PLAIN = {"time": "t", "session": "10m", "retain": "0s"}
LONG = {"time": "t", "session": "15m", "allowed_lateness": "1h", "retain": "30h"}
LATE = {"time": "t", "session": "25m", "allowed_lateness": "40m", "retain": "2h"}
STATES: dict[str, dict[str, Any]] = {
    WINDOW_CONTENTS: {"kind": "reducing", "value": {"agg": "sum", "of": "n"}, "window": PLAIN},
    "rows": {
        "kind": "value",
        "fields": {"n": {"agg": "count"}, "ends": {"agg": "last", "of": "n", "by": ["t", "n"]}},
        "window": LATE,
    },
    "mean": {"kind": "aggregating", "value": {"agg": "avg", "of": "n"}, "window": LATE},
    "list": {"kind": "list", "value": {"agg": "collect", "of": "n"}, "window": PLAIN},
    "visits": {"kind": "value", "fields": {"views": {"agg": "count"}}, "window": LONG},
    "all": {"kind": "reducing", "value": {"agg": "count"}},
}
SESSIONS = [name for name, spec in STATES.items() if "window" in spec]


def pipeline(**changes: object) -> Pipeline:
    document = {
        "name": "p",
        "source": {"path": "{start}-{end}", "columns": {"k": "string", "n": "long", "t": "instant"}},
        "key": "k",
        "states": STATES,
        "backend": "heap",
    }
    return Pipeline.model_validate(document | changes)


def table(events: Iterable[Event]) -> pa.Table:
    keys, numbers, times = list(zip(*events, strict=True)) or [(), (), ()]
    columns = [pa.array(keys, pa.string()), pa.array(numbers, pa.int64()), pa.array(times, pa.int64()).cast(MS)]
    return pa.table(dict(zip("knt", columns, strict=True)))


@dataclass
class Session:
    key: str
    start: int
    end: int
    events: list[Event]
    open: bool = True

    @property
    def place(self) -> tuple[str, int, int]:
        return self.key, self.start, self.end


class Reference:
    """A slow reference. It gives Flink's window operator the events of each interval one by one, the newest first."""

    def __init__(self) -> None:
        self.sessions: dict[str, list[Session]] = {name: [] for name in SESSIONS}
        self.late = dict.fromkeys(SESSIONS, 0)
        self.watermark = -(2**63)

    def apply(self, events: list[Event], end_ms: int) -> None:
        for name in SESSIONS:
            for event in sorted(events, key=lambda e: -e[2]):
                self.add(name, event)
        self.watermark = max(self.watermark, end_ms - 1)
        for name in SESSIONS:
            _, lateness, retain = times(name)
            for session in self.sessions[name]:
                session.open &= session.end - 1 + lateness > self.watermark
            self.sessions[name] = [s for s in self.sessions[name] if s.end - 1 + lateness + retain > self.watermark]

    def add(self, name: str, event: Event) -> None:
        key, _, at = event
        gap, lateness, _ = times(name)
        window = Session(key, at, at + gap, [event])
        for other in [s for s in self.sessions[name] if s.key == key and s.open]:
            if other.start <= window.end and window.start <= other.end:
                bounds = min(window.start, other.start), max(window.end, other.end)
                window = Session(key, *bounds, window.events + other.events)
                self.sessions[name].remove(other)
        if window.end - 1 + lateness <= self.watermark:
            self.late[name] += 1
        else:
            self.sessions[name].append(window)

    def state(self, name: str) -> dict[object, object]:
        return {session.place: value(name, session.events) for session in self.sessions[name]}

    def windows(self, name: str) -> dict[object, object]:
        """Return the open windows of each key, which are stored under themselves."""
        windows: dict[object, list[tuple[int, int]]] = {}
        for session in sorted((s for s in self.sessions[name] if s.open), key=lambda s: s.start):
            windows.setdefault(session.key, []).append((session.start, session.end))
        return {key: [{"f0": window, "f1": window} for window in of_key] for key, of_key in windows.items()}

    def timers(self, name: str) -> set[object]:
        """Return the timers that Flink has for open windows, and the one that removes the contents of closed ones."""
        _, lateness, retain = times(name)
        timers: set[object] = set()
        for session in self.sessions[name]:
            delays = (0, lateness) if session.open else (lateness + retain,)
            timers |= {(*session.place, session.end - 1 + delay) for delay in delays}
        return {timer for timer in timers if timer[3] > self.watermark}


def times(name: str) -> tuple[int, int, int]:
    """Return gap, lateness and the time that a closed window is retained, in milliseconds."""
    window = STATES[name]["window"]
    gap, lateness, retain = (window.get(field, "0s") for field in ("session", "allowed_lateness", "retain"))
    return milliseconds(gap), milliseconds(lateness), milliseconds(retain)


def value(name: str, events: list[Event]) -> object:
    numbers = [event[1] for event in events]
    last = max(events, key=lambda event: (event[2], event[1]))
    return {
        WINDOW_CONTENTS: sum(numbers),
        "rows": {"n": len(numbers), "ends": {"value": last[1], "by_t": last[2], "by_n": last[1]}},
        "visits": {"views": len(numbers)},
        "mean": {"sum": float(sum(numbers)), "count": len(numbers)},
        "list": sorted(numbers),
    }[name]


def in_milliseconds(content: Any) -> Any:
    """Return values in which moments are epoch milliseconds, and windows are pairs of them."""
    if isinstance(content, dict):
        if set(content) == {"start", "end"}:
            return in_milliseconds(content["start"]), in_milliseconds(content["end"])
        return {key: in_milliseconds(each) for key, each in content.items()}
    if isinstance(content, list):
        return [in_milliseconds(each) for each in content]
    return round(content.timestamp() * 1000) if hasattr(content, "timestamp") else content


def same(run: LocalRun | SubtaskRun, reference: Reference) -> None:
    for name in SESSIONS:
        assert in_milliseconds(run.state(name)) == reference.state(name)
        assert in_milliseconds(run.state(window_set(name))) == reference.windows(name)
        assert set(run.state(f"_timer_state/event_{session_timers(name)}")) == reference.timers(name)


EVENT = st.tuples(
    st.sampled_from("abc"), st.integers(-5, 5), st.integers(-2 * 12, 8 * 12).map(lambda five: five * 5 * MINUTE)
)
"""Events of some hours, at multiples of five minutes: windows often touch."""
INTERVALS = st.lists(st.tuples(st.lists(EVENT, max_size=25), st.integers(0, 8)), min_size=1, max_size=6)


def with_ends(intervals: list[tuple[list[Event], int]]) -> list[tuple[list[Event], int]]:
    """Return consecutive intervals of some quarters of an hour."""
    end, windows = 0, []
    for events, quarters in intervals:
        end += quarters * 15 * MINUTE
        windows.append((events, end))
    return windows


@settings(deadline=None, max_examples=examples(150))
@given(INTERVALS)
def test_sessions_have_the_result_of_adding_single_events(intervals: list[tuple[list[Event], int]]) -> None:
    run, reference = LocalRun(pipeline()), Reference()
    for events, end_ms in with_ends(intervals):
        run.apply(table(events), end_ms)
        reference.apply(events, end_ms)
        same(run, reference)
    assert {name: run.late[name] for name in SESSIONS} == reference.late


STEPS = st.tuples(
    st.sampled_from(["canonical", "full", "incremental"]), st.sampled_from(["heap", "rocksdb"]), st.integers(1, 3)
)


@settings(deadline=None, max_examples=examples(25))
@given(INTERVALS, st.lists(STEPS, min_size=6, max_size=6))
def test_sessions_survive_checkpoints_restores_and_rescaling(
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
        assert {name: run.late.get(name, 0) for name in SESSIONS} == reference.late


def test_windows_that_touch_are_one_and_windows_a_millisecond_apart_are_two() -> None:
    run = LocalRun(pipeline())
    gap = 10 * MINUTE
    run.apply(table([("a", 1, 0), ("a", 2, gap), ("b", 1, 0), ("b", 2, gap + 1)]), 0)
    assert run.state(WINDOW_CONTENTS) == {("a", 0, 2 * gap): 3, ("b", 0, gap): 1, ("b", gap + 1, 2 * gap + 1): 2}
    run.apply(table([("b", 4, gap)]), 0)
    assert run.state(WINDOW_CONTENTS) == {("a", 0, 2 * gap): 3, ("b", 0, 2 * gap + 1): 7}


def test_a_late_event_is_accepted_if_it_joins_an_open_window_and_counted_otherwise() -> None:
    """A window of ``rows`` is 25 minutes long at least, and accepts events until 40 minutes after its end."""
    run = LocalRun(pipeline())
    run.apply(table([("a", 1, 0)]), HOUR)
    run.apply(table([("a", 2, -20 * MINUTE), ("b", 2, -20 * MINUTE)]), HOUR)
    (place,) = run.state("rows")
    assert place == ("a", -20 * MINUTE, 25 * MINUTE)
    assert run.late["rows"] == 1
    run.apply(table([]), 65 * MINUTE)
    run.apply(table([("a", 4, 20 * MINUTE)]), 65 * MINUTE)
    assert set(run.state("rows")) == {place, ("a", 20 * MINUTE, 45 * MINUTE)}, "a closed window takes no event"
    run.apply(table([]), 65 * MINUTE + 2 * HOUR)
    assert set(run.state("rows")) == {("a", 20 * MINUTE, 45 * MINUTE)}


def test_the_end_of_time_closes_and_removes_every_session() -> None:
    run = LocalRun(pipeline())
    run.apply(table([("a", 1, 0), ("b", 1, HOUR)]), 0)
    assert len(run.state("visits")) == 2
    run.apply(table([]), 0, draining=True)
    names = [name for name in run.backend.schema.states if name.name != "all"]
    assert all(run.state(state.name) == {} for state in names)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-(2**62), 2**62) | st.integers(0, 2), st.integers(0, 2))))
def test_equal_windows_of_a_key_are_one_group(rows: list[tuple[int, int, int]]) -> None:
    owners, starts, lengths = np.array(rows, np.int64).reshape(-1, 3).T
    windows = SessionWindows(owners, starts, starts + lengths)
    grouping = windows.grouped()
    distinct = sorted(set(rows))
    assert [rows[row] for row in grouping.first] == distinct
    assert [distinct[code] for code in grouping.codes] == rows
    assert grouping.first.tolist() == [rows.index(window) for window in distinct]
