# ruff: noqa: E501 (a table: one mistake per line)
"""Windows and timers in a pipeline file: what they become, and every mistake."""

import pytest

from statelib.definition.pipeline import Pipeline, load_pipeline
from statelib.errors import InvalidRequestError
from statelib.functions.sessions.session_function import SessionFunction, SessionSpec
from statelib.functions.user_code.state_functions import UserFunction
from statelib.functions.windows import WindowedFunction, WindowSpec
from statelib.model.session_state import window_set_descriptor
from statelib.model.state import EVENT_TIMERS, PROCESSING_TIMERS, StateKind, timers_descriptor
from statelib.model.ttl import TtlConfig
from statelib.model.types import TIME_WINDOW, Ttl, Tuple

GOOD = """\
name: flights
source:
  path: "{data}/{start}-{end}"
  columns: {tailnum: string, domain: string, dest: string, distance: long, time_hour: instant, day: date}
key: [tailnum]
states:
  hourly: {kind: reducing, value: {agg: count}, window: {time: time_hour, tumbling: 1h, retain: 7d, allowed_lateness: 90s}}
  daily: {kind: map, user_key: dest, value: {agg: count}, window: {time: time_hour, sliding: {size: 1d, slide: 1h}, retain: 0s}}
  custom: {kind: value, fields: {streak: long}, function: my.module:update, on_timer: my.module:wake}
  plain: {kind: value, value: {agg: count}}
backend: rocksdb
"""

