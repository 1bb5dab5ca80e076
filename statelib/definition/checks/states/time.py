"""Checks of a state's windows, timers and time to live, and small checks that other modules share."""

from collections.abc import Iterator, Sequence

from statelib.definition.parts.durations import milliseconds
from statelib.definition.parts.model import StateDefinition, WindowSettings
from statelib.definition.parts.types import Columns
from statelib.definition.problems import Problem, Where, did_you_mean
from statelib.model.types import INSTANT

MAX_WINDOWS = 1000
"""The largest number of windows that contain one event. Each of them gets a copy of the event."""
TIMER_COLUMNS = ("domain", "timestamp", "event_time", "processing_time")
"""Columns of the tables of timers, besides the key columns."""


def check_time(state: StateDefinition, columns: Columns, key: Sequence[str], where: Where) -> Iterator[Problem]:
    """Yield the problems of ``window``, ``on_timer`` and ``ttl``."""
    yield from _check_ttl(state, where)
    if state.on_timer is not None:
        yield from _check_on_timer(state, state.on_timer, key, where)
    if state.window is None:
        return
    if state.function is not None:
        yield Problem((*where, "window"), "windows are for aggregates; a function sets timers, see 'on_timer'")
    if state.window.session is not None and state.kind == "map":
        kinds = "value, list, reducing or aggregating"
        text = f"session windows merge, which a map state cannot: expected kind {kinds}"
        yield Problem((*where, "window", "session"), text)
    yield from _check_window(state.window, columns, (*where, "window"))


def _check_ttl(state: StateDefinition, where: Where) -> Iterator[Problem]:
    if state.ttl is None:
        if state.update is not None:
            yield Problem((*where, "update"), "has a meaning only with 'ttl'")
    elif state.window is not None:
        yield Problem((*where, "ttl"), "a state with windows lives as long as its windows: use 'retain' in 'window'")
    elif milliseconds(state.ttl) == 0:
        yield Problem((*where, "ttl"), "expected a duration of more than 0")


def _check_on_timer(state: StateDefinition, reference: str, key: Sequence[str], where: Where) -> Iterator[Problem]:
    if not is_reference(reference):
        yield Problem((*where, "on_timer"), f"expected package.module:name, found {reference!r}")
    if state.function is None:
        yield Problem((*where, "on_timer"), "belongs to a 'function', which sets the timers")
    for name in key:
        if name in TIMER_COLUMNS:
            yield Problem((*where, "on_timer"), f"key column {name!r} is also a column of the tables of timers")


def _check_window(window: WindowSettings, columns: Columns, where: Where) -> Iterator[Problem]:
    if [window.tumbling, window.sliding, window.session].count(None) != 2:
        yield Problem(where, "expected 'tumbling' with a size, 'sliding' with size and slide, or 'session' with a gap")
    else:
        yield from _check_sizes(window, where)
    if window.time not in columns:
        yield not_declared(window.time, columns, (*where, "time"))
    elif columns[window.time] not in (INSTANT, None):
        text = f"expected a column of type instant; {window.time} is {columns[window.time]}"
        yield Problem((*where, "time"), text)


def _check_sizes(window: WindowSettings, where: Where) -> Iterator[Problem]:
    if window.session is not None:
        if milliseconds(window.session) == 0:
            yield Problem((*where, "session"), "expected a gap of more than 0")
        return
    if window.sliding is None:
        if milliseconds(window.tumbling or "") == 0:
            yield Problem((*where, "tumbling"), "expected a size of more than 0")
        return
    size, slide = milliseconds(window.sliding.size), milliseconds(window.sliding.slide)
    if not 0 < slide <= size:
        text = f"expected a slide of more than 0 and at most the size, {window.sliding.size}"
        yield Problem((*where, "sliding", "slide"), text)
    elif size > slide * MAX_WINDOWS:
        text = f"an event would lie in {-(-size // slide)} windows, expected at most {MAX_WINDOWS}"
        yield Problem((*where, "sliding", "slide"), text)


def not_declared(name: str, columns: Columns, where: Where) -> Problem:
    """Return the problem of a column that ``source.columns`` does not have."""
    declared = ", ".join(columns)
    text = f"column {name!r} is not in source.columns{did_you_mean(name, columns)}; declared are {declared}"
    return Problem(where, text)


def is_reference(text: str) -> bool:
    """Return whether the text has the form ``package.module:name``."""
    module, colon, name = text.partition(":")
    return bool(colon) and name.isidentifier() and all(part.isidentifier() for part in module.split("."))
