"""Timers of user functions: when they fire, how often, in which order, over any chain of checkpoints."""

import itertools
import random
from pathlib import Path

import pyarrow as pa
import pytest

from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError
from statelib.testing.local_run import LocalRun
from statelib.testing.subtask_run import SubtaskRun
from tests.unit.functions import session_timers

pytestmark = pytest.mark.slow

MS = pa.timestamp("ms", "UTC")
DOMAINS = ["event_time", "processing_time"]
HOUR, MINUTE = 3_600_000, 60_000
COLUMNS = {"k": "string", "u": "string", "n": "long", "t": "instant"}
VISITS = {
    "kind": "value",
    "function": "tests.unit.functions.session_timers:update",
    "on_timer": "tests.unit.functions.session_timers:on_timer",
    "fields": {"events": "long", "last": "instant", "visits": "long"},
}
AT = pa.array([1], pa.timestamp("ms", "UTC"))
BOTH = {
    "kind": "value",
    "function": "tests.unit.functions.session_timers:both_update",
    "on_timer": "tests.unit.functions.session_timers:both_on_timer",
    "fields": {"fired": "long"},
}


@pytest.fixture(autouse=True)
def _empty_log() -> None:
    session_timers.LOG.clear()


def pipeline(state: dict[str, object], name: str = "s") -> Pipeline:
    source = {"path": "{start}-{end}", "columns": COLUMNS}
    return Pipeline.model_validate(
        {"name": "p", "source": source, "key": "k", "states": {name: state}, "backend": "heap"}
    )


def events(*rows: tuple[str, str, int]) -> pa.Table:
    """Return events from rows of (key, user key, number). The number is also the time, in ms."""
    k, u, n = (list(c) for c in zip(*rows, strict=True)) if rows else ([], [], [])
    numbers = pa.array(n, pa.int64())
    return pa.table({"k": pa.array(k, pa.string()), "u": pa.array(u, pa.string()), "n": numbers, "t": numbers.cast(MS)})


def test_a_timer_fires_when_the_watermark_reaches_it() -> None:
    run = LocalRun(pipeline(BOTH))
    run.apply(events(("a", "event_time", 99), ("a", "event_time", 100), ("b", "processing_time", 101)), 100)
    assert session_timers.LOG == [("a", "event_time", 99)]
    run.apply(events(), 101)
    assert session_timers.LOG[1:] == [("a", "event_time", 100), ("b", "processing_time", 101)]
    run.apply(events(), 111)
    assert session_timers.LOG[3:] == []
    run.apply(events(), 112)
    assert session_timers.LOG[3:] == [("b", "event_time", 111)]
    run.apply(events(), 10_000)
    assert len(session_timers.LOG) == 4
    assert run.state("s") == {"a": {"fired": 2}, "b": {"fired": 2}}
    assert run.state("_timer_state/event_s") == run.state("_timer_state/processing_s") == {}


def test_draining_fires_all_event_time_timers_and_no_others() -> None:
    """Draining moves event time to its end and leaves processing time alone, as a real Flink does with ``--drain``."""
    run = LocalRun(pipeline(BOTH))
    far = 9_000_000_000_000
    run.apply(events(("a", "event_time", far), ("b", "processing_time", far)), 100)
    assert session_timers.LOG == []
    run.apply(events(), draining=True)
    assert [("a", "event_time", far)] == session_timers.LOG
    assert run.state("_timer_state/event_s") == {}
    assert run.state("_timer_state/processing_s") == {("b", far): True}
    assert run.watermark_ms == 99, "events that follow a restore are not late"


def test_the_timers_of_a_key_fire_in_time_order_and_event_time_first() -> None:
    run = LocalRun(pipeline(BOTH))
    wanted = [("a", "processing_time", 10), ("a", "event_time", 30), ("a", "event_time", 5), ("b", "event_time", 7)]
    run.apply(events(*wanted, *wanted), 100)
    a = [entry[1:] for entry in session_timers.LOG if entry[0] == "a"]
    assert a == [("event_time", 5), ("event_time", 30), ("processing_time", 10), ("event_time", 20)]
    assert run.state("s") == {"a": {"fired": 4}, "b": {"fired": 1}}


def test_visits_end_after_an_hour_without_events() -> None:
    run = LocalRun(pipeline(VISITS))
    run.apply(events(("a", "", 0), ("a", "", 50 * MINUTE), ("b", "", 10 * MINUTE)), HOUR)
    state = run.state("s")
    assert {k: v["events"] for k, v in state.items()} == {"a": 2, "b": 1}
    run.apply(events(("b", "", 65 * MINUTE)), 2 * HOUR)
    # The timers fire after the interval's events: the visit of a ended at 1h50, that of b began anew before its end.
    assert {k: (v["events"], v["visits"]) for k, v in run.state("s").items()} == {"a": (0, 1), "b": (2, 0)}
    assert session_timers.LOG == [
        ("a", "event_time", HOUR),
        ("b", "event_time", 70 * MINUTE),
        ("a", "event_time", 110 * MINUTE),
    ]