CASES = {
    "no window at all": ("tumbling: 1h, ", "", 7, "states.hourly.window: expected 'tumbling' with a size, 'sliding' with size and slide, or 'session' with a gap"),
    "both": ("tumbling: 1h", "tumbling: 1h, sliding: {size: 1h, slide: 1h}", 7, "states.hourly.window: expected 'tumbling' with a size, 'sliding'"),
    "a gap with a name": ("tumbling: 1h", "session: {gap: 30m}", 7, "states.hourly.window.session: expected a text, found {'gap': '30m'}"),
    "a session with a size": ("tumbling: 1h", "session: 30m, tumbling: 1h", 7, "states.hourly.window: expected 'tumbling' with a size, 'sliding'"),
    "no gap": ("tumbling: 1h", "session: 0s", 7, "states.hourly.window.session: expected a gap of more than 0"),
    "sessions of a map": ("sliding: {size: 1d, slide: 1h}", "session: 1h", 8, "states.daily.window.session: session windows merge, which a map state cannot: expected kind value, list, reducing or aggregating"),
    "sessions of a function": ("on_timer: my.module:wake", "window: {time: time_hour, session: 1h, retain: 1d}", 9, "states.custom.window: windows are for aggregates"),
    "name that sessions have": ("  plain:", "  merging-window-set:", 10, "states.merging-window-set: window-timers and names that begin with merging-window-set belong to session windows"),
    "no duration": ("tumbling: 1h", "tumbling: 1 hour", 7, "states.hourly.window.tumbling: expected a duration such as 500ms, 90s, 15m, 1h or 7d, found '1 hour'"),
    "two lives": ("tumbling: 1h, retain: 7d, allowed_lateness: 90s}", "tumbling: 1h, retain: 7d}, ttl: 1d", 7, "states.hourly.ttl: a state with windows lives as long as its windows: use 'retain' in 'window'"),
    "a number": ("tumbling: 1h", "tumbling: 3600", 7, "states.hourly.window.tumbling: expected a text, found 3600"),
    "nothing": ("tumbling: 1h", "tumbling: 0h", 7, "states.hourly.window.tumbling: expected a size of more than 0"),
    "gaps": ("{size: 1d, slide: 1h}", "{size: 1h, slide: 1d}", 8, "states.daily.window.sliding.slide: expected a slide of more than 0 and at most the size, 1h"),
    "no slide": ("slide: 1h", "slide: 0s", 8, "states.daily.window.sliding.slide: expected a slide of more than 0"),
    "too many": ("slide: 1h", "slide: 1m", 8, "states.daily.window.sliding.slide: an event would lie in 1440 windows, expected at most 1000"),
    "no such column": ("time: time_hour, tumbling", "time: time_hours, tumbling", 7, "states.hourly.window.time: column 'time_hours' is not in source.columns, did you mean 'time_hour'?"),
    "no time": ("time: time_hour, tumbling", "time: day, tumbling", 7, "states.hourly.window.time: expected a column of type instant; day is date"),
    "not retained": (", retain: 7d", "", 7, "states.hourly.window.retain: is missing"),
    "typo": ("allowed_lateness", "lateness", 7, "states.hourly.window.lateness: unknown key"),
    "window of a function": ("on_timer: my.module:wake", "window: {time: time_hour, tumbling: 1h, retain: 1d}", 9, "states.custom.window: windows are for aggregates"),
    "timers without a function": ("kind: value, value: {agg: count}", "kind: value, value: {agg: count}, on_timer: a:b", 10, "states.plain.on_timer: belongs to a 'function'"),
    "no function": ("my.module:wake", "my.module", 9, "states.custom.on_timer: expected package.module:name, found 'my.module'"),
    "key that timers have": ("key: [tailnum]", "key: [domain]", 9, "states.custom.on_timer: key column 'domain' is also a column of the tables of timers"),
    "a name of timers": ("  plain:", "  _timer_state/event_x:", 10, "states._timer_state/event_x: names that begin with _timer_state/ are those of timers"),
    "a window as data": ("day: date", "day: timewindow", 4, "source.columns.day: type timewindow is the type of a window"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_one_clear_error(tmp_path, case):
    old, new, line, expected = CASES[case]
    assert GOOD.count(old) >= 1
    path = tmp_path / "flights.yaml"
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(InvalidRequestError) as caught:
        load_pipeline(path)
    assert caught.value.kind == "bad-pipeline"
    assert caught.value.message.startswith(f"{path}:{line}: {expected}")
    assert "\n" not in caught.value.message


def test_timers_of_a_state_that_expires_do_not_expire(tmp_path):
    path = tmp_path / "flights.yaml"
    path.write_text(GOOD.replace("on_timer: my.module:wake", "on_timer: my.module:wake, ttl: 1d"))
    pipeline = load_pipeline(path)
    assert pipeline.ttl() == {"custom": TtlConfig(86_400_000)}
    assert {s.name for s in pipeline.schema().states if isinstance(s.value_type, Ttl)} == {"custom"}
    assert timers_descriptor(PROCESSING_TIMERS, "custom") in pipeline.schema().states


def test_sessions_become_contents_open_windows_and_timers(tmp_path):
    path = tmp_path / "flights.yaml"
    flights = GOOD.replace("tumbling: 1h", "session: 30m").replace("  plain: {", "  calls: {renamed_from: plain, ")
    path.write_text(flights.replace("calls: {", "calls: {window: {time: time_hour, session: 1h, retain: 0s}, "))
    pipeline = load_pipeline(path)
    (hourly, *_, calls) = pipeline.functions()
    assert isinstance(hourly, SessionFunction)
    assert isinstance(calls, SessionFunction)
    assert hourly.window == SessionSpec("time_hour", 30 * 60_000, 90_000, 7 * 86_400_000)
    assert pipeline.schema().states[-2:] == (
        window_set_descriptor("calls", ["plain"]),
        timers_descriptor(EVENT_TIMERS, "calls", TIME_WINDOW, ["plain"]),
    )
    assert pipeline.schema().state("merging-window-set_hourly").value_type == Tuple((TIME_WINDOW, TIME_WINDOW))


def test_contents_of_flinks_name_have_the_states_of_flinks_window_operator(tmp_path):
    path = tmp_path / "flights.yaml"
    path.write_text(GOOD.replace("tumbling: 1h", "session: 30m").replace("hourly", "window-contents"))
    names = [state.name for state in load_pipeline(path).schema().states]
    assert {"window-contents", "merging-window-set", "_timer_state/event_window-timers"} <= set(names)


def test_windows_and_timers_become_states_of_the_schema(tmp_path):
    path = tmp_path / "flights.yaml"
    path.write_text(GOOD)
    pipeline = load_pipeline(path)
    states = pipeline.schema().states
    assert [state.name for state in states[:4]] == ["hourly", "daily", "custom", "plain"]
    assert [state.namespace_type == TIME_WINDOW for state in states[:4]] == [True, True, False, False]
    assert states[4:] == (
        timers_descriptor(EVENT_TIMERS, "hourly", TIME_WINDOW),
        timers_descriptor(EVENT_TIMERS, "daily", TIME_WINDOW),
        timers_descriptor(EVENT_TIMERS, "custom"),
        timers_descriptor(PROCESSING_TIMERS, "custom"),
    )
    assert {state.kind for state in states[4:]} == {StateKind.TIMERS}
    hourly, daily, custom, _ = pipeline.functions()
    assert isinstance(hourly, WindowedFunction)
    assert isinstance(daily, WindowedFunction)
    hour, day = 3_600_000, 86_400_000
    assert hourly.window == WindowSpec("time_hour", hour, hour, 90_000, 7 * day)
    assert daily.window == WindowSpec("time_hour", day, hour, 0, 0)
    assert isinstance(custom, UserFunction)
    assert custom.on_timer == "my.module:wake"
    assert Pipeline.model_validate(pipeline.model_dump()) == pipeline