@pytest.mark.parametrize("seed", range(8))
def test_each_timer_fires_once_over_any_chain_of_checkpoints(seed: int, tmp_path: Path) -> None:
    choose = random.Random(seed)
    run = SubtaskRun(pipeline(BOTH), tmp_path, backend := choose.choice(["heap", "rocksdb"]))
    asked: set[tuple[str, str, int]] = set()
    for number in itertools.count(1):
        end = 100 * number
        new = [
            (
                choose.choice("abcdef"),
                choose.choice(["event_time", "processing_time"]),
                choose.randrange(end - 50, end + 500),
            )
            for _ in range(choose.randrange(30))
        ]
        if number > 8:
            new, end = [], 10_000
        new = [timer for timer in new if timer not in asked]
        asked |= set(new)
        run.apply(events(*new, *new[:3]), end)
        strategy = choose.choice(["canonical", "full", "incremental"])
        if backend == "rocksdb" or strategy == "canonical":
            backend = choose.choice(["heap", "rocksdb"])
        run.checkpoint(strategy, backend, choose.randrange(1, 4))
        due = {timer for timer in asked if timer[2] <= end - (timer[1] == "event_time")}
        # A timer that a timer of processing time sets may also be set by an event, before or after it fired.
        assert due <= set(session_timers.LOG)
        if number > 8:
            break
    follow_ups = {(k, "event_time", at + 10) for k, domain, at in asked if domain == "processing_time"}
    assert set(session_timers.LOG) == asked | follow_ups
    twice = {timer for timer in session_timers.LOG if session_timers.LOG.count(timer) > 1}
    assert twice <= asked & follow_ups
    fired = {k: sum(entry[0] == k for entry in session_timers.LOG) for k in {entry[0] for entry in session_timers.LOG}}
    assert run.state("s") == {k: {"fired": n} for k, n in fired.items()}
    assert run.state("_timer_state/event_s") == run.state("_timer_state/processing_s") == {}
    run.close()


@pytest.mark.parametrize(
    ("timers", "problem"),
    [
        ({"k": ["a"]}, "one time or both"),
        ({"k": ["a"], "event_time": AT, "more": [1]}, "one time or both"),
        ({"k": ["z"], "event_time": AT}, "is not among the 1 key"),
        ({"k": [None], "event_time": AT}, "key column k is null"),
        ({"k": ["a"], "event_time": AT.cast(pa.timestamp("ms"))}, "a time without a zone is no instant"),
        ({"k": ["a"], "event_time": [1]}, "int64 is not converted to timestamp"),
        ({"k": ["a"], "event_time": ["soon"]}, "expected the types"),
        (3, r"expected \(rows, timers\) or \(rows, timers, outputs\), found a tuple of 3"),
        ([1], "expected a pyarrow.Table, found list"),
    ],
)
def test_bad_timers_are_refused(timers: object, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def update(_: pa.Table, state: pa.Table) -> object:
        if timers == 3:
            return state, state, state
        return state, pa.table(timers) if isinstance(timers, dict) else timers

    monkeypatch.setattr(session_timers, "both_update", update)
    with pytest.raises(InvalidRequestError, match=problem) as caught:
        LocalRun(pipeline(BOTH)).apply(events(("a", "", 1)), 10)
    assert caught.value.kind == "bad-function-result"


def test_timers_without_on_timer_are_refused() -> None:
    state = {key: value for key, value in BOTH.items() if key != "on_timer"}
    with pytest.raises(InvalidRequestError, match="only a state with 'on_timer' has timers"):
        LocalRun(pipeline(state)).apply(events(("a", "event_time", 1)), 10)


def test_a_function_that_sets_timers_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statelib.functions.user_code.state_functions.MAX_ROUNDS", 20)
    run = LocalRun(pipeline(BOTH | {"on_timer": "tests.unit.functions.session_timers:forever"}))
    with pytest.raises(InvalidRequestError, match="more than 20 timers") as caught:
        run.apply(events(("a", "event_time", 1)), 10)
    assert caught.value.kind == "timer-loop"


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_a_renamed_state_keeps_its_timers(tmp_path: Path, backend: str) -> None:
    run = SubtaskRun(pipeline(BOTH), tmp_path, backend)
    run.apply(events(("a", "event_time", 150), ("b", "processing_time", 250)), 100)
    run.pipeline = pipeline({**BOTH, "renamed_from": "s"}, "now")
    run.checkpoint("canonical", backend, 1)
    run.apply(events(), 300)
    assert session_timers.LOG == [("a", "event_time", 150), ("b", "processing_time", 250), ("b", "event_time", 260)]
    run.close()
